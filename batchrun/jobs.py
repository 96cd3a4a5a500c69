"""Makes jobs of lines.  One line is one JSON object; what is wrong with it is said with line, column and expectation.

A bad line becomes a `Rejection`, which is a result like any other; it never stops the run and never touches its
neighbours.  Token lengths are checked later, by `prompts.py`.
"""

import difflib
import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NoReturn

from batchrun.batch_api import as_job_record, is_batch_line
from batchrun.confinement import read_below
from batchrun.core import Defaults, Job, Message, Problem, Rejection
from batchrun.errors import JobError
from batchrun.key_table import KeyTable, key_of
from batchrun.line import Line, Origin
from batchrun.lines import LINE_BYTES
from batchrun.records import named, parse_object, refuse, shown
from batchrun.schema_folders import SchemaFolders
from batchrun.templates import Layout

ROLES = ("system", "user", "assistant", "tool")


@dataclass(frozen=True, slots=True)
class Rule:
    """What a field must hold: a test, and the words for it."""

    holds: Callable[[Any], bool]
    expected: str


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(least: int, most: int = 2**31 - 1) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_stop(value: Any) -> bool:
    texts = value if isinstance(value, list) else [value]
    return all(isinstance(text, str) and text for text in texts)


FIELDS: Mapping[str, Rule] = {
    "id": Rule(_is_text, "a non-empty string"),
    "prompt": Rule(_is_text, "a non-empty string"),
    "messages": Rule(lambda value: isinstance(value, list) and bool(value), "a non-empty list of messages"),
    "document": Rule(lambda value: isinstance(value, str), "a string"),
    "document_file": Rule(_is_text, "a path"),
    "schema": Rule(lambda value: isinstance(value, str | dict | bool) and value != "", "a name, a path or an object"),
    "system": Rule(lambda value: isinstance(value, str), "a string"),
    "max_tokens": Rule(_is_count(1), "a whole number from 1 to 2147483647"),
    "temperature": Rule(lambda value: _is_number(value) and 0 <= value <= 100, "a number from 0 to 100"),
    "top_p": Rule(lambda value: _is_share(value) and value > 0, "a number above 0, at most 1"),
    "top_k": Rule(_is_count(0), "a whole number from 0 (no limit) to 2147483647"),
    "min_p": Rule(_is_share, "a number from 0 to 1"),
    "seed": Rule(_is_count(0, 2**63 - 1), "a whole number from 0 to 9223372036854775807"),
    "stop": Rule(_is_stop, "a non-empty string or a list of them"),
    "timeout_s": Rule(lambda value: _is_number(value) and 0 < value <= 1e9, "seconds, more than 0"),
    "group": Rule(_is_text, "a non-empty string"),
    "keep": Rule(lambda value: value == "first", '"first"'),
    "meta": Rule(lambda value: True, "anything"),
}
SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "seed")


class JobReader:
    """Turns the lines of one input into jobs.  Remembers ids, so that a second use of one is found.

    `base`: what lines without an origin of their own look files up from, and may not leave.
    """

    def __init__(
        self,
        defaults: Defaults,
        schemas: SchemaFolders,
        base: Path,
        *,
        layout: Layout | None = None,
        document_bytes: int = LINE_BYTES,
    ) -> None:
        self._defaults = defaults
        self._schemas = schemas
        self._origin = Origin(base=base, root=base)
        self._layout = layout or Layout()
        self._document_bytes = document_bytes
        self._indices_by_id = KeyTable()

    def read(self, line: bytes, number: int) -> Job | Rejection:
        """As `read_line`, for a line of the one input there is.  `number`: of the line, from 1."""
        return self.read_line(Line(number, line, self._origin))

    def read_line(self, line: Line) -> Job | Rejection:
        """The job that a line holds, or why it holds none."""
        record: dict[str, Any] = {}
        try:
            if line.problem:
                raise JobError(line.problem)
            record = parse_object(line.data)
            if is_batch_line(record):
                record = {"id": record["custom_id"]} | record
                return self._job(as_job_record(record), line)
            record = self._layout.laid_out(record, FIELDS, line.origin.is_table)
            return self._job(record, line)
        except JobError as error:
            job_id = record["id"] if FIELDS["id"].holds(record.get("id")) else default_id(line)
            return rejection(line, job_id, error.problem, record.get("meta"))

    def _job(self, record: dict[str, Any], line: Line) -> Job:
        given = {key: value for key, value in record.items() if value is not None}
        for key, value in given.items():
            rule = FIELDS.get(key)
            if rule is None or not rule.holds(value):
                _refuse_field(key, value, rule)
        self._check_combination(given)
        job_id, index = given.get("id") or default_id(line), line.origin.lines_before + line.number
        self._take_id(job_id, index)
        defaults = self._defaults
        schema = given.get("schema", defaults.schema)
        stop = given.get("stop", () if schema is not None else defaults.stop)
        sampling = {key: given[key] for key in SAMPLING_FIELDS if key in given}
        return Job(
            index=index,
            id=job_id,
            messages=self._messages(given),
            document=self._document(given, line.origin),
            schema=None if schema is None else self._schemas.load(schema, line.origin if "schema" in given else None),
            max_tokens=given.get("max_tokens", defaults.max_tokens),
            sampling=replace(defaults.sampling, **sampling) if sampling else defaults.sampling,
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            meta=given.get("meta"),
            timeout_s=given.get("timeout_s"),
            group=given.get("group"),
        )

    def _take_id(self, job_id: str, index: int) -> None:
        first = self._indices_by_id.setdefault(key_of(job_id), index)
        if first != index:
            refuse("duplicate_id", f"id {named(job_id)} stands on line {first} already; expected an id of its own")

    def _check_combination(self, given: Mapping[str, Any]) -> None:
        if ("prompt" in given) == ("messages" in given):
            missing = "prompt is missing (a key of the line, or --prompt for all)"
            both = "both prompt and messages are there" if "prompt" in given else missing
            refuse("bad_prompt", f"{both}; expected a prompt (or messages in its place)")
        if "document" in given and "document_file" in given:
            refuse("bad_document", "both document and document_file are there; expected one of them")
        if "stop" in given and given.get("schema", self._defaults.schema) is not None:
            refuse("bad_stop", "stop has no meaning for a job with a schema, which ends where its JSON ends")
        if "keep" in given and "group" not in given:
            refuse("bad_group", "keep is there without a group; expected the name of the group too")

    def _messages(self, given: Mapping[str, Any]) -> tuple[Message, ...]:
        system = given.get("system")
        turns = _turns(given["messages"]) if "messages" in given else (Message("user", given["prompt"]),)
        has_system = turns[0].role == "system"
        if has_system and system is not None:
            refuse("bad_prompt", "system is given beside messages that begin with a system turn; expected one of them")
        system = self._defaults.system if system is None and not has_system else system
        return (Message("system", system), *turns) if system else turns

    def _document(self, given: Mapping[str, Any], origin: Origin) -> str | None:
        if "document_file" not in given:
            document = given.get("document")
            return None if document is None else str(document)
        name: str = given["document_file"]
        places = (origin.base, origin.root, self._document_bytes)
        data = read_below(name, *places, code="document_unreadable", what="document_file")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            refuse("document_unreadable", f"document_file {named(name)} is not UTF-8 at byte {error.start}")


def default_id(line: Line) -> str:
    """The id of a line that has none: its number, behind the name of its input where there are several."""
    return f"{line.origin.name}:{line.number}" if line.origin.name else str(line.number)


def rejection(line: Line, job_id: str, problem: Problem, meta: Any) -> Rejection:
    """A line turned away.  Its digest covers the reason: once the reason is gone, the line is another job."""
    shape = b"\0".join((b"rejected", line.data, problem.code.encode(), problem.message.encode()))
    placed = replace(problem, line=line.number, file=line.origin.name or None)
    index = line.origin.lines_before + line.number
    return Rejection(index, job_id, placed, hashlib.sha256(shape).hexdigest(), meta)


def _refuse_field(key: str, value: Any, rule: Rule | None) -> NoReturn:
    if rule is None:
        near = difflib.get_close_matches(key, FIELDS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(FIELDS)}"
        refuse("unknown_key", f"unknown key {named(key)}; {hint} (extra data goes into 'meta')")
    refuse("bad_value", f"{key} is {shown(value)}; expected {rule.expected}")


def _turns(messages: list[Any]) -> tuple[Message, ...]:
    turns = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            refuse("bad_prompt", f"{where} is {shown(message)}; expected an object with role and content")
        if message["role"] not in ROLES:
            refuse("bad_prompt", f"{where}.role is {shown(message['role'])}; expected one of {', '.join(ROLES)}")
        if not isinstance(message["content"], str):
            refuse("bad_prompt", f"{where}.content is {shown(message['content'])}; expected a string")
        turns.append(Message(message["role"], message["content"]))
    if turns[-1].role != "user":
        refuse("bad_prompt", f"the last message is by {turns[-1].role}; expected one by user, for the model to answer")
    return tuple(turns)
