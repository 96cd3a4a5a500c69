"""What slows a process on Linux without heating the machine: quota, neighbours, the host, want of memory.

Cumulative seconds since boot; whoever asks compares two moments.  The kernel adds up what a quota and the host held
back over all processors; a thread of ours waited for its share of that.  Sources: admin-guide/cgroup-v2 and
accounting/psi in the kernel's documentation, proc(5).
"""

import os
from dataclasses import replace
from pathlib import Path

from batchrun.heat import Contention
from batchrun.thermal.files import text
from batchrun.thermal.own_time import OwnTime

PAGE_S = 1e-4  # to bring one page back from a disk: for kernels that do not count such waiting themselves
BUSY_FIELDS, STEAL_FIELD = (1, 2, 3, 6, 7), 8  # of the `cpu` line of /proc/stat


class LinuxLoad:
    """Counters of this process's surroundings, under a root folder.  `threads`: that compute in a run."""

    def __init__(self, root: Path, threads: int, own: OwnTime | None = None) -> None:
        self._root = root
        self._threads = threads
        self._own = own or OwnTime()

    def contention(self) -> Contention:
        groups = self._groups()
        pressures = [*(group / "cpu.pressure" for group in groups), self._root / "proc/pressure/cpu"]
        quota_s = self._quota_s(groups)
        taken = self._processors() or Contention()
        return replace(
            taken,
            quota_s=None if quota_s is None else quota_s / self._threads,
            pressure_s=next((found for path in pressures if (found := _waited_s(path)) is not None), None),
            stall_s=self._stall_s(),
        )

    def _groups(self) -> list[Path]:
        """The control groups that hold this process and can have a quota, the innermost first."""
        found: list[Path] = []
        for line in (text(self._root / "proc/self/cgroup") or "").splitlines():
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            mounts = ("unified", "") if not controllers else (controllers, "cpu,cpuacct", "cpu")
            if controllers and "cpu" not in controllers.split(","):
                continue
            for mount in mounts:
                top = self._root / "sys/fs/cgroup" / mount
                inner = top / path.strip("/")
                if (top / "cgroup.procs").exists() or inner.exists() or (top / "cpu.stat").exists():
                    inside = [inner, *inner.parents]
                    found += inside[: inside.index(top) + 1]
                    break
        return found

    def _quota_s(self, groups: list[Path]) -> float | None:
        """Seconds held back by any quota above us, over all processors; None where no group counts them."""
        total_s = None
        for group in groups:
            for line in (text(group / "cpu.stat") or "").splitlines():
                name, _, value = line.partition(" ")
                unit = {"throttled_usec": 1e-6, "throttled_time": 1e-9}.get(name)
                if unit and value.isdigit():
                    total_s = (total_s or 0.0) + int(value) * unit
        return total_s

    def _processors(self) -> Contention | None:
        """What other processes took, and what the host took; None where the kernel does not count it, or not us."""
        lines = [line.split() for line in (text(self._root / "proc/stat") or "").splitlines()]
        fields = lines[0] if lines else []
        if len(fields) <= STEAL_FIELD or fields[0] != "cpu" or not all(field.isdigit() for field in fields[1:]):
            return None
        tick_s = 1 / os.sysconf("SC_CLK_TCK")
        processors = max(1, sum(line[0].startswith("cpu") for line in lines if line) - 1)
        busy_s = sum(int(fields[place]) for place in BUSY_FIELDS) * tick_s
        others_s = busy_s - self._own.seconds()
        if others_s < 0:
            return None
        steal_s = int(fields[STEAL_FIELD]) * tick_s / min(self._threads, processors)
        return Contention(others_s=others_s / processors, steal_s=steal_s, processors=processors)

    def _stall_s(self) -> float | None:
        waited_s = _waited_s(self._root / "proc/pressure/memory")
        if waited_s is not None:
            return waited_s
        names = dict(line.split()[:2] for line in (text(self._root / "proc/vmstat") or "").splitlines() if " " in line)
        pages = [int(names[name]) for name in ("pswpin", "pswpout") if names.get(name, "").isdigit()]
        return sum(pages) * PAGE_S if pages else None


def _waited_s(path: Path) -> float | None:
    """The `some` total of a pressure file, in seconds."""
    for line in (text(path) or "").splitlines():
        if line.startswith("some "):
            total = line.rpartition("total=")[2]
            return int(total) * 1e-6 if total.isdigit() else None
    return None
