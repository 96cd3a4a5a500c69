"""Where lines of output go besides the journal: standard output, or a file that appears when it is whole."""

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Protocol

from batchrun.csv_table import header
from batchrun.errors import InputError, OutputClosed, OutputError
from batchrun.lock import Lock
from batchrun.printable import printable_lines

Encode = Callable[[bytes], bytes]


class Outlet(Protocol):
    """Takes lines of results, in their final order."""

    def write(self, line: bytes) -> None: ...

    def close(self, complete: bool) -> None:
        """No more lines.  `complete`: the run saw all of its input."""
        ...

    def abandon(self) -> None:
        """The run ends at once."""
        ...


class StandardOutput:
    """Lines to standard output as they come.  Raises OutputError, and OutputClosed where its reader left."""

    def __init__(self, encode: Encode) -> None:
        if sys.stdout is None:
            raise OutputError("standard output is closed; expected a place for results, or -o FILE")
        self._encode = encode
        self._stream = sys.stdout  # whatever a library makes of the name later

    def write(self, line: bytes) -> None:
        self.write_raw(self._encode(line))

    def write_raw(self, data: bytes) -> None:
        try:
            self._stream.buffer.write(data)
            self._stream.buffer.flush()
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())  # for what is still in its buffer
            raise OutputClosed from error
        except OSError as error:
            raise OutputError(f"standard output could not be written: {error.strerror}") from error

    def close(self, complete: bool) -> None:
        pass

    def abandon(self) -> None:
        pass


class ViewFile:
    """A file that is written aside and takes its place when the run has seen all of its input.

    A run that stops early leaves what was there.  `table`: the lines are turned into CSV at the end.
    """

    def __init__(self, path: Path, encode: Encode, *, table: bool) -> None:
        self._path = path
        self._encode = encode
        self._table = table
        self._new_path = path.with_name(f".{path.name}.new")
        self._lock = Lock(path)
        try:
            self._file: IO[bytes] = self._new_path.open("w+b")
        except OSError as error:
            self._lock.release()
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error

    def write(self, line: bytes) -> None:
        with self._told():
            self._file.write(self._encode(line))

    def close(self, complete: bool) -> None:
        try:
            with self._told():
                if complete:
                    self._put_in_place()
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            self._new_path.unlink(missing_ok=True)
            self._lock.release()

    def abandon(self) -> None:
        self._lock.release()

    def _put_in_place(self) -> None:
        self._file.flush()
        if self._table:
            self._make_table()
        os.fsync(self._file.fileno())
        os.replace(self._new_path, self._path)

    def _make_table(self) -> None:
        lines, path = self._file, self._path.with_name(f".{self._path.name}.table")
        try:
            self._file = path.open("w+b")
            self._file.writelines(table_rows(lines))
            self._file.flush()
            os.replace(path, self._new_path)
        finally:
            lines.close()
            path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise OutputError(f"{self._path} could not be written: {error.strerror}; the journal is kept") from error


class TableOnStandardOutput:
    """A table to standard output, at the end, for its columns are not known before.  `spool`: a file of no name."""

    def __init__(self, spool: IO[bytes]) -> None:
        self._out = StandardOutput(bytes)
        self._spool = spool

    def write(self, line: bytes) -> None:
        try:
            self._spool.write(line)
        except OSError as error:
            raise OutputError(f"the folder for temporary files could not be written: {error.strerror}") from error

    def close(self, complete: bool) -> None:
        with self._spool:
            self._spool.flush()
            on_terminal = sys.stdout.isatty()
            for row in table_rows(self._spool):
                self._out.write_raw(printable_lines(row.decode()).encode() if on_terminal else row)

    def abandon(self) -> None:
        pass


def table_rows(lines: IO[bytes]) -> Iterable[bytes]:
    """The table of a file of results, read twice."""
    lines.seek(0)
    columns = header(lines)
    lines.seek(0)
    yield from columns.rows(lines)


def check_view(path: Path, journal: Path, force: bool) -> None:
    """A file that no journal explains is somebody else's.  Raises InputError."""
    if path.exists() and path.stat().st_size and not journal.exists() and not force:
        raise InputError(
            f"{path} exists, and {journal} does not, so it is not known to be ours; choose another -o, or remove it"
        )
