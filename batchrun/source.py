"""Where job lines come from: a file, or a stream whose writer may be slow.

Lines end at byte 0x0A only; a carriage return before it and a byte-order mark at the very beginning are dropped, and
blank lines are skipped and counted.  Nothing here knows what a line means.
"""

import heapq
import io
import queue
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, NamedTuple, Protocol

from batchrun.errors import InputError

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
READ_AHEAD_LINES = 1024
LONGEST_KEPT = 64


class Line(NamedTuple):
    """One line and its number, from 1."""

    number: int
    data: bytes


class Source(Protocol):
    """Lines, one at a time."""

    total: int | None  # non-blank lines, where it is known
    blank: int

    def next(self, wait_s: float) -> Line | None:
        """The next line, or None if there is none now: `ended` says whether there ever will be."""
        ...

    @property
    def ended(self) -> bool: ...


class FileSource:
    """The lines of a regular file."""

    def __init__(self, path: Path, total: int | None = None) -> None:
        self.total = total
        self.blank = 0
        self.ended = False
        try:
            self._file = path.open("rb")
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        self._lines = self._read()

    def next(self, wait_s: float) -> Line | None:
        try:
            line = next(self._lines, None)
        except OSError as error:
            raise _unreadable(error) from error
        if line is None:
            self.ended = True
            self._file.close()
        return line

    def _read(self) -> Iterator[Line]:
        for number, data in enumerate(self._file, 1):
            if stripped := strip(data, number):
                yield Line(number, stripped)
            else:
                self.blank += 1


class StreamSource:
    """The lines of a stream, read ahead by a thread so that a slow writer never stops the rows that run."""

    total: int | None = None

    def __init__(self, stream: IO[bytes] | Path) -> None:
        """`stream`: open already, or a path such as that of a named pipe, whose opening may have to wait too."""
        self.blank = 0
        self.ended = False
        self._error: OSError | None = None
        self._lines: queue.Queue[Line | None] = queue.Queue(READ_AHEAD_LINES)
        threading.Thread(target=self._read, args=(stream,), name="read-ahead", daemon=True).start()

    def next(self, wait_s: float) -> Line | None:
        if self.ended:
            return None
        try:
            line = self._lines.get(block=wait_s > 0, timeout=wait_s or None)
        except queue.Empty:
            return None
        self.ended = line is None
        if self.ended and self._error:
            raise _unreadable(self._error)
        return line

    def _read(self, stream: IO[bytes] | Path) -> None:
        try:
            for number, data in enumerate(_own_reader(stream), 1):
                if stripped := strip(data, number):
                    self._lines.put(Line(number, stripped))
                else:
                    self.blank += 1
        except OSError as error:
            self._error = error
        finally:
            self._lines.put(None)


def _own_reader(stream: IO[bytes] | Path) -> Iterable[bytes]:
    """The same descriptor through a buffer that only this thread knows.

    The interpreter cannot end while a thread is blocked in the buffer of `sys.stdin`: it would abort.
    """
    if isinstance(stream, Path):
        return stream.open("rb")
    try:
        return open(stream.fileno(), "rb", closefd=False)
    except (AttributeError, io.UnsupportedOperation):
        return stream


def _unreadable(error: OSError) -> InputError:
    return InputError(f"the input could not be read to its end: {error.strerror}; results so far are kept")


def strip(data: bytes, number: int) -> bytes:
    """A line without its end, and without the byte-order mark that a first line may carry."""
    if number == 1:
        data = data.removeprefix(BYTE_ORDER_MARK)
    data = data.removesuffix(b"\n").removesuffix(b"\r")
    return data if data.strip() else b""


@dataclass(slots=True)
class Survey:
    """What one quick pass over a file found.

    `longest`: the weightiest lines, worth tokenizing to size the slots; `max_tokens`: the largest budget on any line.
    """

    lines: int = 0
    budgets: int = 0  # lines that state one
    max_tokens: int = 0
    longest: list[Line] = field(default_factory=list)


_BUDGET = re.compile(rb'"max_tokens"\s*:\s*(\d{1,9})')


def survey(lines: Iterable[bytes], weigh: Callable[[bytes], int] = len) -> Survey:
    """Counts lines and finds the longest.  `weigh`: bytes that a line stands for."""
    found = Survey()
    heap: list[tuple[int, int, bytes]] = []
    for number, data in enumerate(lines, 1):
        line = strip(data, number)
        if not line:
            continue
        found.lines += 1
        budgets = [int(budget) for budget in _BUDGET.findall(line)]
        found.budgets += bool(budgets)
        found.max_tokens = max(found.max_tokens, *budgets, 0)
        weight = weigh(line)
        if len(heap) < LONGEST_KEPT:
            heapq.heappush(heap, (weight, number, line))
        elif weight > heap[0][0]:
            heapq.heapreplace(heap, (weight, number, line))
    found.longest = [Line(number, line) for _, number, line in heap]
    return found
