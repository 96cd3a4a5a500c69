"""The wanted answer as a user shows it: one JSON object or several, given as text or in files."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from batchrun.errors import JobError, UsageError
from batchrun.records import parse_object, shown

SHAPE = """--example '{"name": "Ann", "mood": "good|bad", "topics": ["tea"]}'"""
MOST_CHARACTERS, MOST_CHOICES = 40, 50


def examples(given: Sequence[str]) -> list[dict[str, Any]]:
    """The objects that `--example` stands for, each time it is given: JSON, or a file of one object or one a line.

    Raises UsageError.
    """
    found: list[dict[str, Any]] = []
    for text in given:
        found += [_object(text, "--example")] if text.lstrip().startswith(("{", "[", '"')) else _from_file(text)
    if not found:
        raise UsageError(f"--example is missing; expected one answer as you want it: {SHAPE}")
    return found


def choices(text: str) -> list[str] | None:
    """What `good|bad` offers; None for a text that offers nothing."""
    parts = [part.strip() for part in text.split("|")]
    fits = all(part and len(part) <= MOST_CHARACTERS for part in parts) and len(set(parts)) == len(parts)
    return parts if fits and 2 <= len(parts) <= MOST_CHOICES else None


def _from_file(name: str) -> list[dict[str, Any]]:
    try:
        text = Path(name).read_text(encoding="utf-8-sig")
    except FileNotFoundError as error:
        raise UsageError(f"--example {name[:80]!r} is neither JSON nor a file; expected {SHAPE}") from error
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"--example {name[:80]!r} cannot be read: {reason}") from error
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
        if len(lines) > 1 and lines[0][1].rstrip().endswith("}"):
            return [_object(line, f"--example {name}, line {number}") for number, line in lines]
    return [_object(text, f"--example {name}")]


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        found = parse_object(text.strip().encode())
    except JobError as error:
        raise UsageError(f"{where} holds {text.strip()[:40]!r}: {error}; such as {SHAPE}") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{where} is not UTF-8; expected UTF-8 text") from error
    if not found:
        raise UsageError(f"{where} is {shown(found)}; expected an object with a key for each thing you want to know")
    return found
