"""The `init` command: looks data over, infers a schema, writes both files, and gives the command that comes next."""

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
from batchrun.draft.columns import (
    Chosen,
    Seen,
    choose,
    look_over,
    refuse_bad,
    refuse_placeholder,
    text_of,
)
from batchrun.draft.data import FILE, TEXT, Data, Record, data
from batchrun.draft.example import examples
from batchrun.draft.places import Places
from batchrun.draft.schema import Inferred, infer
from batchrun.draft.telling import Written, joined, told
from batchrun.errors import InputError, JobError, OutputError, UsageError
from batchrun.printable import printable
from batchrun.schemas import checked, compact

ENDINGS = (".gz", ".jsonl", ".csv", ".tsv", ".jobs")
JOB_KEYS = frozenset({"prompt", "messages"})
BUDGET_STEP, LEAST_BUDGET, MOST_BUDGET, BUDGET_TIMES = 64, 128, 4096, 1.5


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
    records = source.records()
    seen = look_over(records, None if source.documents else wish.id_column)
    seen.blank = records.blank
    chosen = _chosen(wish, source, seen)
    refuse_placeholder(wish.prompt or "", seen.columns)
    prompt = wish.prompt or default_prompt(inferred.schema)
    budget = wish.max_tokens or default_budget(shown)
    same = {"prompt": prompt, "schema": places.name, "max_tokens": budget}
    written = Written()
    jobs = (same | job for job in _jobs(source, chosen, places.jobs.parent, written, skip_empty=wish.skip_bad))
    schema = json.dumps(inferred.schema, indent=2, ensure_ascii=False) + "\n"
    lines = (json.dumps(job, ensure_ascii=False) + "\n" for job in jobs)
    _write({places.schema: iter([schema]), places.jobs: lines})
    for text in told(source, seen, chosen, places, inferred, written, skip_empty=wish.skip_bad):
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
    keys = f"key{'s' if len(properties) > 1 else ''} {joined(properties, 'and')}"
    return f"Read the text and answer with one JSON object that has the {keys}.{unknown}"


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


def _jobs(
    source: Data, chosen: Chosen, folder: Path, written: Written, *, skip_empty: bool
) -> Iterator[dict[str, Any]]:
    """Raises InputError where none is left."""
    for record in source.records():
        if record.problem:
            continue
        if not any(text_of(record.values.get(name)).strip() for name in chosen.texts):
            written.take_empty(record)
            if skip_empty:
                continue
        written.jobs += 1
        yield _document(record, source, folder) if source.documents else _row(record, chosen)
    if not written.jobs:
        raise InputError(f"{source.name}: nothing in it has a text; expected one text at least")


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
