"""Processor time of this process and of all that it started: what must not be taken for a neighbour's.

The engine runs in a child of its own, so most of what a run computes is not in this process's own clock.  A child that
ended is in its parent's books; one that lives is asked.
"""

import os
import time
from collections.abc import Callable

import psutil

FIND_EVERY_S = 1.0  # looking through all processes takes milliseconds, and children come seldom


class OwnTime:
    """Seconds of processor time since this process began.  `clock`: monotonic seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._found_s: float | None = None
        self._children: list[psutil.Process] = []

    def seconds(self) -> float:
        """Of all processors together: this process, its children and theirs, those that live and those that ended."""
        now_s = self._clock()
        if self._found_s is None or now_s - self._found_s >= FIND_EVERY_S:
            self._found_s, self._children = now_s, _children()
        ended = os.times()
        return time.process_time() + ended.children_user + ended.children_system + sum(map(_used_s, self._children))


def _children() -> list[psutil.Process]:
    try:
        return psutil.Process().children(recursive=True)
    except psutil.Error:
        return []


def _used_s(process: psutil.Process) -> float:
    """What a process took, and those of its children that ended; nothing once it ended itself."""
    try:
        used = process.cpu_times()
    except psutil.Error:
        return 0.0
    ended_s = getattr(used, "children_user", 0.0) + getattr(used, "children_system", 0.0)
    return float(used.user + used.system + ended_s)
