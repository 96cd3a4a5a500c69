"""The ends of a benchmark run, in memory: lines that arrive at set times, results and stats in lists."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from batchrun.bench.workloads import Workload
from batchrun.core import Result
from batchrun.glance import Glance
from batchrun.line import Line
from batchrun.sink import NoPast
from batchrun.stats import BurstStats

LOOK_S = 0.005


class MemorySource:
    """The lines of a workload, each from its arrival on, counted from the first look."""

    blank = 0

    def __init__(self, workload: Workload) -> None:
        self.total: int | None = len(workload.records)
        self._arrivals_s = workload.arrivals_s
        self._lines = [Line(number, json.dumps(record).encode()) for number, record in enumerate(workload.records, 1)]
        self._next = 0
        self.began_s: float | None = None

    @property
    def ended(self) -> bool:
        return self._next >= len(self._lines)

    def next(self, wait_s: float) -> Line | None:
        now_s = time.perf_counter()
        if self.began_s is None:
            self.began_s = now_s
        if self.ended:
            return None
        early_s = self._arrivals_s[self._next] - (now_s - self.began_s)
        if early_s > 0 and wait_s:
            time.sleep(min(early_s, wait_s, LOOK_S))
        if early_s > 0:
            return None
        self._next += 1
        return self._lines[self._next - 1]


class MemorySink(NoPast):
    """Results and stats lines, kept, with the moment at which each result came."""

    next_burst = 1

    def __init__(self) -> None:
        self.results: list[Result] = []
        self.ended_s: list[float] = []
        self.bursts: list[BurstStats] = []

    def append(self, entry: Result | BurstStats) -> None:
        if isinstance(entry, Result):
            self.results.append(entry)
            self.ended_s.append(time.perf_counter())
        else:
            self.bursts.append(entry)

    def close(self) -> None:
        pass


class Unattended:
    """Nobody stops the run and nobody looks on."""

    stopped = False
    timed_out = False

    def overdue(self, grace_s: float) -> bool:
        return False

    def wait(self, seconds: float) -> bool:
        return False

    def say(self, text: str) -> None:
        pass

    def saw(self, result: Result | None) -> None:
        pass

    def tick(self, look: Callable[[], Glance | None]) -> None:
        pass


def latencies_from_arrival(
    results: Sequence[Result], ended_s: Sequence[float], workload: Workload, began_s: float
) -> list[Result]:
    """The results with their times counted from arrival and not from the moment a burst took them."""
    adjusted = []
    for result, end_s in zip(results, ended_s, strict=True):
        assert result.timing is not None, "a benchmark job runs"
        total_s = end_s - began_s - workload.arrivals_s[result.index - 1]
        after_first_s = result.timing.total_s - (result.timing.ttft_s or 0.0)
        timing = replace(result.timing, total_s=total_s, ttft_s=total_s - after_first_s)
        adjusted.append(replace(result, timing=timing))
    return adjusted
