"""The jobs read ahead of the burst, in the order in which they are to run.

Jobs that share a beginning may lie far apart in the input, and a burst takes only a dozen or two.  So prefixes are
planned over a window of requests that is longer than a burst: sharers come to stand side by side, and a prefix that is
in a slot when a burst ends serves the next one too.  The group of the longest waiting request is always first, so
nobody is overtaken for ever.
"""

from collections import deque
from collections.abc import Callable, Sequence

from batchrun.core import Request
from batchrun.prefix import Planned

MOST_JOBS = 256
MOST_TOKENS = 1 << 20
"""Of prompts held in memory; one request is held however long it is."""


class Window:
    """Requests that wait for a burst.

    `plan`: orders requests and says what each shares; told whether these are the last ones, long ones may then lead.
    """

    def __init__(self, plan: Callable[[Sequence[Request], bool], list[Planned]]) -> None:
        self.most_jobs = MOST_JOBS  # may be raised for those who run more at a time
        self._plan = plan
        self._last = False
        self._planned: deque[Planned] = deque()
        self._new: list[Request] = []
        self._tokens = 0

    def __len__(self) -> int:
        return len(self._planned) + len(self._new)

    @property
    def wants(self) -> int:
        """How many more requests to read now.  It is topped up when half of it is gone: every time costs a plan."""
        low = len(self) <= self.most_jobs // 2 and self._tokens <= MOST_TOKENS // 2
        return self.most_jobs - len(self) if low else 0

    @property
    def full(self) -> bool:
        return len(self) >= self.most_jobs or self._tokens >= MOST_TOKENS

    def add(self, request: Request) -> None:
        self._new.append(request)
        self._tokens += len(request.tokens)

    def discard(self, request: Request) -> None:
        """Takes out a request that is not to run any more, if it is here.  What others share with it stays planned."""
        before = len(self)
        self._new = [other for other in self._new if other is not request]
        self._planned = deque(entry for entry in self._planned if entry.request is not request)
        self._tokens -= len(request.tokens) * (before - len(self))

    def first(self, *, last: bool) -> Planned | None:
        """Who is next; None if nobody waits.  `last`: no more requests will come."""
        planned = self.planned(last=last)
        return planned[0] if planned else None

    def planned(self, *, last: bool) -> Sequence[Planned]:
        """All that wait, in their order."""
        if self._new or (self._planned and last > self._last):
            waiting = [entry.request for entry in self._planned] + self._new
            self._planned = deque(self._plan(waiting, last))
            self._new, self._last = [], last
        return self._planned

    def pop(self) -> None:
        """Takes the first one out."""
        self._tokens -= len(self._planned.popleft().request.tokens)

    def take(self, entries: Sequence[Planned]) -> None:
        """Takes these out."""
        taken = {id(entry) for entry in entries}
        self._planned = deque(entry for entry in self._planned if id(entry) not in taken)
        self._tokens -= sum(len(entry.request.tokens) for entry in entries)
