"""Runs one of these modules in a process of its own, which may die of what it does."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from batchrun.printable import printable


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended: `by` a signal, or with `words` on its standard error, or well."""

    out: bytes
    status: int
    by: str = ""
    words: str = ""


def run_apart(module: str, *arguments: str | Path, patience_s: float | None = None) -> Ended:
    """Runs `batchrun.backends.MODULE`.  Raises subprocess.TimeoutExpired."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", f"batchrun.backends.{module}", *map(str, arguments)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(place for place in sys.path if place)},
        timeout=patience_s,
        start_new_session=True,  # a terminal's Ctrl-C is for the parent
        check=False,
    )
    by = signal.Signals(-done.returncode).name if done.returncode < 0 else ""
    words = printable(done.stderr.decode(errors="replace").strip().split("\n")[-1])[:500] if done.returncode else ""
    return Ended(done.stdout, done.returncode, by, words)
