"""`batchrun merge`: one results file of many, such as those of a job array.

Every id comes to have one line: of several the best (ok, then final, then any), and of equals the one of the later
file.  The lines themselves are copied as they are, so the merged file can be resumed like any other.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from batchrun.core import GROUP_WON, Status
from batchrun.errors import InputError, OutputError, UsageError
from batchrun.key_table import KeyTable, key_of
from batchrun.outlet import Outlet
from batchrun.result_lines import codes_of, is_final, is_foreign, record_of

PLACE_BITS, PART_BITS = 35, 11
MOST_PARTS = 1 << PART_BITS
MOST_BYTES = 1 << PLACE_BITS


@dataclass(slots=True)
class Merged:
    """What a merge came to.  `doubles`: lines left out, for another of the same id; `torn`: parts with a torn end."""

    statuses: Counter[str] = field(default_factory=Counter)
    doubles: int = 0
    torn: int = 0
    spared: int = 0

    @property
    def all_ok(self) -> bool:
        return self.statuses[Status.OK] + self.spared == self.statuses.total()


def merge(parts: Sequence[Path], outlet: Outlet, *, ordered: bool) -> Merged:
    """Writes the best line of every id, part after part, or in the order of the jobs' line numbers.

    Raises InputError for a part that cannot be read or is no results file, OutputError where the output cannot be
    written.
    """
    if len(parts) > MOST_PARTS:
        raise UsageError(f"{len(parts)} parts are too many at once; expected at most {MOST_PARTS}")
    for part in parts:
        if part.exists() and part.stat().st_size >= MOST_BYTES:
            raise UsageError(f"{part} is over {MOST_BYTES >> 30} GiB; expected smaller parts")
    found = Merged()
    best = _best(parts, found)
    for line, record in _in_order(parts, best) if ordered else _chosen(parts, best):
        found.statuses[record["status"]] += 1
        found.spared += GROUP_WON in codes_of(record)
        outlet.write(line)
    return found


def lines(found: Merged, count: int) -> list[str]:
    """The merge as a person reads it.  `count`: of parts."""
    statuses = ", ".join(f"{number} {status}" for status, number in found.statuses.most_common()) or "no results"
    said = [f"{statuses} from {count} {'part' if count == 1 else 'parts'}"]
    if found.doubles:
        said.append(f"{found.doubles} lines of ids that stand several times were left out")
    if found.torn:
        said.append(f"{found.torn} parts end in a torn line, which was left out: resume them first")
    return said


def check_output(path: Path, parts: Sequence[Path], *, force: bool) -> None:
    """Raises UsageError where the output is one of the parts, InputError where it would be lost."""
    if any(path.resolve() == part.resolve() for part in parts):
        raise UsageError(f"{path} is both a part and the output; expected another -o")
    if path.exists() and path.stat().st_size and not force:
        raise InputError(f"{path} exists; add --force to replace it, or choose another -o")
    if not path.parent.is_dir():
        raise OutputError(f"{path} cannot be written: {path.parent} is no folder")


def _best(parts: Sequence[Path], found: Merged) -> KeyTable:
    """For every id rank, part and place of its best line."""
    best = KeyTable()
    for number, part in enumerate(parts):
        for place, _, record in _lines(part, found):
            key = key_of(record["id"])
            value = _rank(record) << PART_BITS + PLACE_BITS | number << PLACE_BITS | place
            before = best.get(key)
            found.doubles += before is not None
            if before is None or value > before:
                best.put(key, value)
    return best


def _rank(record: dict[str, Any]) -> int:
    return 2 if record["status"] == Status.OK else 1 if is_final(record) else 0


def _chosen(parts: Sequence[Path], best: KeyTable) -> Iterator[tuple[bytes, dict[str, Any]]]:
    for number, part in enumerate(parts):
        for place, line, record in _lines(part, Merged()):
            if _place_in(best, record) == number << PLACE_BITS | place:
                yield line, record


def _in_order(parts: Sequence[Path], best: KeyTable) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """By the jobs' line numbers; the numbers and places of all lines are held, 16 bytes each."""
    indices = np.zeros(len(best), np.int64)
    places = np.zeros(len(best), np.int64)
    count = 0
    for _, record in _chosen(parts, best):
        index = record.get("index")
        indices[count] = index if isinstance(index, int) and 0 <= index < 1 << 62 else 0
        places[count] = _place_in(best, record)
        count += 1
    with ExitStack() as opened:
        try:
            files = [opened.enter_context(part.open("rb")) for part in parts]
        except OSError as error:
            raise InputError(f"{len(parts)} parts cannot be open at once: {error.strerror}") from error
        for place in places[np.argsort(indices[:count], kind="stable")]:
            file = files[int(place) >> PLACE_BITS]
            file.seek(int(place) & (MOST_BYTES - 1))
            line = file.readline()
            found = record_of(line)
            assert found is not None, "only results are chosen"
            yield line, found


def _place_in(best: KeyTable, record: dict[str, Any]) -> int:
    """Part and place of the best line of a record's id."""
    return (best.get(key_of(record["id"])) or 0) & ((1 << PART_BITS + PLACE_BITS) - 1)


def _lines(part: Path, found: Merged) -> Iterator[tuple[int, bytes, dict[str, Any]]]:
    """Place, bytes and record of every result.  Raises InputError."""
    place = 0
    try:
        with part.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.endswith(b"\n"):
                    found.torn += 1
                    return
                record = record_of(line)
                if record:
                    yield place, line, record
                elif is_foreign(line, number):
                    raise InputError(f"{part} line {number} is not a result of batchrun")
                place += len(line)
    except OSError as error:
        raise InputError(f"{part}: {error.strerror}") from error
