"""The `init` command: looks data over, infers a schema, writes both files, and says what comes next."""

import contextlib
import json
import os
import re
import shlex
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from batchrun.config import resolve
from batchrun.draft.columns import Chosen, Seen, choose, look_over, looks_like_data, refuse_bad, text_of
from batchrun.draft.data import FILE, TEXT, Data, Record, data
from batchrun.draft.example import examples
from batchrun.draft.schema import Inferred, infer
from batchrun.errors import InputError, JobError, OutputError, UsageError
from batchrun.places import Places as RunPlaces
from batchrun.places import stats_beside
from batchrun.printable import printable
from batchrun.schemas import checked, compact

ENDINGS = (".gz", ".jsonl", ".csv", ".tsv", ".jobs")
JOB_KEYS = frozenset({"prompt", "messages"})
BUDGET_STEP, LEAST_BUDGET, MOST_BUDGET, BUDGET_TIMES = 64, 128, 4096, 1.5
BAD_SHOWN = 10


@dataclass(frozen=True, slots=True)
class Wish:
    """What `init` was asked for."""

    source: str
    example: tuple[str, ...]
    output: Path | None = None
    text_columns: tuple[str, ...] = ()
    id_column: str | None = None
    prompt: str | None = None
    max_tokens: int | None = None
    kind: str | None = None
    encoding: str | None = None
    skip_bad: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class Places:
    """Where both files go, and the schema's name in the jobs."""

    jobs: Path
    schema: Path
    name: str

    @property
    def results(self) -> Path:
        return self.jobs.with_name(f"{self.jobs.name.removesuffix('.jsonl').removesuffix('.jobs')}.results.jsonl")

    @property
    def own(self) -> frozenset[Path]:
        """What is written here and by runs of the jobs, as printed or without -o: no texts, though among them."""
        default = self.jobs.with_name(f"{self.jobs.stem}.results.jsonl")
        runs = [RunPlaces(each, None, False, stats_beside(each)) for each in (self.results, default)]
        return frozenset({self.jobs.resolve(), self.schema.resolve()}.union(*(run.own for run in runs)))


@dataclass(slots=True)
class Written:
    """Counts the jobs as they are written.  `empty`: those without a text."""

    jobs: int = 0
    empty: int = 0


def init(wish: Wish) -> list[str]:
    """Writes the job file and the schema, and gives the command that runs them.

    Raises UsageError, InputError, OutputError; what was there is then untouched.
    """
    if not is_utf8(wish.prompt or ""):
        raise UsageError("--prompt is not UTF-8; expected UTF-8 text")
    shown = examples(wish.example)
    source = data(wish.source, wish.kind, wish.encoding)
    places = _places(wish, source)
    source = replace(source, without=places.own)
    inferred = infer(shown)
    _check(places.name, inferred)
    seen = look_over(source.records(), None if source.documents else wish.id_column)
    chosen = _chosen(wish, source, seen)
    prompt = wish.prompt or default_prompt(inferred.schema)
    budget = wish.max_tokens or default_budget(shown)
    same = {"prompt": prompt, "schema": places.name, "max_tokens": budget}
    written = Written()
    jobs = (same | job for job in _jobs(source, chosen, places.jobs.parent, written))
    schema = json.dumps(inferred.schema, indent=2, ensure_ascii=False) + "\n"
    lines = (json.dumps(job, ensure_ascii=False) + "\n" for job in jobs)
    _write({places.schema: iter([schema]), places.jobs: lines})
    for text in _told(source, seen, chosen, places, inferred, written):
        print(f"batchrun: {printable(text)}", file=sys.stderr)
    if wish.max_tokens is None and budget == MOST_BUDGET:
        print(f"batchrun: an answer may take {budget} tokens; --max-tokens gives it more", file=sys.stderr)
    return ["batchrun", "run", str(places.jobs), "-o", str(places.results), *_schemas_flag(places)]


def default_prompt(schema: dict[str, Any]) -> str:
    """What the fields are, and what stands where the text says nothing."""
    properties = schema["properties"]
    kinds = [str(part.get("type", "")) for part in properties.values()]
    empty = []
    if any("string" in kind for kind in kinds):
        empty.append('an empty string ("")')
    if "array" in kinds:
        empty.append("an empty list ([])")
    unknown = f" Where the text does not say, give {' or '.join(empty)}." if empty else ""
    return f"Read the text and answer with one JSON object that has the keys {_joined(properties, 'and')}.{unknown}"


def default_budget(shown: list[dict[str, Any]]) -> int:
    """Tokens for an answer: about four times what the longest example takes, so few answers need closing."""
    characters = max(len(json.dumps(example, ensure_ascii=False)) for example in shown)
    tokens = -(-int(BUDGET_STEP + BUDGET_TIMES * characters) // BUDGET_STEP) * BUDGET_STEP
    return min(max(LEAST_BUDGET, tokens), MOST_BUDGET)


def is_utf8(text: str) -> bool:
    """Not so where the bytes of an argument or of a file's name were no UTF-8."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _chosen(wish: Wish, source: Data, seen: Seen) -> Chosen:
    if not seen.rows:
        raise InputError(f"{source.name} holds no {'texts' if source.documents else 'rows'}; expected one at least")
    if not wish.skip_bad:
        refuse_bad(seen, source.name, wish.encoding)
    if len(seen.bad) == seen.rows:
        raise InputError(f"{source.name}: nothing in it can be read; {seen.bad[0].fault}")
    if source.documents:
        if wish.text_columns or wish.id_column:
            raise UsageError("a folder of texts has no columns; expected no --text-column or --id-column")
        return Chosen((TEXT,), FILE, guessed=False)
    if source.kind == "jsonl" and not wish.text_columns and JOB_KEYS & seen.columns.keys():
        raise UsageError(f"{source.name} holds job lines already; run them: batchrun run {shlex.quote(source.name)}")
    return choose(seen, wish.text_columns, wish.id_column, source.name)


def _jobs(source: Data, chosen: Chosen, folder: Path, written: Written) -> Iterator[dict[str, Any]]:
    for record in source.records():
        if not record.problem:
            written.jobs += 1
            written.empty += not any(text_of(record.values.get(name)).strip() for name in chosen.texts)
            yield _document(record, source, folder) if source.documents else _row(record, chosen)


def _row(record: Record, chosen: Chosen) -> dict[str, Any]:
    values = record.values
    named = len(chosen.texts) > 1
    texts = [(f"{name}: " if named else "") + text_of(values.get(name)) for name in chosen.texts]
    meta = {name: value for name, value in values.items() if name != chosen.id and name not in chosen.texts}
    job = {"id": text_of(values.get(chosen.id)) if chosen.id else str(record.line), "document": "\n".join(texts)}
    return {**job, "meta": meta} if meta else job


def _document(record: Record, source: Data, folder: Path) -> dict[str, Any]:
    """A text below the job file's folder is read from there at each run; others are put into the job file."""
    home, file = folder.resolve(), Path(record.values[FILE]).resolve()
    if source.encoding is None and file.is_relative_to(home) and is_utf8(str(file)):
        return {"id": record.values[FILE], "document_file": file.relative_to(home).as_posix()}
    return {"id": record.values[FILE], "document": record.values[TEXT]}


def _places(wish: Wish, source: Data) -> Places:
    """Raises UsageError where something is in the way."""
    name = (wish.output or source.path.resolve()).name
    if wish.output is None and source.documents:
        name = source.documents.folder.resolve().name
    for ending in ENDINGS:
        name = name.removesuffix(ending)
    name = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"
    jobs = wish.output or Path(f"{name}.jobs.jsonl")
    if jobs.suffix != ".jsonl":
        raise UsageError(f"-o {jobs} is no job file; expected a name that ends in .jsonl")
    schema = jobs.parent / "schemas" / f"{name}.json"
    in_the_way = [str(path) for path in (jobs, schema) if os.path.lexists(path)]
    if in_the_way and not wish.force:
        verb = "is" if len(in_the_way) == 1 else "are"
        raise UsageError(f"{' and '.join(in_the_way)} {verb} there already; expected another -o, or --force")
    if jobs.is_dir() or jobs.resolve() == source.path.resolve():
        raise UsageError(f"-o {jobs} is what is read; expected another name")
    other = Path("schemas", f"{name}.json")
    if other.is_file() and not (schema.exists() and other.samefile(schema)):
        raise UsageError(f"{other} here would be taken for the schema of these jobs; expected another -o")
    return Places(jobs, schema, name)


def _check(name: str, inferred: Inferred) -> None:
    try:
        checked(name, compact(name, inferred.schema))
    except JobError as error:
        raise UsageError(f"--example: {error}") from error


def _write(files: Mapping[Path, Iterator[str]]) -> None:
    """Writes all files or none: each of them aside, and once all are whole they are put in place."""
    unfinished = {path: path.with_name(f".{path.name}.{os.getpid()}.part") for path in files}
    try:
        for path, lines in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with unfinished[path].open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
        for path in files:
            os.replace(unfinished[path], path)
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
    finally:
        for each in unfinished.values():
            with contextlib.suppress(OSError):
                each.unlink()


def _schemas_flag(places: Places) -> list[str]:
    """What a run needs to find the schema where the settings have it look in another folder only."""
    try:
        asked = resolve({}, os.environ, None).schemas
    except UsageError:
        return []  # which the run will say
    folder = places.schema.parent
    return ["--schemas", str(folder)] if asked and Path(asked).resolve() != folder.resolve() else []


def _told(
    source: Data, seen: Seen, chosen: Chosen, places: Places, inferred: Inferred, written: Written
) -> Iterator[str]:
    what = "texts" if source.documents else "rows"
    yield f"{source.name}: {seen.rows} {what} -> {places.jobs}: {written.jobs} jobs"
    if written.empty:
        yield f"without a text, though they are jobs: {written.empty}"
    if seen.bad:
        shown = ", ".join(record.file or str(record.line) for record in seen.bad[:BAD_SHOWN])
        more = " ..." if len(seen.bad) > BAD_SHOWN else ""
        yield f"left out, as they cannot be read: {len(seen.bad)} ({'' if source.documents else 'line '}{shown}{more})"
    if source.kind in ("csv", "tsv") and (name := looks_like_data(seen.columns)):
        yield f"the first line has the names of the columns, and {name[:40]!r} is an odd one; is it a row of data?"
    if not source.documents:
        guess = " (the longest; --text-column names another)" if chosen.guessed else ""
        ids = f"column {chosen.id!r}" if chosen.id else "line numbers"
        yield f"the text is column {_joined(map(repr, chosen.texts), 'and')}{guess}; ids are {ids}"
    yield f"schema {places.name} -> {places.schema}: {_fields(inferred.schema)}"
    yield from inferred.notes
    bounds = [word for word in ("maxLength", "maxItems") if word in json.dumps(inferred.schema)]
    if bounds:
        yield f"how long texts and lists may be is taken from the example: see {_joined(bounds, 'and')} in the schema"


def _fields(schema: dict[str, Any]) -> str:
    parts = []
    for name, part in schema["properties"].items():
        choices = [text_of(value) or "null" for value in part.get("enum", ())]
        parts.append(f"{name} ({_joined(choices, 'or')})" if choices else name)
    return ", ".join(parts)


def _joined(names: Any, word: str) -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
