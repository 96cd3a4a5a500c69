"""Small files of the kernel, under a root folder that is `/` on a machine and a copy in tests."""

import os
from pathlib import Path


def text(path: Path) -> str | None:
    """The file's text without white space around it; None where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return None


def number(path: Path) -> int | None:
    """The whole number that a file holds; None where it holds none or cannot be read."""
    found = text(path)
    try:
        return int(found) if found is not None else None
    except ValueError:
        return None


def celsius(path: Path) -> float | None:
    """A temperature in thousandths of a degree, where it is one that silicon can have."""
    found = number(path)
    return found / 1000 if found is not None and 0 < found < 150_000 else None


def is_readable(path: Path) -> bool:
    """Whether it is a folder whose entries can be listed: one that cannot be is not an empty one."""
    try:
        os.listdir(path)
    except OSError:
        return False
    return True


def folders(path: Path, pattern: str) -> list[Path]:
    """The entries that match, in the order of their numbers; none where the folder cannot be read."""
    try:
        return sorted(path.glob(pattern), key=lambda entry: (len(entry.name), entry.name))
    except OSError:
        return []
