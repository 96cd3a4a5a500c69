"""Results as a table: a column for each key of the answers, and one for each key of their meta.

The columns are known when all results are, so the table is made from lines on disk, in two passes: nothing is held but
the names.
"""

import csv
import io
import json
from collections.abc import Iterable, Iterator
from typing import Any

from batchrun.results import as_json

MOST_COLUMNS = 500
"""Answers with more keys than that are no table: they stand in one column, as JSON."""

FIXED = ("id", "status", "errors")


def header(lines: Iterable[bytes]) -> "Columns":
    """The columns of some results."""
    output: dict[str, None] = {}
    meta: dict[str, None] = {}
    has_other = False
    for line in lines:
        record = json.loads(line)
        if isinstance(record["output"], dict):
            output.update(dict.fromkeys(record["output"]))
        else:
            has_other = has_other or record["output"] is not None
        if isinstance(record["meta"], dict):
            meta.update(dict.fromkeys(record["meta"]))
        elif record["meta"] is not None:
            meta.setdefault("meta")
    if len(output) > MOST_COLUMNS:
        output, has_other = {}, True
    return Columns(tuple(output), has_other, tuple(meta)[:MOST_COLUMNS])


class Columns:
    """Columns of a table.  `other`: whether there are answers that are no objects."""

    def __init__(self, output: tuple[str, ...], other: bool, meta: tuple[str, ...]) -> None:
        self._output = output
        self._whole = other or not output
        self._meta = meta

    def rows(self, lines: Iterable[bytes]) -> Iterator[bytes]:
        """The table, its header first, line by line."""
        buffer = io.StringIO()
        writer = csv.writer(buffer, lineterminator="\n")
        for cells in self._cells(lines):
            writer.writerow(cells)
            yield buffer.getvalue().encode()
            buffer.seek(0)
            buffer.truncate()

    def _cells(self, lines: Iterable[bytes]) -> Iterator[list[str]]:
        yield self._names()
        for line in lines:
            record = json.loads(line)
            output, meta = record["output"], record["meta"]
            is_object = isinstance(output, dict)
            errors = "; ".join(str(error.get("message", "")) for error in record["errors"])
            cells = [record["id"], record["status"], errors]
            cells += [_cell(output.get(name)) if is_object else "" for name in self._output]
            cells += [_cell(output) if not (is_object and self._output) else ""] if self._whole else []
            cells += [_meta_cell(meta, name) for name in self._meta]
            yield cells

    def _names(self) -> list[str]:
        """Names of answers' keys as they are, others behind `output.` or `meta.` where they would stand twice."""
        taken = set(FIXED) | {"output"}
        names = [*FIXED]
        for kind, keys in (("output", self._output), ("meta", self._meta)):
            if kind == "meta" and self._whole:
                names.append("output")
            for key in keys:
                name = f"{kind}.{key}" if key in taken else key
                taken.add(name)
                names.append(name)
        return names


def _meta_cell(meta: Any, name: str) -> str:
    """A meta that is no object stands in the column of that name alone."""
    if isinstance(meta, dict):
        return _cell(meta.get(name))
    return _cell(meta) if name == "meta" else ""


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else as_json(value)
