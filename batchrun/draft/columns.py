"""Looks records over: which column is the text, which the id, and what cannot be read."""

import difflib
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from batchrun.draft.data import Record
from batchrun.errors import InputError, UsageError

ID_NAMES = frozenset({"id", "_id", "uuid", "key"})
LONGEST_NAME, MOST_WORDS = 60, 5


@dataclass(slots=True)
class Seen:
    """What all records have."""

    rows: int = 0
    blank: int = 0
    characters: Counter[str] = field(default_factory=Counter)  # of texts, by column
    columns: dict[str, None] = field(default_factory=dict)  # in their order
    bad: list[Record] = field(default_factory=list)
    ids: dict[str, "Ids"] = field(default_factory=dict)


@dataclass(slots=True)
class Ids:
    """Whether a column can name its rows.  `fault`: why not."""

    values: set[str] = field(default_factory=set)
    fault: str = ""

    def take(self, value: str, line: int) -> None:
        if self.fault:
            return
        if not value.strip():
            self.fault = f"is empty in line {line}"
        elif value in self.values:
            self.fault = f"holds {value[:40]!r} again in line {line}"
        self.values.add(value)


@dataclass(frozen=True, slots=True)
class Chosen:
    """`texts`: columns that become the document; `id`: None for line numbers; `guessed`: texts nobody asked for."""

    texts: tuple[str, ...]
    id: str | None
    guessed: bool


def look_over(records: Iterable[Record], id_column: str | None) -> Seen:
    seen = Seen()
    for record in records:
        seen.rows += 1
        if record.problem:
            seen.bad.append(record)
            continue
        for name, value in record.values.items():
            seen.columns.setdefault(name)
            if isinstance(value, str):
                seen.characters[name] += len(value)
            if name == id_column or (id_column is None and _names_rows(name)):
                before = seen.rows - len(seen.bad) - 1
                seen.ids.setdefault(name, Ids(fault=f"is missing before line {record.line}" if before else ""))
        for name, ids in seen.ids.items():
            ids.take(text_of(record.values.get(name)), record.line)
    return seen


def choose(seen: Seen, texts: Sequence[str], id_column: str | None, shown: str) -> Chosen:
    """Raises UsageError for a column that is not there, InputError where none fits."""
    for name in (*texts, *([id_column] if id_column else [])):
        if name not in seen.columns:
            near = difflib.get_close_matches(name, seen.columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(list(seen.columns)[:20])}"
            raise UsageError(f"{shown} has no column {name!r}; {hint}")
    if id_column and seen.ids[id_column].fault:
        fault = seen.ids[id_column].fault
        raise UsageError(f"--id-column {id_column!r} {fault}; expected an id of its own for each row, or line numbers")
    ids = id_column or next((name for name, found in seen.ids.items() if not found.fault), None)
    if texts:
        return Chosen(tuple(texts), ids, guessed=False)
    longest = [name for name, _ in seen.characters.most_common() if name != ids]
    if not longest or not seen.characters[longest[0]]:
        raise InputError(f"{shown} has no column of texts; expected one, such as {'text'!r}")
    return Chosen((longest[0],), ids, guessed=True)


def refuse_bad(seen: Seen, shown: str, encoding: str | None) -> None:
    """Raises InputError where a record cannot be read, with the first of them."""
    if not seen.bad:
        return
    first = seen.bad[0]
    more = f", and {len(seen.bad) - 1} more like it" if len(seen.bad) > 1 else ""
    mended = "mend it"
    if "is not UTF-8" in (first.problem or "") and encoding is None:
        mended = "give its --encoding (cp1252 is usual)"
    raise InputError(f"{shown}, {first.fault}{more}; {mended}, or leave such out with --skip-bad")


def refuse_placeholder(prompt: str, columns: Iterable[str]) -> None:
    """Raises UsageError for a column in braces: nothing would fill it in.  Other braces are text."""
    for name in columns:
        if f"{{{name}}}" in prompt:
            raise UsageError(
                f"--prompt holds {{{name}}}, which nothing fills in; expected none: "
                "the text goes behind the prompt by itself"
            )


def looks_like_data(columns: Iterable[str]) -> str | None:
    """A name that is none, where a table seems to begin with a row: a number, or a sentence."""
    for name in columns:
        if len(name) > LONGEST_NAME or len(name.split()) > MOST_WORDS or _is_number(name):
            return name
    return None


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)


def _names_rows(name: str) -> bool:
    plain = name.strip().lower()
    return plain in ID_NAMES or plain.endswith(("_id", " id", "-id"))
