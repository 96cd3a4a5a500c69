"""Processors, memory, and who starts processes here."""

import os
import platform
from collections.abc import Mapping

from batchrun.byte_counts import memory_size
from batchrun.config import Settings
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.doctor.settings import undone
from batchrun.launcher import launcher
from batchrun.machine import memory, this_machine


def machine(settings: Settings, origins: Mapping[str, str]) -> Section:
    """`origins`: of the settings, for what takes one back."""
    found, threads = memory(), settings.threads or this_machine().threads
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or threads
    chosen = "as set" if settings.threads else "one a physical core"
    limit = f", limited by {found.limit}" if found.limit else ""
    return Section(
        "machine",
        (
            Fact("platform", platform.platform()),
            Fact("python", platform.python_version()),
            Fact("processors", {"all": os.cpu_count(), "usable": usable}, f"{os.cpu_count()}, {usable} of them usable"),
            Fact("threads", threads, f"{threads}, {chosen}"),
            Fact(
                "memory",
                {"total": found.total_bytes, "available": found.available_bytes, "limit": found.limit or None},
                f"{memory_size(found.available_bytes)} of {memory_size(found.total_bytes)} available{limit}",
            ),
            Fact("started by", launcher()),
        ),
        [_too_many(threads, usable, origins)] if threads > usable else (),
    )


def _too_many(threads: int, usable: int, origins: Mapping[str, str]) -> Problem:
    what = f"{threads} threads on {usable} usable processor{'' if usable == 1 else 's'}: they wait for each other"
    return Problem(what, undone("threads", origins), stops=False)
