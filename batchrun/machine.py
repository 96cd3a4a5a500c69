"""Asks the operating system what this machine has to give: memory and processors."""

import os
from pathlib import Path

import psutil

from batchrun.capacity import Machine


def this_machine() -> Machine:
    """Memory available now and a thread for each physical core that this process may use."""
    return Machine(available_bytes=_available_bytes(), threads=_threads())


def _available_bytes() -> int:
    available = int(psutil.virtual_memory().available)
    limit, used = (_cgroup_number(name) for name in ("memory.max", "memory.current"))
    return available if limit is None or used is None else min(available, max(0, limit - used))


def _cgroup_number(name: str) -> int | None:
    """A figure of this container, where it has one."""
    try:
        return int(Path("/sys/fs/cgroup", name).read_text())
    except (OSError, ValueError):
        return None


def _threads() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))
