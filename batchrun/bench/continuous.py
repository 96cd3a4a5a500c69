"""Runs a workload through batchrun itself, in this process, with the results kept in memory."""

import json
import time
from collections.abc import Sequence

from batchrun.assembly import Parts, job_reader
from batchrun.bench.figures import Figures, figures
from batchrun.bench.workloads import Record
from batchrun.core import Job, Result, Status
from batchrun.errors import BatchrunError
from batchrun.runner import Ends, Runner
from batchrun.source import Line
from batchrun.stats import BurstStats


class Memory:
    """Both ends of a benchmark run: lines from a list, results and stats into lists; nobody stops it or looks on."""

    blank = 0
    next_burst = 1
    stopped = False

    def __init__(self, records: Sequence[Record]) -> None:
        self.total: int | None = len(records)
        self.results: list[Result] = []
        self.bursts: list[BurstStats] = []
        self._lines = [Line(number, json.dumps(record).encode()) for number, record in enumerate(records, 1)]
        self._next = 0

    @property
    def ended(self) -> bool:
        return self._next >= len(self._lines)

    def next(self, wait_s: float) -> Line | None:
        if self.ended:
            return None
        self._next += 1
        return self._lines[self._next - 1]

    def claim(self, job_id: str, digest: str) -> Status | None:
        return None

    def append(self, entry: Result | BurstStats) -> None:
        if isinstance(entry, Result):
            self.results.append(entry)
        else:
            self.bursts.append(entry)

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass

    def wait(self, seconds: float) -> bool:
        return False

    def say(self, text: str) -> None:
        pass

    def saw(self, result: Result | None) -> None:
        pass

    def tick(self) -> None:
        pass


def run(parts: Parts, records: Sequence[Record]) -> Figures:
    """One run.  Loading the weights is not part of the wall time.  Raises BatchrunError if a job was rejected."""
    memory = Memory(records)
    ends = Ends(memory, memory, memory, memory, memory, time.perf_counter)
    Runner(parts, job_reader(parts.settings, None), ends, longest_tokens(parts, records)).run()
    rejected = [result for result in memory.results if result.status is Status.REJECTED]
    if rejected:
        raise BatchrunError(f"benchmark job {rejected[0].id} was rejected: {rejected[0].errors[0].message}")
    return figures(memory.results, memory.bursts)


def longest_tokens(parts: Parts, records: Sequence[Record]) -> int:
    """What the longest job needs."""
    reader = job_reader(parts.settings, None)
    jobs = [reader.read(json.dumps(record).encode(), number) for number, record in enumerate(records, 1)]
    return max(parts.preparer.prepare(job, "", 0.0).need_tokens for job in jobs if isinstance(job, Job))
