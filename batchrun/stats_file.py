"""The stats file: one line a burst, appended beside the results.

It is a record and not a journal: a run that resumes goes on with the next burst number, and a torn last line is cut.
"""

import json
import os
from pathlib import Path
from typing import IO

from batchrun.errors import InputError, OutputError
from batchrun.lock import Lock
from batchrun.stats import BurstStats, as_line


class StatsFile:
    """Appends stats lines; the file is made with the first.

    Raises InputError where the file holds something else, OutputError where it cannot be read or written.
    """

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self.next_burst = 1
        if path.exists() and not path.is_file():
            raise InputError(f"{path} is not a regular file; expected a stats file")
        self._lock = Lock(path, "--stats")
        try:
            self._open(path, fresh)
        except BaseException:
            self._lock.release()
            raise

    def _open(self, path: Path, fresh: bool) -> None:
        try:
            if path.exists():
                self._read()
                if fresh:
                    path.unlink()
                    self.next_burst = 1
            elif not os.access(path.parent, os.W_OK):
                raise OutputError(f"{path} could not be written: {path.parent} is no folder that we may write to")
        except OSError as error:
            raise OutputError(f"{path} cannot be read: {error.strerror}") from error

    def append(self, stats: BurstStats) -> None:
        line = json.dumps(as_line(stats), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            if self._file is None:
                self._file = self._path.open("ab", buffering=0)
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self._path} could not be written: {error.strerror}") from error

    def close(self) -> None:
        if self._file:
            self._file.close()
        self._lock.release()

    def abandon(self) -> None:
        """The process ends at once, from another thread."""
        self._lock.release()

    def _read(self) -> None:
        size = 0
        with self._path.open("rb") as file:
            for number, line in enumerate(file, 1):
                burst = _burst(line)
                if burst is None and (line.endswith(b"\n") or not _may_be_torn(line)):
                    raise InputError(f"{self._path} line {number} is not a line of stats; choose another --stats")
                if burst is None or not line.endswith(b"\n"):
                    os.truncate(self._path, size)
                    break
                size += len(line)
                self.next_burst = max(self.next_burst, burst + 1)


def _burst(line: bytes) -> int | None:
    """The number of the burst that a line is about, or None where it is no line of stats."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_stats = isinstance(record, dict) and "started_at" in record and isinstance(record.get("burst"), int)
    return record["burst"] if is_stats else None


def _may_be_torn(line: bytes) -> bool:
    """Whether a last line that is no line of stats could be the beginning of one."""
    return line.startswith(b'{"burst":') or b'{"burst":'.startswith(line)


class NoStatsFile:
    """For a run whose stats nobody asked for."""

    next_burst = 1

    def append(self, stats: BurstStats) -> None:
        pass

    def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass
