"""What `init` tells of the data and of what it made of them: what was left out, what was guessed, what to look over."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from batchrun.draft.columns import Chosen, Seen, looks_like_data, text_of
from batchrun.draft.data import Data, Record
from batchrun.draft.places import Places
from batchrun.draft.schema import Inferred

BAD_SHOWN = 10


@dataclass(slots=True)
class Written:
    """Counts the jobs as they are written.  `empty`: those without a text, by the first of their places."""

    jobs: int = 0
    empty: int = 0
    empty_at: list[str] = field(default_factory=list)

    def take_empty(self, record: Record) -> None:
        self.empty += 1
        if self.empty <= BAD_SHOWN:
            self.empty_at.append(record.file or str(record.line))


def told(
    source: Data,
    seen: Seen,
    chosen: Chosen,
    places: Places,
    inferred: Inferred,
    written: Written,
    *,
    skip_empty: bool,
) -> Iterator[str]:
    """Lines about the data first, then about the columns, then about the schema."""
    what = "texts" if source.documents else "rows"
    yield f"{source.name}: {seen.rows} {what} -> {places.jobs}: {written.jobs} jobs"
    if seen.blank and source.kind != "jsonl":
        yield f"blank rows, passed over: {seen.blank}"
    if written.empty:
        yield _without_text(written, source, skipped=skip_empty)
    if seen.bad:
        shown = ", ".join(record.file or str(record.line) for record in seen.bad[:BAD_SHOWN])
        more = " ..." if len(seen.bad) > BAD_SHOWN else ""
        yield f"left out, as they cannot be read: {len(seen.bad)} ({'' if source.documents else 'line '}{shown}{more})"
    if source.kind in ("csv", "tsv") and (name := looks_like_data(seen.columns)):
        yield f"the first line has the names of the columns, and {name[:40]!r} is an odd one; is it a row of data?"
    if not source.documents:
        guess = " (the longest; --text-column names another)" if chosen.guessed else ""
        ids = f"column {chosen.id!r}" if chosen.id else f"line numbers{_why_no_id(seen)}"
        yield f"the text is column {joined(map(repr, chosen.texts), 'and')}{guess}; ids are {ids}"
    yield f"schema {places.name} -> {places.schema}: {_fields(inferred.schema)}"
    yield from inferred.notes
    bounds = [word for word in ("maxLength", "maxItems") if word in json.dumps(inferred.schema)]
    if bounds:
        yield f"how long texts and lists may be is taken from the example: see {joined(bounds, 'and')} in the schema"


def _without_text(written: Written, source: Data, *, skipped: bool) -> str:
    """`3 rows have no text: lines 4, 5 and 6; --skip-bad leaves them out`."""
    one = written.empty == 1
    what = ("text is" if one else "texts are") if source.documents else ("row has" if one else "rows have")
    lines = "" if source.documents else "line " if one else "lines "
    rest = written.empty - len(written.empty_at)
    where = joined([*written.empty_at, *([f"{rest} more"] if rest else [])], "and")
    them = "it" if one else "them"
    end = "left out" if skipped else f"--skip-bad leaves {them} out"
    return f"{written.empty} {what} {'empty' if source.documents else 'no text'}: {lines}{where}; {end}"


def _why_no_id(seen: Seen) -> str:
    """Of the column that looked like one that names rows."""
    return next((f", as column {name!r} {found.fault}" for name, found in seen.ids.items() if found.fault), "")


def _fields(schema: dict[str, Any]) -> str:
    parts = []
    for name, part in schema["properties"].items():
        choices = [text_of(value) or "null" for value in part.get("enum", ())]
        parts.append(f"{name} ({joined(choices, 'or')})" if choices else name)
    return ", ".join(parts)


def joined(names: Any, word: str) -> str:
    *first, last = names
    return f"{', '.join(first)} {word} {last}" if first else last
