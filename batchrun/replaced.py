"""Moves results that newer ones replaced out of a results file, when a run has ended.

A line that was there when the run began goes to `*.replaced.jsonl` where the run found or wrote another result of its
id; where it is a rejection and the run, which saw its whole input, met no such line; and with `--prune` where its job
is no longer in the input.  All else stays.
"""

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from batchrun.core import Status
from batchrun.errors import OutputError
from batchrun.journal_index import JournalIndex, MovedIndex
from batchrun.result_lines import cut_torn_tail, is_final, record_of


@dataclass(slots=True)
class Tidied:
    """What became of old lines.  `vanished`: results of jobs that are no longer in the input, and that stay."""

    replaced: int = 0
    pruned: int = 0
    vanished: int = 0


def replaced_path(path: Path) -> Path:
    """Where the replaced results of a results file go."""
    return path.with_name(f"{path.name.removesuffix('.jsonl')}.replaced.jsonl")


def move_replaced(
    path: Path, index: JournalIndex, moved: MovedIndex, old_bytes: int, complete: bool, prune: bool
) -> Tidied:
    """Tidies a results file up.  `old_bytes`: how much of it was there when the run began; `complete`: the run saw all
    of its input.  Raises OutputError where that fails: then all lines are still there.
    """
    tidied = Tidied()
    goes = bytearray(_verdicts(path, index, tidied, old_bytes, complete, prune))  # a byte a line
    if not any(goes):
        return tidied
    new_path = path.with_name(f".{path.name}.new")
    try:
        with path.open("rb") as file, new_path.open("wb") as kept, replaced_path(path).open("a+b") as replaced:
            cut_torn_tail(replaced)
            for number, line in enumerate(file):
                if number >= len(goes) or not goes[number]:
                    kept.write(line)
                elif not _stands(line, moved, replaced):
                    replaced.write(line)
            for stream in (replaced, kept):
                stream.flush()
                os.fsync(stream.fileno())
        shutil.copymode(path, new_path)
        os.replace(new_path, path)
    except OSError as error:
        new_path.unlink(missing_ok=True)
        raise OutputError(f"{path} still holds results that newer ones replace: {error.strerror}") from error
    return tidied


def _stands(line: bytes, moved: MovedIndex, replaced: IO[bytes]) -> bool:
    """Whether this very line lies among the replaced ones: it was brought back from there."""
    record = record_of(line)
    place = moved.place_of(record) if record else None
    if place is None:
        return False
    replaced.seek(place)
    return replaced.readline() == line


def _verdicts(
    path: Path, index: JournalIndex, tidied: Tidied, old_bytes: int, complete: bool, prune: bool
) -> Iterator[bool]:
    """For each old line whether it goes."""
    with path.open("rb") as file:
        size = 0
        for line in file:
            size += len(line)
            if size > old_bytes:
                return
            record = record_of(line)
            if record is None:
                tidied.replaced += 1
                yield True
            else:
                yield _goes(record, index, tidied, complete, prune)


def _goes(record: dict[str, Any], index: JournalIndex, tidied: Tidied, complete: bool, prune: bool) -> bool:
    is_claimed = is_final(record) and not index.take(record["id"], record["digest"])
    if is_claimed:
        return False
    if index.is_renewed(record["id"]) or (complete and record["status"] == Status.REJECTED):
        tidied.replaced += 1
        return True
    if complete:
        tidied.pruned += prune
        tidied.vanished += not prune
    return complete and prune
