"""Where job lines come from: files, streams whose writers may be slow, and several of them one after another.

Nothing here knows what a line means: `lines.py` and `tables.py` cut the bytes, `jobs.py` reads the records.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Protocol

from batchrun.blocks import UNPACKING_ERRORS, file_blocks, stream_blocks, unreadable
from batchrun.errors import InputError
from batchrun.line import HERE, Line, Origin
from batchrun.lines import LINE_BYTES, LineReader
from batchrun.tables import NUMBERS, TAB, TableReader

READ_AHEAD_LINES = 1024
READ_AHEAD_BYTES = 64 << 20

KINDS = ("jsonl", "csv", "tsv")


class Source(Protocol):
    """Lines, one at a time."""

    total: int | None  # non-blank lines, where it is known

    @property
    def blank(self) -> int:
        """Lines of nothing but space, so far."""
        ...

    def next(self, wait_s: float) -> Line | None:
        """The next line, or None if there is none now: `ended` says whether there ever will be."""
        ...

    @property
    def ended(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Reading:
    """How bytes become lines.  `kind`: one of KINDS, or None to go by the file's name; `needs`: columns that a table
    has to have; `numbers`: those whose cells become numbers."""

    kind: str | None = None
    line_bytes: int = LINE_BYTES
    needs: frozenset[str] = frozenset()
    numbers: Sequence[str] = NUMBERS

    def kind_of(self, path: Path | None) -> str:
        ending = path.name.lower().removesuffix(".gz").rpartition(".")[2] if path else ""
        return self.kind or (ending if ending in KINDS else "jsonl")

    def is_table(self, path: Path | None) -> bool:
        return self.kind_of(path) != "jsonl"

    def reader(self, blocks: Iterable[bytes], path: Path | None, origin: Origin = HERE) -> LineReader:
        kind = self.kind_of(path)
        if kind == "jsonl":
            return LineReader(blocks, origin, self.line_bytes)
        delimiter = TAB if kind == "tsv" else ","
        shown = str(path or "the table")
        return TableReader(
            blocks, origin, self.line_bytes, delimiter=delimiter, needs=self.needs, shown=shown, numbers=self.numbers
        )


PLAIN = Reading()


class FileSource:
    """The lines of a regular file.  Raises InputError where it cannot be opened, or not be read to its end."""

    def __init__(
        self, path: Path, total: int | None = None, *, reading: Reading = PLAIN, origin: Origin | None = None
    ) -> None:
        self.total = total
        self.ended = False
        self._reader = reading.reader(file_blocks(path), path, origin or Origin(base=path.parent, root=path.parent))
        self._lines = iter(self._reader)

    @property
    def blank(self) -> int:
        return self._reader.blank

    @property
    def lines(self) -> int:
        return self._reader.lines

    def next(self, wait_s: float) -> Line | None:
        line = next(self._lines, None)
        self.ended = line is None
        return line


class StreamSource:
    """The lines of a stream, read ahead by a thread so that a slow writer never stops the rows that run.

    It reads ahead so many lines and bytes, and then waits: a fast writer fills no memory.
    """

    total: int | None = None

    def __init__(
        self,
        stream: IO[bytes] | Path | Iterable[bytes],
        *,
        reading: Reading = PLAIN,
        origin: Origin = HERE,
        path: Path | None = None,
    ) -> None:
        """`stream`: open already, or a path such as that of a named pipe, whose opening may have to wait too."""
        self.ended = False
        self._reader = reading.reader(stream_blocks(stream), path, origin)
        self._lines: deque[Line] = deque()
        self._bytes = 0
        self._drained = False  # the reader has ended
        self._error: Exception | None = None
        self._changed = threading.Condition()
        threading.Thread(target=self._read, name="read-ahead", daemon=True).start()

    @property
    def blank(self) -> int:
        return self._reader.blank

    @property
    def lines(self) -> int:
        return self._reader.lines

    def next(self, wait_s: float) -> Line | None:
        with self._changed:
            if wait_s and not self._lines and not self._drained:
                self._changed.wait(wait_s)
            if self._lines:
                line = self._lines.popleft()
                self._bytes -= len(line.data)
                self._changed.notify()
                return line
            self.ended = self._drained
        if self.ended and self._error:
            error, self._error = self._error, None
            raise error if isinstance(error, InputError) else unreadable("the input", error)
        return None

    def _read(self) -> None:
        try:
            for line in self._reader:
                self._offer(line)
        except (*UNPACKING_ERRORS, InputError, MemoryError) as error:
            self._error = error
        finally:
            with self._changed:
                self._drained = True
                self._changed.notify()

    def _offer(self, line: Line) -> None:
        with self._changed:
            while len(self._lines) >= READ_AHEAD_LINES or self._bytes > READ_AHEAD_BYTES:
                self._changed.wait()
            self._lines.append(line)
            self._bytes += len(line.data)
            self._changed.notify()


Opener = Callable[[int], FileSource | StreamSource]
"""Opens an input; told how many lines the inputs before it had."""


class ChainedSource:
    """Several inputs, one after another, each opened when it is its turn."""

    def __init__(self, openers: Sequence[Opener], total: int | None = None) -> None:
        self.total = total
        self._openers = iter(openers)
        self._lines_before = 0
        self._blank_before = 0
        self._now: FileSource | StreamSource | None = self._opened()

    @property
    def blank(self) -> int:
        return self._blank_before + (self._now.blank if self._now else 0)

    @property
    def ended(self) -> bool:
        return self._now is None

    def next(self, wait_s: float) -> Line | None:
        while self._now:
            line = self._now.next(wait_s)
            if line or not self._now.ended:
                return line
            self._blank_before += self._now.blank
            self._lines_before += self._now.lines
            self._now = self._opened()
        return None

    def _opened(self) -> FileSource | StreamSource | None:
        opener = next(self._openers, None)
        return opener(self._lines_before) if opener else None


def all_lines(source: Source) -> Iterator[Line]:
    """Every line of a source that is waited for to its end."""
    while not source.ended:
        line = source.next(0.2)
        if line:
            yield line
