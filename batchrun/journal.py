"""The results file is the journal: appended line by line, reopened to resume.

One process writes it, through one handle, held by a lock.  A line is written whole or, when the disk refuses, cut back
to the last whole line.  On opening, a torn last line (the machine died in mid-write) is cut off, and every line is read
for its key, id and digest, so that a job with a final result is not run again.

When a run ends, results that newer ones replaced (the job was changed, or an earlier try was cut short) are moved to a
file of their own, so that the results file holds one line for each job.  Where that very job comes back, so does its
line.
"""

import os
import shutil
from collections import Counter
from pathlib import Path
from types import TracebackType

from batchrun.core import FINAL_STATUSES, Result, Status
from batchrun.errors import InputError, OutputError
from batchrun.lock import Lock
from batchrun.result_lines import cut_torn_tail, is_foreign, key_of, record_of
from batchrun.results import as_line


class Journal:
    """A results file, open for appending.  Use as a context manager.

    Raises InputError where the file is not ours or is held by another run, OutputError where it cannot be written.
    """

    def __init__(self, path: Path, *, fresh: bool = False, force: bool = False) -> None:
        path = _target(path)
        self.path = path
        self.torn_bytes = 0
        self.damaged = 0  # lines in the middle that are no results: they are moved away, their jobs run again
        self.replaced = 0
        self.replaced_path = path.with_name(f"{path.name.removesuffix('.jsonl')}.replaced.jsonl")
        self._lock = Lock(path)
        self._done: Counter[bytes] = Counter()
        self._not_ok: dict[bytes, Status] = {}
        self._unfinished = 0  # results that are not final: their jobs run again
        self._ids: set[bytes] = set()
        self._repeated: set[bytes] = set()  # ids on several lines: twins, or a run that was killed before it tidied up
        self._stale = False  # results that --force gives up: they go when the first job comes
        self._rewritten: set[bytes] = set()  # ids that were here and that this run wrote again, or found written again
        self._moved: dict[bytes, tuple[int, int]] = {}  # place and length of lines in the file of replaced results
        self._restored: set[bytes] = set()
        self.complete = False  # set by a run that has seen its whole input
        self._handle = -1
        try:
            self._open(fresh, force)
        except BaseException:
            self._lock.release()
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
        return self._done.total()

    def claim(self, job_id: str, digest: str) -> Status | None:
        self._drop_stale()
        key = key_of(job_id, digest)
        if not self._take(key):
            return self._restore(key, key_of(job_id))
        if (id_key := key_of(job_id)) in self._repeated:
            self._rewritten.add(id_key)
        return self._not_ok.get(key, Status.OK)

    def append(self, result: Result) -> None:
        """Writes one line, whole or not at all."""
        self._drop_stale()
        self._write(as_line(result), key_of(result.id))

    def _write(self, line: bytes, id_key: bytes) -> None:
        written = 0
        try:
            while written < len(line):
                written += os.write(self._handle, line[written:])
        except OSError as error:
            self._cut(self._size)
            raise OutputError(f"{self.path} could not be written: {error.strerror}; whole lines are kept") from error
        self._size += len(line)
        if id_key in self._ids:
            self._rewritten.add(id_key)

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
        handle, self._handle = self._handle, -1
        os.close(handle)
        try:
            if not self._size and not self._stale:
                self.path.unlink(missing_ok=True)  # nothing was written: leave nothing behind
            elif self.damaged or (self._rewritten and (self._unfinished or self.unclaimed)) or self._outlived:
                self._move_replaced()
        finally:
            self._lock.release()

    def _open(self, fresh: bool, force: bool) -> None:
        if fresh and self.path.exists() and self.path.stat().st_size:
            if not force:
                raise InputError(f"{self.path} exists; --fresh would lose it: add --force, or choose another -o")
            self._stale = True
        try:
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)
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
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                record = record_of(line)
                if record is None and is_foreign(line, number):
                    raise InputError(f"{self.path} line {number} is not a result of batchrun; choose another -o")
                if not line.endswith(b"\n"):
                    self.torn_bytes = len(line)
                    break
                size += len(line)
                if record is None:
                    self.damaged += 1
                    continue
                if (id_key := key_of(record["id"])) in self._ids:
                    self._repeated.add(id_key)
                self._ids.add(id_key)
                if record["status"] not in FINAL_STATUSES:
                    self._unfinished += 1
                else:
                    self._done[key := key_of(record["id"], record["digest"])] += 1
                    if record["status"] != Status.OK:
                        self._not_ok[key] = Status(record["status"])
        return size

    def _drop_stale(self) -> None:
        """Gives up old results, now that the run has a model and a job: a run that cannot start loses nothing."""
        if self._stale:
            self._cut(0)
            self.replaced_path.unlink(missing_ok=True)
            self._stale = False

    def _take(self, key: bytes) -> bool:
        """Takes one of the final results that have a key."""
        if not self._done[key]:
            return False
        self._done[key] -= 1
        return True

    def _index_replaced(self) -> None:
        """Finds the final results that earlier runs moved away: a job that comes back need not run again."""
        if not self.replaced_path.is_file():
            return
        place = 0
        with self.replaced_path.open("rb") as file:
            for line in file:
                record = record_of(line)
                if record and record["status"] in FINAL_STATUSES and record["status"] != Status.REJECTED:
                    self._moved[key_of(record["id"], record["digest"])] = (place, len(line))
                place += len(line)

    def _restore(self, key: bytes, id_key: bytes) -> Status | None:
        """Brings a moved line back, if this very job was answered before."""
        found = self._moved.get(key) if key not in self._restored else None
        if found is None:
            return None
        with self.replaced_path.open("rb") as file:
            file.seek(found[0])
            line = file.read(found[1])
        record = record_of(line)
        if record is None or not line.endswith(b"\n"):
            return None
        self._restored.add(key)
        self._write(line, id_key)
        return Status(record["status"])

    def _cut(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def _move_replaced(self) -> None:
        """Moves old lines to `*.replaced.jsonl` where this run wrote their job again.

        An old line stays if its very job was found done, or if nothing new has its id.
        """
        new_path = self.path.with_name(f".{self.path.name}.new")
        try:
            with (
                self.path.open("rb") as file,
                new_path.open("wb") as kept,
                self.replaced_path.open("a+b") as replaced,
            ):
                cut_torn_tail(replaced)
                for line in file:
                    is_old = file.tell() <= self._opened_size
                    moves = is_old and self._is_replaced(record_of(line))
                    if not moves:
                        kept.write(line)
                    elif not self._was_moved(record_of(line)):
                        replaced.write(line)
                    self.replaced += moves
                for stream in (replaced, kept):
                    stream.flush()
                    os.fsync(stream.fileno())
            shutil.copymode(self.path, new_path)
            os.replace(new_path, self.path)
        except OSError as error:
            new_path.unlink(missing_ok=True)
            raise OutputError(f"{self.path} still holds results that newer ones replace: {error.strerror}") from error

    @property
    def _outlived(self) -> bool:
        """Whether there are rejections whose line is gone or mended: the run saw all lines, and none was that one."""
        unclaimed = (key for key, status in self._not_ok.items() if status is Status.REJECTED and self._done[key])
        return self.complete and any(unclaimed)

    def _was_moved(self, record: dict[str, str] | None) -> bool:
        """Whether this very result lies among the replaced ones already."""
        return record is not None and key_of(record["id"], record["digest"]) in self._moved

    def _is_replaced(self, record: dict[str, str] | None) -> bool:
        if record is None:
            return True
        if self.complete and record["status"] == Status.REJECTED:
            return self._take(key_of(record["id"], record["digest"]))
        if key_of(record["id"]) not in self._rewritten:
            return False
        return record["status"] not in FINAL_STATUSES or self._take(key_of(record["id"], record["digest"]))


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
