"""The results file is the journal: appended line by line, reopened to resume.

One process writes it, through one handle, held by a lock.  A line is written whole or, when the disk refuses, cut back
to the last whole line.  On opening, a torn last line (the machine died in mid-write) is cut off, and every line is read
for its key, id and digest, so that a job with a final result is not run again.

When a run ends, results that newer ones replaced (the job was changed, or an earlier try was cut short) are moved to a
file of their own, so that the results file holds one line for each job.  Where that very job comes back, so does its
line.
"""

import os
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from batchrun.backends.base import Interrupted
from batchrun.core import Result, Status
from batchrun.errors import InputError, OutputError
from batchrun.journal_index import JournalIndex, MovedIndex
from batchrun.lock import Lock, lock_open_file
from batchrun.replaced import Tidied, move_replaced, replaced_path
from batchrun.result_lines import is_final, is_foreign, record_of
from batchrun.results import as_line

LOOK_LINES = 4096  # between two looks at whether the run was stopped, while a long file is read
READ_BYTES = 1 << 16
PATIENCE_S = 1.0


def _never() -> bool:
    return False


class Journal:
    """A results file, open for appending.  Use as a context manager.

    Raises InputError where the file is not ours or is held by another run, OutputError where it cannot be written,
    Interrupted where `stopped` turns true while it is read.
    """

    full = False

    def __init__(
        self,
        path: Path,
        *,
        fresh: bool = False,
        force: bool = False,
        prune: bool = False,
        stopped: Callable[[], bool] = _never,
    ) -> None:
        path = _target(path)
        self.path = path
        self.torn_bytes = 0
        self.damaged = 0  # lines in the middle that are no results: they are moved away, their jobs run again
        self.tidied = Tidied()
        self.replaced_path = replaced_path(path)
        self.complete = False  # set by a run that has seen its whole input
        self._prune = prune
        self._stopped = stopped
        self._writing = threading.Lock()
        self._index = JournalIndex()
        self._moved = MovedIndex()
        self._stale = False  # results that --force gives up: they go when the first job comes
        self._handle = -1
        self._lock = Lock(path)
        try:
            self._open(fresh, force)
        except BaseException:
            self._let_go()
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def unclaimed(self) -> int:
        """Final results that were here when the file was opened and have not been claimed yet."""
        return self._index.unclaimed

    @property
    def replaced(self) -> int:
        """Results that newer ones replaced, moved away when the run ended."""
        return self.tidied.replaced

    # -- what a run asks

    def begin(self, index: int) -> None:
        """A line of the input is to come to a result: of no interest where order is none."""

    def claim(self, job_id: str, digest: str, index: int = 0) -> Status | None:
        self._drop_stale()
        found = self._index.claim(job_id, digest) or self._restore(job_id, digest)
        return found[0] if found else None

    def claimed(self, job_id: str, digest: str) -> tuple[Status, bytes] | None:
        """As `claim`, with the line of the result."""
        self._drop_stale()
        found = self._index.claim(job_id, digest) or self._restore(job_id, digest)
        return (found[0], self.line_at(found[1])) if found else None

    def latest(self, job_id: str) -> dict[str, Any] | None:
        """The last line of an id, whatever became of its job."""
        found = None if self._stale else self._index.latest(job_id)
        return record_of(self.line_at(found[1])) if found else None

    def answer(self, digest: str) -> dict[str, Any] | None:
        """A result that an equal job of another name may share."""
        place = None if self._stale else self._index.answer(digest)
        record = None if place is None else record_of(self.line_at(place))
        return record if record and record["digest"] == digest else None

    def line_at(self, place: int) -> bytes:
        """The line that begins at a byte."""
        line = b""
        while b"\n" not in line:
            more = os.pread(self._handle, READ_BYTES, place + len(line))
            if not more:
                break
            line += more
        return line[: line.find(b"\n") + 1]

    # -- what a run writes

    def append(self, result: Result) -> bytes:
        """Writes one line, whole or not at all.  Gives it."""
        self._drop_stale()
        line = as_line(result)
        self._index.wrote(result.id, result.digest, result.status, self._write(line))
        return line

    def sync(self) -> None:
        """Asks the disk to keep what was written, and looks whether the file is still ours.  Raises OutputError."""
        try:
            held, there = os.fstat(self._handle), os.stat(self.path)
            if not os.path.samestat(held, there) or (held.st_size != self._size and not self._stale):
                raise OutputError(f"{self.path} was moved, replaced or cut by somebody else while the run wrote it")
            os.fsync(self._handle)
        except OSError as error:
            raise OutputError(f"{self.path} could not be kept on disk: {error.strerror}") from error

    def close(self) -> None:
        """Moves replaced lines away and lets the file go."""
        if self._handle < 0:
            return
        try:
            if not self._size and not self._stale:
                self.path.unlink(missing_ok=True)  # nothing was written: leave nothing behind
            elif self._needs_tidying:
                with self._writing:
                    rules = (self._opened_size, self.complete, self._prune)
                    self.tidied = move_replaced(self.path, self._index, self._moved, *rules)
        except OSError as error:
            raise OutputError(f"{self.path} cannot be tidied up: {error.strerror}") from error
        finally:
            self._let_go()

    def abandon(self) -> None:
        """For an end at once, from another thread: no line is written any more, and the lock goes.

        A write that is stuck in the disk keeps the lock, which the next run takes over.
        """
        if self._writing.acquire(timeout=PATIENCE_S):
            self._lock.release()

    def _let_go(self) -> None:
        handle, self._handle = self._handle, -1
        if handle >= 0:
            os.close(handle)
        self._lock.release()

    @property
    def _needs_tidying(self) -> bool:
        index = self._index
        left = index.unclaimed or index.unfinished
        return bool(self.damaged or (left and (index.renewed or self.complete)))

    def _write(self, line: bytes) -> int:
        """Appends a line.  Gives the byte at which it begins."""
        written, place = 0, self._size
        with self._writing:
            try:
                while written < len(line):
                    written += os.write(self._handle, line[written:])
            except OSError as error:
                self._cut(place)
                raise OutputError(
                    f"{self.path} could not be written: {error.strerror}; whole lines are kept"
                ) from error
            self._size += len(line)
        return place

    # -- opening

    def _open(self, fresh: bool, force: bool) -> None:
        if fresh and self.path.exists() and self.path.stat().st_size:
            if not force:
                raise InputError(f"{self.path} exists; --fresh would lose it: add --force, or choose another -o")
            self._stale = True
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
            lock_open_file(self._handle, self.path)
            self._size = self._opened_size = 0 if self._stale else self._read()
            if not self._stale:
                self._index_replaced()
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror}") from error
        if self.torn_bytes:
            self._cut(self._size)

    def _read(self) -> int:
        """Takes in every whole line; gives the bytes they fill."""
        size = 0
        with self.path.open("rb", buffering=1 << 20) as file:
            for number, line in enumerate(file, 1):
                record = record_of(line)
                if record is None and is_foreign(line, number):
                    raise InputError(f"{self.path} line {number} is not a result of batchrun; choose another -o")
                if not line.endswith(b"\n"):
                    self.torn_bytes = len(line)
                    break
                if record is None:
                    self.damaged += 1
                else:
                    self._index.add(record, size)
                size += len(line)
                if number % LOOK_LINES == 0 and self._stopped():
                    raise Interrupted
        return size

    def _drop_stale(self) -> None:
        """Gives up old results, now that the run has a model and a job: a run that cannot start loses nothing."""
        if self._stale:
            self._cut(0)
            self.replaced_path.unlink(missing_ok=True)
            self._stale = False

    def _index_replaced(self) -> None:
        """Finds the final results that earlier runs moved away: a job that comes back need not run again."""
        if not self.replaced_path.is_file():
            return
        place = 0
        with self.replaced_path.open("rb") as file:
            for line in file:
                record = record_of(line)
                if record and is_final(record) and record["status"] != Status.REJECTED:
                    self._moved.add(record, place)
                place += len(line)

    def _restore(self, job_id: str, digest: str) -> tuple[Status, int] | None:
        """Brings a moved line back, if this very job was answered before."""
        place = self._moved.take(job_id, digest)
        if place is None:
            return None
        with self.replaced_path.open("rb") as file:
            file.seek(place)
            line = file.readline()
        record = record_of(line)
        if record is None or not line.endswith(b"\n"):
            return None
        status, place = Status(record["status"]), self._write(line)
        self._index.wrote(job_id, digest, status, place)
        return status, place

    def _cut(self, size: int) -> None:
        os.ftruncate(self._handle, size)


def _target(path: Path) -> Path:
    """The file that a path leads to, through links: one file has one lock, and keeps its place when it is rewritten."""
    try:
        target = path.resolve() if path.is_symlink() else path
        exists, is_file = target.exists(), target.is_file()
    except (OSError, RuntimeError) as error:
        raise OutputError(f"{path} cannot be written: {error}") from error
    if exists and not is_file:
        raise InputError(f"{path} is not a regular file; expected a results file, or - for standard output")
    return target
