"""Cuts the line of requests into bursts: as many as fit the allowance by predicted seconds, and at least one.

A burst fills as requests come, so a slow writer's first job starts at once; it is full when its predicted seconds are
spent.  Pure: planned requests and a cost model in, a yes or no out.
"""

from batchrun.cost import Cost
from batchrun.governor import Allowance
from batchrun.prefix import Planned, Prefix, Share

MOST_JOBS = 2048
"""In one burst, however short they are: what a burst holds in memory stays small."""


class Burst:
    """A burst being filled.

    `carried_s`: predicted seconds of what an earlier one took and did not begin.  `least_jobs`: taken whatever they
    cost, where rows run on from burst to burst and must not stand empty.
    """

    def __init__(
        self, number: int, allowance: Allowance, cost: Cost, rows: int, *, carried_s: float = 0.0, least_jobs: int = 1
    ) -> None:
        self.number = number
        self.allowance = allowance
        self.jobs = 0
        self.predicted_s = self._carried_s = carried_s
        self.full = False
        self._cost = cost
        self._least_jobs = least_jobs
        self._most_s = allowance.seconds
        self._rows = rows
        self._computed: set[Prefix] = set()

    def take(self, entry: Planned) -> bool:
        """Lets a request join, if it fits; the first ones always do.  The first that does not makes the burst full."""
        seconds = self._seconds(entry)
        spent = self.predicted_s + seconds > self._most_s or self.jobs >= MOST_JOBS
        if self.jobs >= self._least_jobs and spent:
            self.full = True
            return False
        self.predicted_s += seconds
        self.jobs += 1
        self._computed.update(_prefixes(entry.share))
        return True

    def widen(self, seconds: float, jobs: int) -> None:
        """What it took is begun and there is time left: it may take so many seconds more, or so many jobs at least."""
        self._most_s = self.predicted_s + seconds
        self._least_jobs = self.jobs + jobs
        self.full = self.jobs >= MOST_JOBS

    @property
    def job_s(self) -> float:
        """Predicted seconds of one job that it took, on average."""
        return (self.predicted_s - self._carried_s) / self.jobs if self.jobs else 0.0

    def _seconds(self, entry: Planned) -> float:
        """Of a request: its own part of the prompt, the prefixes that it is the first to need, and its answer."""
        request, share = entry
        pieces = [(len(request.tokens), share)]
        pieces += [(len(above.tokens), above.share) for above in _prefixes(share) if above not in self._computed]
        starts = [(length, shared.tokens if shared else 0) for length, shared in pieces]
        prefill_s = sum(self._cost.prefill_seconds(start, length - start) for length, start in starts)
        return prefill_s + self._cost.answer_seconds(len(request.tokens), request.job.max_tokens, self._rows)


def _prefixes(share: Share | None) -> list[Prefix]:
    """A shared beginning, and what it begins with itself."""
    above = []
    while share:
        above.append(share.prefix)
        share = share.prefix.share
    return above
