"""Reads results and stats files for people: every line that is one, and how many are none.

A report changes nothing and waits for nothing, so it takes no lock: of a run that still writes it shows what is there.
"""

import json
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from batchrun.errors import InputError
from batchrun.result_lines import record_of

Record = dict[str, Any]


class ResultLines:
    """Iterates over the results of a file.  `damaged`: lines so far that are no results.

    Raises InputError where the file cannot be read.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.damaged = 0

    def __iter__(self) -> Iterator[Record]:
        try:
            with self._path.open("rb") as file:
                for line in file:
                    record: Record | None = record_of(line)
                    if record is None:
                        self.damaged += 1
                    else:
                        yield record
        except OSError as error:
            raise InputError(f"{self._path} cannot be read: {error.strerror}; expected a results file") from error


def bursts(path: Path) -> tuple[Record, ...]:
    """The lines of a stats file, in order; none where there is no file."""
    try:
        with path.open("rb") as file:
            return tuple(record for line in file if (record := _burst(line)))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}; expected a stats file") from error


def moment(text: Any) -> float | None:
    """Seconds since the epoch of an ISO 8601 moment."""
    try:
        return datetime.fromisoformat(text).timestamp() if isinstance(text, str) else None
    except ValueError:
        return None


def _burst(line: bytes) -> Record | None:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    whole = (
        isinstance(record, dict) and isinstance(record.get("burst"), int) and isinstance(record.get("seconds"), dict)
    )
    return record if whole else None
