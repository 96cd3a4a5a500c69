"""The results file is the journal: appended line by line, reopened to resume.

One process writes it, through one handle, held by a lock.  A line is written whole or, when the disk refuses, cut back
to the last whole line.  On opening, a torn last line (the machine died in mid-write) is cut off, and every line is read
for its key, id and digest, so that a job with a final result is not run again.

When a run ends, results that newer ones replaced (the job was changed, or an earlier try was cut short) are moved to a
file of their own, so that the results file holds one line for each job.
"""

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections import Counter
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from batchrun.core import FINAL_STATUSES, Result, Status
from batchrun.errors import InputError, OutputClosed, OutputError
from batchrun.results import as_line


class Sink(Protocol):
    """Where results go."""

    def claim(self, job_id: str, digest: str) -> Status | None:
        """The status of a final result of this very job, if one is here.  Each is found once: twins need two."""
        ...

    def append(self, result: Result) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class StreamSink:
    """Results to standard output: no resume, no lock."""

    def claim(self, job_id: str, digest: str) -> Status | None:
        return None

    def append(self, result: Result) -> None:
        try:
            sys.stdout.buffer.write(as_line(result))
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in its buffer
            raise OutputClosed from error
        except OSError as error:
            raise OutputError(f"standard output could not be written: {error.strerror}") from error

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass


class Lock:
    """One writer a file: a lock file that the kernel frees when its holder dies, with the holder's name in it."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f".{path.name}.lock")
        try:
            while not self._take(path):
                pass
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error

    def _take(self, path: Path) -> bool:
        """Locks the file; False if its last holder took the file away in between."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._handle)
            raise InputError(f"{path} is being written by {holder}; wait for it, or choose another -o") from error
        try:
            if os.path.samestat(os.stat(self._path), os.fstat(self._handle)):
                return True
        except FileNotFoundError:
            pass
        os.close(self._handle)
        return False

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._handle)


class Journal:
    """A results file, open for appending.  Use as a context manager.

    Raises InputError where the file is not ours or is held by another run, OutputError where it cannot be written.
    """

    def __init__(self, path: Path, *, fresh: bool = False, force: bool = False) -> None:
        path = _target(path)
        self.path = path
        self.torn_bytes = 0
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
        key = _key(job_id, digest)
        if not self._take(key):
            return None
        if (id_key := _key(job_id)) in self._repeated:
            self._rewritten.add(id_key)
        return self._not_ok.get(key, Status.OK)

    def append(self, result: Result) -> None:
        """Writes one line, whole or not at all."""
        self._drop_stale()
        line = as_line(result)
        written = 0
        try:
            while written < len(line):
                written += os.write(self._handle, line[written:])
        except OSError as error:
            self._cut(self._size)
            raise OutputError(f"{self.path} could not be written: {error.strerror}; whole lines are kept") from error
        self._size += len(line)
        if (key := _key(result.id)) in self._ids:
            self._rewritten.add(key)

    def sync(self) -> None:
        """Asks the disk to keep what was written."""
        try:
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
            elif self._rewritten and (self._unfinished or self.unclaimed):
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
        except OSError as error:
            raise OutputError(f"{self.path} cannot be written: {error.strerror}") from error
        if self.torn_bytes:
            self._cut(self._size)

    def _read(self) -> int:
        """Takes in every whole line; gives the bytes they fill."""
        size = 0
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                record = _record(line)
                if record is None and not (_may_be_torn(line) if number == 1 else _is_torn(line)):
                    raise InputError(f"{self.path} line {number} is not a result of batchrun; choose another -o")
                if record is None or not line.endswith(b"\n"):
                    self.torn_bytes = len(line)
                    break
                size += len(line)
                if (id_key := _key(record["id"])) in self._ids:
                    self._repeated.add(id_key)
                self._ids.add(id_key)
                if record["status"] not in FINAL_STATUSES:
                    self._unfinished += 1
                else:
                    self._done[key := _key(record["id"], record["digest"])] += 1
                    if record["status"] != Status.OK:
                        self._not_ok[key] = Status(record["status"])
        return size

    def _drop_stale(self) -> None:
        """Gives up old results, now that the run has a model and a job: a run that cannot start loses nothing."""
        if self._stale:
            self._cut(0)
            self._stale = False

    def _take(self, key: bytes) -> bool:
        """Takes one of the final results that have a key."""
        if not self._done[key]:
            return False
        self._done[key] -= 1
        return True

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
                _cut_torn_tail(replaced)
                for line in file:
                    is_old = file.tell() <= self._opened_size
                    moves = is_old and self._is_replaced(json.loads(line))
                    (replaced if moves else kept).write(line)
                    self.replaced += moves
                for stream in (replaced, kept):
                    stream.flush()
                    os.fsync(stream.fileno())
            shutil.copymode(self.path, new_path)
            os.replace(new_path, self.path)
        except OSError as error:
            new_path.unlink(missing_ok=True)
            raise OutputError(f"{self.path} still holds results that newer ones replace: {error.strerror}") from error

    def _is_replaced(self, record: dict[str, str]) -> bool:
        if _key(record["id"]) not in self._rewritten:
            return False
        return record["status"] not in FINAL_STATUSES or self._take(_key(record["id"], record["digest"]))


def finished_keys(path: Path) -> Counter[tuple[str, str]]:
    """Id and digest of every final result in a file, without a lock: what a run would skip."""
    keys: Counter[tuple[str, str]] = Counter()
    try:
        with path.open("rb") as file:
            for line in file:
                record = _record(line) if line.endswith(b"\n") else None
                if record and record["status"] in FINAL_STATUSES:
                    keys[record["id"], record["digest"]] += 1
    except OSError:
        return Counter()
    return keys


def _record(line: bytes) -> dict[str, str] | None:
    """A result line, or None where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_result = isinstance(record, dict) and all(isinstance(record.get(k), str) for k in ("id", "status", "digest"))
    return record if is_result else None


def _is_torn(line: bytes) -> bool:
    """Whether a line that is no result was cut in mid-write: it has no end, and what is there is not whole JSON."""
    try:
        json.loads(line)
    except RecursionError:
        return False
    except ValueError:
        return not line.endswith(b"\n")
    return False


def _may_be_torn(line: bytes) -> bool:
    """Whether a first line that is no result could be the beginning of one."""
    return (line.startswith(b'{"id":"') or b'{"id":"'.startswith(line)) and _is_torn(line)


def _cut_torn_tail(file: IO[bytes]) -> None:
    """Cuts off a last line that has no end, so that nothing is glued to it."""
    size = file.seek(0)
    for line in file:
        if line.endswith(b"\n"):
            size += len(line)
    file.truncate(size)


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


def _key(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=16).digest()
