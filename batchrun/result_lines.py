"""Reads lines of results files: which are results, which were torn in mid-write, and what they are known by."""

import json
from collections import Counter
from pathlib import Path
from typing import IO, Any

from batchrun.core import FINAL_CODES, FINAL_STATUSES, Status

_DECODER = json.JSONDecoder()  # made once: `json.loads` looks for encodings first


def finished_keys(path: Path) -> Counter[tuple[str, str]]:
    """Id and digest of every final result in a file, without a lock: what a run would skip."""
    keys: Counter[tuple[str, str]] = Counter()
    try:
        with path.open("rb") as file:
            for line in file:
                record = record_of(line) if line.endswith(b"\n") else None
                if record and is_final(record):
                    keys[record["id"], record["digest"]] += 1
    except OSError:
        return Counter()
    return keys


def record_of(line: bytes) -> dict[str, Any] | None:
    """A result line, or None where it is none.  Its id, status and digest are texts; the rest is not looked at."""
    try:
        record = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    if not isinstance(record, dict):
        return None
    job_id, status, digest = record.get("id"), record.get("status"), record.get("digest")
    return record if isinstance(job_id, str) and isinstance(status, str) and isinstance(digest, str) else None


def is_final(record: dict[str, Any]) -> bool:
    """Whether a resumed run leaves a result alone: for its status, or for the reason that it gives."""
    if record["status"] in FINAL_STATUSES:
        return True
    return record["status"] in (Status.ERROR, Status.CANCELLED) and bool(FINAL_CODES.intersection(codes_of(record)))


def codes_of(record: dict[str, Any]) -> list[str]:
    """The codes of what is wrong with a result."""
    errors = record.get("errors")
    found = [error.get("code") for error in errors if isinstance(error, dict)] if isinstance(errors, list) else []
    return [code for code in found if isinstance(code, str)]


def is_foreign(line: bytes, number: int) -> bool:
    """Whether a line that is no result shows that the file is not ours.

    Whole JSON was written by somebody else.  Anything else is damage, except on the first line, where no result before
    it says whose file it is: there it has to be the beginning of one, and if it has an end, to name what a result does.
    """
    try:
        json.loads(line)
    except RecursionError:
        return True
    except ValueError:
        begins = line.startswith(b'{"id":"') or b'{"id":"'.startswith(line)
        return number == 1 and (not begins or (line.endswith(b"\n") and b'","index":' not in line))
    return True


def cut_torn_tail(file: IO[bytes]) -> None:
    """Cuts off a last line that has no end, so that nothing is glued to it."""
    size = file.seek(0)
    for line in file:
        if line.endswith(b"\n"):
            size += len(line)
    file.truncate(size)
