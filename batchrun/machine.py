"""Asks the operating system what this machine has to give: memory and processors."""

import os
import resource
from dataclasses import dataclass
from pathlib import Path

import psutil

from batchrun.capacity import Machine


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes that there are and that can be had now.  `limit`: what keeps this process from having them all, if it is
    the container (`cgroup`) or the shell (`ulimit -v`) and not other programs."""

    total_bytes: int
    available_bytes: int
    limit: str = ""


def this_machine() -> Machine:
    """Memory available now and a thread for each physical core that this process may use."""
    return Machine(available_bytes=memory().available_bytes, threads=_threads())


def memory() -> Memory:
    """The memory of this machine, and how much of it this process may have."""
    found = psutil.virtual_memory()
    tightest = (int(found.available), "")
    limit, used = (_cgroup_number(name) for name in ("memory.max", "memory.current"))
    if limit is not None and used is not None:
        tightest = min(tightest, (max(0, limit - used), "cgroup"))
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:  # the engine's process begins with about as much as this one
        tightest = min(tightest, (max(0, space - psutil.Process().memory_info().vms), "ulimit -v"))
    return Memory(int(found.total), *tightest)


def _cgroup_number(name: str) -> int | None:
    """A figure of this container, where it has one."""
    try:
        return int(Path("/sys/fs/cgroup", name).read_text())
    except (OSError, ValueError):
        return None


def _threads() -> int:
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(usable, psutil.cpu_count(logical=False) or usable))
