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
    """A burst being filled."""

    def __init__(self, number: int, allowance: Allowance, cost: Cost, rows: int) -> None:
        self.number = number
        self.allowance = allowance
        self.jobs = 0
        self.predicted_s = 0.0
        self.full = False
        self._cost = cost
        self._rows = rows
        self._computed: set[Prefix] = set()

    def take(self, entry: Planned) -> bool:
        """Lets a request join, if it fits; the first one always does.  The first that does not makes the burst full."""
        seconds = self._seconds(entry)
        spent = self.predicted_s + seconds > self.allowance.seconds or self.jobs >= MOST_JOBS
        if self.jobs and spent:
            self.full = True
            return False
        self.predicted_s += seconds
        self.jobs += 1
        self._computed.update(_prefixes(entry.share))
        return True

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
