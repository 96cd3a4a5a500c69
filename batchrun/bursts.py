"""Cuts the line of requests into bursts: as many as fit the allowance by predicted seconds, and at least one.

A burst fills as requests come, so a slow writer's first job starts at once; it is full when its predicted seconds are
spent.  Pure: requests and a cost model in, a yes or no out.
"""

from batchrun.core import Request
from batchrun.cost import Cost
from batchrun.governor import Allowance

MOST_JOBS = 2048
"""In one burst, however short they are: what a burst holds in memory and in one prefix plan stays small."""


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

    def take(self, request: Request) -> bool:
        """Lets a request join, if it fits; the first one always does.  The first that does not makes the burst full."""
        seconds = self._cost.seconds(len(request.tokens), request.job.max_tokens, self._rows)
        spent = self.predicted_s + seconds > self.allowance.seconds or self.jobs >= MOST_JOBS
        if self.jobs and spent:
            self.full = True
            return False
        self.predicted_s += seconds
        self.jobs += 1
        return True
