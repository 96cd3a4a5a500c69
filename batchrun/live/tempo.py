"""Counts results, and says how fast they come and how long the rest will take.  Pure: moments in, numbers out."""

from collections import Counter, deque
from dataclasses import dataclass

from batchrun.core import Result, Status

LOOKS_BACK_S = 120.0
"""Time left goes by the results of so long: a run that slowed down is not told by its fast beginning."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Jobs so far.  `earlier`: done before this run; `total`, `left_s`, `per_min`: None where nobody can tell."""

    done: int
    earlier: int
    total: int | None
    statuses: tuple[tuple[str, int], ...]  # the most frequent first
    per_min: float | None  # validated results
    ran_s: float
    left_s: float | None


class Tempo:
    """Follows one run from the moment `began_s` on.  `total`: jobs, where the number is known."""

    def __init__(self, total: int | None, began_s: float) -> None:
        self._total = total
        self._began_s = began_s
        self._statuses: Counter[str] = Counter()
        self._earlier = 0
        self._new = 0
        self._past = deque([(began_s, 0)])  # moments, and results until then

    def saw(self, result: Result | None) -> None:
        """A job got its result, or (None) was found done."""
        if result is None:
            self._earlier += 1
        else:
            self._new += 1
            self._statuses[result.status.value] += 1

    def counts(self, now_s: float) -> Counts:
        while len(self._past) > 1 and self._past[1][0] <= now_s - LOOKS_BACK_S:
            self._past.popleft()
        since_s, before = self._past[0]
        self._past.append((now_s, self._new))
        done, ran_s = self._earlier + self._new, now_s - self._began_s
        left = None if self._total is None else max(0, self._total - done)
        lately = (self._new - before) / max(now_s - since_s, 1e-9)
        per_min = 60 * self._statuses[Status.OK] / max(ran_s, 1e-9) if self._new else None
        left_s = 0.0 if left == 0 else left / lately if left and lately else None
        statuses = tuple(self._statuses.most_common())
        return Counts(done, self._earlier, self._total, statuses, per_min, ran_s, left_s)
