"""Where a runner's requests come from: the seam between it and an input, or whoever hands jobs to this machine."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from batchrun.core import Request
from batchrun.outcomes import Outcomes


@dataclass(frozen=True, slots=True)
class Room:
    """What a request must fit into.  `context`: tokens that a slot holds, once there is one."""

    fits: Callable[[Request], bool]
    context: Callable[[], int]


class Supply(Protocol):
    """Requests, one at a time; each is an errand of the run's outcomes when it is given."""

    @property
    def blank(self) -> int:
        """Lines of nothing but space, so far."""
        ...

    @property
    def ended(self) -> bool:
        """No request will come any more."""
        ...

    def next(self, stopped: Callable[[], bool], *, wait: bool) -> Request | None:
        """The next request, or None if there is none now.  `wait`: for a moment, since nothing else is to be done."""
        ...


Supplier = Callable[[Outcomes, Room], Supply]
"""Opens the supply of a run."""
