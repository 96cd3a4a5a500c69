"""Who started this process, and how it is to share the machine.

A scheduler runs the same job slower than a terminal does (lower priority, efficiency cores), so what is measured under
one does not hold under the other: the launcher stands in the stats and keeps device profiles apart.
"""

import os
import sys
from collections.abc import Iterable, Mapping

import psutil

SCHEDULED = ("cron", "systemd", "launchd", "at")
PARENTS = {"cron": "cron", "crond": "cron", "anacron": "cron", "fcron": "cron", "atd": "at"}
NICENESS = 10


def launcher() -> str:
    """`terminal`, `cron`, `at`, `systemd`, `launchd`, or `other`: a script, a service of a kind not known here."""
    return named(os.environ, _parents(), is_terminal=_is_terminal(), is_mac=sys.platform == "darwin")


def named(
    environment: Mapping[str, str], parents: Iterable[tuple[int, str]], *, is_terminal: bool, is_mac: bool
) -> str:
    """The launcher, from what a process can see.  `parents`: process ids and names, nearest first."""
    if is_terminal:
        return "terminal"
    parents = list(parents)
    for _, name in parents:
        if name in PARENTS:
            return PARENTS[name]
    started = environment.get("SYSTEMD_EXEC_PID", "")  # of the process that systemd itself started
    if started in {str(os.getpid()), *(str(number) for number, _ in parents)}:
        return "systemd"
    return "launchd" if is_mac and (not parents or parents[0][0] == 1) else "other"


def lower_priority() -> bool:
    """Lets others go first, for as long as this process lives.  Whether that worked."""
    try:
        os.nice(max(0, NICENESS - os.nice(0)))
    except OSError:
        return False
    return True


def _is_terminal() -> bool:
    return any(stream is not None and stream.isatty() for stream in (sys.stdin, sys.stdout, sys.stderr))


def _parents() -> list[tuple[int, str]]:
    try:
        return [(parent.pid, parent.name()) for parent in psutil.Process().parents()]
    except psutil.Error:
        return []
