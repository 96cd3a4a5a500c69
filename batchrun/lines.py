"""Cuts bytes into lines, of which none can fill the memory.

Lines end at byte 0x0A only; a carriage return before it and a byte-order mark at the very beginning are dropped, and
blank lines are skipped and counted.  A line that is too long is passed over as it comes and told.
"""

import hashlib
from collections.abc import Iterable, Iterator

from batchrun.core import Problem
from batchrun.line import HERE, Line, Origin

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
LINE_BYTES = 64 << 20
"""Longest line, unless the run says otherwise."""

HEAD_BYTES = 200  # kept of a line that is too long


class Splitter:
    """Lines from blocks of bytes, whose borders mean nothing."""

    def __init__(self, most_bytes: int = LINE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._pieces: list[bytes] = []  # of the line that has not ended yet
        self._size = 0
        self._long: LongLine | None = None

    def feed(self, block: bytes) -> "list[bytes | LongLine]":
        """The lines that end in a block, without their ends."""
        first, *rest = block.split(b"\n")
        self._grow(first)
        if not rest:
            return []
        lines: list[bytes | LongLine] = [self._taken(), *rest[:-1]]
        if max(map(len, rest)) > self._most_bytes:
            lines[1:] = [_bounded(line, self._most_bytes) for line in rest[:-1]]
        self._grow(rest[-1])
        return lines

    def end(self) -> "list[bytes | LongLine]":
        """The last line, if it had no end."""
        return [self._taken()] if self._size else []

    def _grow(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._long:
            self._long.grow(piece)
        elif self._size > self._most_bytes:
            self._long = LongLine()
            for part in (*self._pieces, piece):
                self._long.grow(part)
            self._pieces = []
        elif piece:
            self._pieces.append(piece)

    def _taken(self) -> "bytes | LongLine":
        line = self._long or b"".join(self._pieces)
        self._pieces, self._size, self._long = [], 0, None
        return line


class LongLine:
    """What is kept of a line that is too long: its beginning, its size, and a hash of all of it."""

    def __init__(self) -> None:
        self.size = 0
        self._head = b""
        self._hash = hashlib.blake2b(digest_size=16)

    def grow(self, piece: bytes) -> None:
        self._head += piece[: HEAD_BYTES - len(self._head)]
        self.size += len(piece)
        self._hash.update(piece)

    @property
    def data(self) -> bytes:
        """Bytes that tell this line from others."""
        return b"%b... %d bytes, blake2b %b" % (self._head, self.size, self._hash.hexdigest().encode())


def _bounded(line: bytes, most_bytes: int) -> bytes | LongLine:
    if len(line) <= most_bytes:
        return line
    long = LongLine()
    long.grow(line)
    return long


class LineReader:
    """The lines of one input, numbered from 1.  `lines`: how many there were so far, `blank`: of nothing but space."""

    def __init__(self, blocks: Iterable[bytes], origin: Origin = HERE, most_bytes: int = LINE_BYTES) -> None:
        self.origin = origin
        self.lines = 0
        self.blank = 0
        self._blocks = blocks
        self._most_bytes = most_bytes

    def __iter__(self) -> Iterator[Line]:
        for batch in self.batches():
            yield from batch

    def batches(self) -> Iterator[list[Line]]:
        """The lines that each block brought."""
        for raw in self.raw_batches():
            found, origin = [], self.origin
            for number, data in enumerate(raw, self.lines - len(raw) + 1):
                if isinstance(data, LongLine) or data.endswith(b"\r"):
                    line = self.line(number, data)
                    if line:
                        found.append(line)
                elif data and not data.isspace():
                    found.append(Line(number, data, origin))
            self.blank += len(raw) - len(found)
            yield found

    def raw_batches(self) -> "Iterator[list[bytes | LongLine]]":
        """What each block brought, blank lines and all; the last of them has the number `lines`."""
        splitter = Splitter(self._most_bytes)
        for block in self._blocks:
            yield self._counted(splitter.feed(block))
        yield self._counted(splitter.end())

    def _counted(self, raw: "list[bytes | LongLine]") -> "list[bytes | LongLine]":
        if raw and not self.lines and isinstance(raw[0], bytes):
            raw[0] = raw[0].removeprefix(BYTE_ORDER_MARK)
        self.lines += len(raw)
        return raw

    def line(self, number: int, data: "bytes | LongLine") -> Line | None:
        """A line as it goes on, or None where it is blank."""
        if isinstance(data, LongLine):
            return Line(number, data.data, self.origin, self._too_long(data))
        stripped = strip(data)
        return Line(number, stripped, self.origin) if stripped else None

    def _too_long(self, line: LongLine) -> Problem:
        message = f"the line is {line.size} bytes; expected at most {self._most_bytes} (see --line-bytes)"
        return Problem("line_too_long", message)


def strip(data: bytes) -> bytes:
    """A line without the carriage return at its end; nothing for one of nothing but space."""
    data = data.removesuffix(b"\r")
    return data if data.strip() else b""
