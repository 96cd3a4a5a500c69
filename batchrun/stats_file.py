"""The stats file: one line a burst, appended beside the results.

It is a record and not a journal: a run that resumes goes on with the next burst number, and a torn last line is cut.
"""

import json
from pathlib import Path
from typing import IO

from batchrun.errors import OutputError
from batchrun.stats import BurstStats, as_line


class StatsFile:
    """Appends stats lines; the file is made with the first.  Raises OutputError where it cannot be written."""

    def __init__(self, path: Path, *, fresh: bool) -> None:
        self._path = path
        self._file: IO[bytes] | None = None
        self._size = 0
        self.next_burst = 1
        try:
            if fresh:
                path.unlink(missing_ok=True)
            elif path.exists():
                self._read()
        except OSError as error:
            raise OutputError(f"{path} cannot be read: {error.strerror}") from error

    def append(self, stats: BurstStats) -> None:
        line = json.dumps(as_line(stats), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            if self._file is None:
                self._file = self._path.open("ab")
                self._file.truncate(self._size)
            self._file.write(line)
            self._file.flush()
        except OSError as error:
            raise OutputError(f"{self._path} could not be written: {error.strerror}") from error

    def close(self) -> None:
        if self._file:
            self._file.close()

    def _read(self) -> None:
        with self._path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._size += len(line)
                try:
                    self.next_burst = max(self.next_burst, int(json.loads(line)["burst"]) + 1)
                except (ValueError, KeyError, TypeError):
                    continue


class NoStatsFile:
    """For a run whose stats nobody asked for."""

    next_burst = 1

    def append(self, stats: BurstStats) -> None:
        pass

    def close(self) -> None:
        pass
