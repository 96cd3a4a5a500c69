"""Bytes of a file or a stream, block by block, unpacked where they are gzip's.

A file is read as long as it was when it was opened.  One that somebody writes anew in the meantime is an error, found
before a line of it is handed on; one that merely grows is not.
"""

import gzip
import io
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from batchrun.errors import InputError

BLOCK_BYTES = 1 << 18
GZIP_MAGIC = b"\x1f\x8b"
UNPACKING_ERRORS = (OSError, EOFError, zlib.error)


class WatchedFile(io.RawIOBase):
    """A regular file, read from its start to the end it had when it was opened.  Raises InputError if it is rewritten
    under the reader."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        self._seen = self._stamp()
        self._left = self._seen[1]
        self._head = b""
        self._last = (0, b"")  # where the block read last began, and what it was

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "bytearray | memoryview") -> int:  # type: ignore[override]
        data = os.read(self._handle, min(len(buffer), self._left))
        start = self._last[0] + len(self._last[1])
        self._last = (start, data)
        self._head = self._head or data
        self._left -= len(data)
        if self._stamp() != self._seen:
            self._check()
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            os.close(self._handle)
        super().close()

    def _stamp(self) -> tuple[int, int]:
        found = os.fstat(self._handle)
        return found.st_mtime_ns, found.st_size

    def _check(self) -> None:
        """The file was written to: what was read of it must still stand there."""
        self._seen = self._stamp()
        for start, data in ((0, self._head), self._last):
            if os.pread(self._handle, len(data), start) != data:
                raise InputError(
                    f"{self._path} was rewritten while the run read it; results so far are kept, run it again"
                )


def file_blocks(path: Path) -> Iterator[bytes]:
    """The content of a regular file, which is opened now.  Raises InputError where it cannot be read."""
    try:
        return _file_blocks(WatchedFile(path), path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error


def _file_blocks(file: WatchedFile, path: Path) -> Iterator[bytes]:
    try:
        with file as raw:
            yield from _unpacked(raw)
    except UNPACKING_ERRORS as error:
        raise unreadable(str(path), error) from error


def stream_blocks(stream: IO[bytes] | Path | Iterable[bytes]) -> Iterator[bytes]:
    """What a stream brings, as it comes.  Raises OSError, EOFError or zlib.error where it breaks.

    The descriptor of an open stream is read past its buffer: the interpreter cannot end while a thread is blocked in
    the buffer of `sys.stdin`, it would abort.  `stream`: or a path, such as that of a named pipe.
    """
    if isinstance(stream, Path):
        with open(stream, "rb", buffering=0) as raw:
            yield from _unpacked(raw)
        return
    handle = _descriptor(stream)
    if handle is None:
        yield from stream
    else:
        yield from _unpacked(io.FileIO(handle, closefd=False))


def _descriptor(stream: IO[bytes] | Iterable[bytes]) -> int | None:
    try:
        return stream.fileno() if isinstance(stream, io.IOBase) else None
    except io.UnsupportedOperation:
        return None


def unreadable(name: str, error: Exception) -> InputError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return InputError(f"{name} could not be read to its end: {reason}; results so far are kept")


def _unpacked(raw: io.RawIOBase) -> Iterator[bytes]:
    head = _first_bytes(raw)
    if not head.startswith(GZIP_MAGIC):
        yield head
        yield from iter(lambda: raw.read(BLOCK_BYTES) or b"", b"")
        return
    with gzip.GzipFile(fileobj=_Rejoined(head, raw)) as file:
        yield from iter(lambda: file.read1(BLOCK_BYTES), b"")


def _first_bytes(raw: io.RawIOBase) -> bytes:
    """The first block, of two bytes at least: so many tell gzip from text."""
    head = b""
    while len(head) < len(GZIP_MAGIC):
        more = raw.read(BLOCK_BYTES)
        if not more:
            break
        head += more
    return head


class _Rejoined(io.RawIOBase):
    """A stream some of which was read already."""

    def __init__(self, head: bytes, raw: io.RawIOBase) -> None:
        self._head = head
        self._raw = raw

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        taken, self._head = self._head[:size], self._head[size:]
        return taken or self._raw.read(size) or b""
