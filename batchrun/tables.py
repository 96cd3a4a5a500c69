"""Cuts CSV and TSV into records, each of which goes on as a line of JSON: column names are its keys.

A quoted cell may span lines (RFC 4180).  A quote that is opened and never closed would swallow all that follows it, so
where a record turns out wrong only its first line is turned away, and the lines after it are read again.  What was read
again twice is then read line by line: so no file takes longer than three times its length.
"""

import csv
import difflib
import json
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from batchrun.core import Problem
from batchrun.errors import InputError
from batchrun.line import HERE, Line, Origin
from batchrun.lines import LINE_BYTES, LineReader, LongLine, Splitter

NUMBERS = ("max_tokens", "temperature", "top_p", "top_k", "min_p", "seed", "timeout_s")
"""Keys of a job whose cells are numbers; all other cells are text."""

MOST_TRIES = 2
TAB = "\t"


@dataclass(slots=True)
class _Row:
    """A line of the file.  `tries`: how often it was read and given back."""

    number: int
    data: bytes | LongLine
    tries: int = 0


class _Unfinished(Exception):
    """A record asks for more lines than it may have."""


class _Rows:
    """The lines of a table as `csv.reader` wants them, with a memory of those that the present record took."""

    def __init__(self, rows: Iterator[_Row], most_bytes: int) -> None:
        self.taken: list[_Row] = []
        self._rows = rows
        self._again: deque[_Row] = deque()
        self._most_bytes = most_bytes
        self._size = 0

    def begin(self) -> None:
        self.taken, self._size = [], 0

    def give_back(self) -> _Row:
        """Gives all but the first line of the record back.  Gives that."""
        first, *others = self.taken
        for row in others:
            row.tries += 1
        self._again.extendleft(reversed(others))
        return first

    def __iter__(self) -> "_Rows":
        return self

    def __next__(self) -> str:
        if self.taken and (self.taken[0].tries >= MOST_TRIES or self._size > self._most_bytes):
            raise _Unfinished
        row = self._again.popleft() if self._again else next(self._rows)
        self.taken.append(row)
        if isinstance(row.data, LongLine):
            raise _Unfinished
        self._size += len(row.data)
        return row.data.decode(errors="surrogateescape") + "\n"


class TableReader(LineReader):
    """The records of one table.  `needs`: columns that have to be there; `shown`: its name, for messages; `numbers`:
    columns whose cells become numbers.

    Raises InputError where the first line is no usable header.
    """

    def __init__(
        self,
        blocks: Iterable[bytes],
        origin: Origin = HERE,
        most_bytes: int = LINE_BYTES,
        *,
        delimiter: str = ",",
        needs: frozenset[str] = frozenset(),
        shown: str = "the table",
        numbers: Sequence[str] = NUMBERS,
    ) -> None:
        super().__init__(blocks, origin, most_bytes)
        csv.field_size_limit(1 << 30)  # the csv module's own limit, 128 KiB a cell, is for all of the process
        self._delimiter = delimiter
        self._needs = needs
        self._shown = shown
        self._numbers = numbers

    def batches(self) -> Iterator[list[Line]]:
        for line in self._records():
            yield [line]

    def raw_batches(self) -> "Iterator[list[bytes | LongLine]]":
        raise AssertionError("the records of a table are not its lines")

    def _rows(self) -> Iterator[_Row]:
        splitter = Splitter(self._most_bytes)
        for block in self._blocks:
            yield from self._numbered_rows(splitter.feed(block))
        yield from self._numbered_rows(splitter.end())

    def _numbered_rows(self, raw: list[bytes | LongLine]) -> Iterator[_Row]:
        first = self.lines + 1
        for number, data in enumerate(self._counted(raw), first):
            yield _Row(number, data)

    def _records(self) -> Iterator[Line]:
        lines = self._rows()
        header = next((row for row in lines if isinstance(row.data, LongLine) or row.data.strip()), None)
        if header is None:
            return
        columns, delimiter = self._columns(header)
        rows = _Rows(lines, self._most_bytes)
        reader = csv.reader(rows, delimiter=delimiter, strict=True)
        while True:
            rows.begin()
            try:
                cells = next(reader)
            except StopIteration:
                return
            except (csv.Error, _Unfinished) as error:
                yield self._bad(rows.give_back(), error)
                continue
            line = self._line(columns, cells, rows.taken[0])
            if line:
                yield line

    def _columns(self, header: _Row) -> tuple[list[str], str]:
        where = f"{self._shown}: its first line"
        try:
            text = "" if isinstance(header.data, LongLine) else header.data.decode()
            delimiter = ";" if self._delimiter == "," and "," not in text and ";" in text else self._delimiter
            cells = next(csv.reader([text], delimiter=delimiter, strict=True), [])
        except (UnicodeDecodeError, csv.Error) as error:
            raise InputError(f"{where} is no header of columns: {error}; expected UTF-8 text") from error
        columns = [cell.strip() or f"column_{place}" for place, cell in enumerate(cells, 1)]
        twice = next((name for name, count in Counter(columns).items() if count > 1), None)
        if twice is not None or not columns:
            raise InputError(f"{where} names column {twice!r} twice; expected a name of its own for each column")
        missing = next((name for name in sorted(self._needs) if name not in columns), None)
        if missing is not None:
            near = difflib.get_close_matches(missing, columns, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(columns[:20])}"
            raise InputError(f"{where} has no column {missing!r}; {hint}")
        return columns, delimiter

    def _line(self, columns: list[str], cells: list[str], row: _Row) -> Line | None:
        """A record as a line of JSON; None where it is blank."""
        if not any(cell.strip() for cell in cells):
            self.blank += 1
            return None
        if len(cells) != len(columns):
            message = f"the row has {len(cells)} cells; expected {len(columns)}, as many as the header"
            return self._refused(row, Problem("bad_row", message))
        values = zip(columns, cells, strict=True)
        record = {name: _number(cell) if name in self._numbers else cell for name, cell in values}
        try:
            return Line(row.number, json.dumps(record, ensure_ascii=False).encode(), self.origin)
        except UnicodeEncodeError:
            return self._refused(row, Problem("bad_encoding", "the row is not UTF-8; expected UTF-8 text"))

    def _bad(self, row: _Row, error: Exception) -> Line:
        if isinstance(row.data, LongLine):
            return self._refused(row, self._too_long(row.data))
        reason = "a quote is opened and not closed" if isinstance(error, _Unfinished) else _plain(str(error))
        return self._refused(row, Problem("bad_row", f"{reason}; expected cells as RFC 4180 writes them"))

    def _refused(self, row: _Row, problem: Problem) -> Line:
        data = row.data.data if isinstance(row.data, LongLine) else row.data
        return Line(row.number, data, self.origin, problem)


def _number(cell: str) -> float | str | None:
    """The number that a cell holds; text that is none is left for the check to refuse, and nothing is absent."""
    text = cell.strip()
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return cell


def _plain(reason: str) -> str:
    if "unexpected end of data" in reason:
        return "a quote is opened and not closed"
    return "there is text behind a closing quote" if "expected after" in reason else reason
