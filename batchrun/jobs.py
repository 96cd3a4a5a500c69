"""Reads job lines.  One line is one JSON object; what is wrong with it is said with line, column and expectation.

A bad line becomes a `Rejection`, which is a result like any other; it never stops the run and never touches its
neighbours.  Token lengths are checked later, by `prompts.py`.
"""

import difflib
import hashlib
import json
import stat
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from batchrun.core import Defaults, Job, Message, Problem, Rejection, Sampling
from batchrun.errors import JobError
from batchrun.schemas import MOST_NESTED, SchemaFolders, is_too_deep, kind_of

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
    "meta": Rule(lambda value: True, "anything"),
}
SAMPLING_FIELDS = ("temperature", "top_p", "top_k", "min_p", "seed")


class JobReader:
    """Turns the lines of one input into jobs.  Remembers ids, so that a second use of one is found."""

    def __init__(self, defaults: Defaults, schemas: SchemaFolders, base: Path) -> None:
        self._defaults = defaults
        self._schemas = schemas
        self._base = base  # what `document_file` is relative to
        self._lines_by_id: dict[str, int] = {}

    def read(self, line: bytes, number: int) -> Job | Rejection:
        """The job that a line holds, or why it holds none.  `number`: of the line, from 1."""
        record: dict[str, Any] = {}
        try:
            record = parse_object(line)
            return self._job(record, number)
        except JobError as error:
            job_id = record["id"] if FIELDS["id"].holds(record.get("id")) else str(number)
            return rejection(line, number, job_id, error.problem, record.get("meta"))

    def _job(self, record: dict[str, Any], number: int) -> Job:
        given = {key: value for key, value in record.items() if value is not None}
        for key, value in given.items():
            _check_field(key, value)
        self._check_combination(given)
        job_id = given.get("id", str(number))
        first = self._lines_by_id.setdefault(job_id, number)
        if first != number:
            _refuse("duplicate_id", f"id {_named(job_id)} stands on line {first} already; expected an id of its own")
        defaults = self._defaults
        schema = given.get("schema", defaults.schema)
        stop = given.get("stop", () if schema is not None else defaults.stop)
        sampling = {key: given.get(key, getattr(defaults.sampling, key)) for key in SAMPLING_FIELDS}
        return Job(
            index=number,
            id=job_id,
            messages=self._messages(given),
            document=self._document(given),
            schema=None if schema is None else self._schemas.load(schema),
            max_tokens=given.get("max_tokens", defaults.max_tokens),
            sampling=Sampling(**sampling),
            stop=(stop,) if isinstance(stop, str) else tuple(stop),
            meta=given.get("meta"),
        )

    def _check_combination(self, given: Mapping[str, Any]) -> None:
        if ("prompt" in given) == ("messages" in given):
            both = "both prompt and messages are there" if "prompt" in given else "prompt is missing"
            _refuse("bad_prompt", f"{both}; expected a prompt (or messages in its place)")
        if "document" in given and "document_file" in given:
            _refuse("bad_document", "both document and document_file are there; expected one of them")
        if "stop" in given and given.get("schema", self._defaults.schema) is not None:
            _refuse("bad_stop", "stop has no meaning for a job with a schema, which ends where its JSON ends")

    def _messages(self, given: Mapping[str, Any]) -> tuple[Message, ...]:
        system = given.get("system")
        turns = _turns(given["messages"]) if "messages" in given else (Message("user", given["prompt"]),)
        has_system = turns[0].role == "system"
        if has_system and system is not None:
            _refuse("bad_prompt", "system is given beside messages that begin with a system turn; expected one of them")
        system = self._defaults.system if system is None and not has_system else system
        return (Message("system", system), *turns) if system else turns

    def _document(self, given: Mapping[str, Any]) -> str | None:
        if "document_file" not in given:
            document = given.get("document")
            return None if document is None else str(document)
        name: str = given["document_file"]
        try:
            path = Path(self._base, name)
            if not stat.S_ISREG(path.stat().st_mode):  # a device or a pipe could be read for ever
                _refuse("document_unreadable", f"document_file {_named(name)} is not a regular file")
            return path.read_bytes().decode("utf-8-sig")
        except UnicodeDecodeError as error:
            _refuse("document_unreadable", f"document_file {_named(name)} is not UTF-8 at byte {error.start}")
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            _refuse("document_unreadable", f"document_file {_named(name)}: {reason}")


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line.  Raises JobError with the column where it breaks."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(line[: error.start].decode("utf-8")) + 1
        _refuse("bad_encoding", f"byte 0x{line[error.start]:02x} is not UTF-8; expected UTF-8 text", column)
    try:
        record = json.loads(text, object_pairs_hook=_object, parse_constant=_no_constant)
        if not isinstance(record, dict):
            _refuse("bad_json", f"expected a JSON object, found {kind_of(record)}", 1)
        if is_too_deep(record):
            _refuse("bad_json", f"nested more than {MOST_NESTED} levels deep")
        json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        _refuse("bad_json", f"{error.msg}; expected one JSON object on the line", error.colno)
    except UnicodeEncodeError:
        _refuse("bad_encoding", r"a string holds half a surrogate pair (\ud800 to \udfff); expected whole characters")
    except RecursionError:
        _refuse("bad_json", f"nested more than {MOST_NESTED} levels deep")
    except ValueError as error:
        _refuse("bad_json", _plain(str(error)))
    return record


def rejection(line: bytes, number: int, job_id: str, problem: Problem, meta: Any) -> Rejection:
    """A line turned away.  Its digest covers the reason: once the reason is gone, the line is another job."""
    shape = b"\0".join((b"rejected", line, problem.code.encode(), problem.message.encode()))
    placed = Problem(problem.code, problem.message, number, problem.column, problem.path)
    return Rejection(number, job_id, placed, hashlib.sha256(shape).hexdigest(), meta)


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"key {_named(twice)} stands twice in one object")
    return record


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; expected a number")


def _check_field(key: str, value: Any) -> None:
    rule = FIELDS.get(key)
    if rule is None:
        near = difflib.get_close_matches(key, FIELDS, n=1, cutoff=0.5)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(FIELDS)}"
        _refuse("unknown_key", f"unknown key {_named(key)}; {hint} (extra data goes into 'meta')")
    if not rule.holds(value):
        _refuse("bad_value", f"{key} is {_shown(value)}; expected {rule.expected}")


def _turns(messages: list[Any]) -> tuple[Message, ...]:
    turns = []
    for place, message in enumerate(messages):
        where = f"messages[{place}]"
        if not isinstance(message, dict) or set(message) != {"role", "content"}:
            _refuse("bad_prompt", f"{where} is {_shown(message)}; expected an object with role and content")
        if message["role"] not in ROLES:
            _refuse("bad_prompt", f"{where}.role is {_shown(message['role'])}; expected one of {', '.join(ROLES)}")
        if not isinstance(message["content"], str):
            _refuse("bad_prompt", f"{where}.content is {_shown(message['content'])}; expected a string")
        turns.append(Message(message["role"], message["content"]))
    if turns[-1].role != "user":
        _refuse("bad_prompt", f"the last message is by {turns[-1].role}; expected one by user, for the model to answer")
    return tuple(turns)


def _plain(reason: str) -> str:
    """A reason in words for people who do not write Python."""
    if "integer string conversion" in reason:
        return "a whole number has more than 4300 digits"
    return "a number is beyond what JSON readers hold" if "not JSON compliant" in reason else reason


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def _named(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")


def _refuse(code: str, message: str, column: int | None = None) -> NoReturn:
    raise JobError(Problem(code, message, column=column))
