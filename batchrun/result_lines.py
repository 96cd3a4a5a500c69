"""Reads lines of results files: which are results, which were torn in mid-write, and what they are known by."""

import hashlib
import json
from collections import Counter
from pathlib import Path
from typing import IO

from batchrun.core import FINAL_STATUSES


def finished_keys(path: Path) -> Counter[tuple[str, str]]:
    """Id and digest of every final result in a file, without a lock: what a run would skip."""
    keys: Counter[tuple[str, str]] = Counter()
    try:
        with path.open("rb") as file:
            for line in file:
                record = record_of(line) if line.endswith(b"\n") else None
                if record and record["status"] in FINAL_STATUSES:
                    keys[record["id"], record["digest"]] += 1
    except OSError:
        return Counter()
    return keys


def record_of(line: bytes) -> dict[str, str] | None:
    """A result line, or None where it is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return None
    is_result = isinstance(record, dict) and all(isinstance(record.get(k), str) for k in ("id", "status", "digest"))
    return record if is_result else None


def is_foreign(line: bytes, number: int) -> bool:
    """Whether a line that is no result shows that the file is not ours.

    Whole JSON was written by somebody else.  Anything else is damage, except on the first line, where no result before
    it says whose file it is: there it has to be the beginning of one.
    """
    try:
        json.loads(line)
    except RecursionError:
        return True
    except ValueError:
        begins = line.startswith(b'{"id":"') or b'{"id":"'.startswith(line)
        return number == 1 and (line.endswith(b"\n") or not begins)
    return True


def cut_torn_tail(file: IO[bytes]) -> None:
    """Cuts off a last line that has no end, so that nothing is glued to it."""
    size = file.seek(0)
    for line in file:
        if line.endswith(b"\n"):
            size += len(line)
    file.truncate(size)


def key_of(*parts: str) -> bytes:
    return hashlib.blake2b("\0".join(parts).encode(errors="surrogatepass"), digest_size=16).digest()
