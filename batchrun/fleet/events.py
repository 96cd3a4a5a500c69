"""What a driver hears of its workers, and what a fleet is to it: the seam between the two."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from batchrun.fleet.orders import Order, Report


@dataclass(frozen=True, slots=True)
class Joined:
    """A worker is ready.  `context`: tokens that a slot of it holds; `wanted_jobs`: orders that it should have."""

    worker: str
    context: int
    wanted_jobs: int


@dataclass(frozen=True, slots=True)
class Reported:
    worker: str
    report: Report


@dataclass(frozen=True, slots=True)
class Left:
    """A worker is gone.  `blame`: what it ran may be why; not so where its machine went away."""

    worker: str
    why: str
    blame: bool


Event = Joined | Reported | Left


class Fleet(Protocol):
    """Workers, however they are reached.  Those that cannot join are told of by the fleet itself."""

    @property
    def hopeless(self) -> str:
        """Why no worker is there and none will come; empty while there is hope."""
        ...

    def poll(self, wait_s: float) -> Sequence[Event]:
        """What happened; waits so long for something."""
        ...

    def give(self, worker: str, orders: tuple[Order, ...], lost: tuple[int, ...]) -> None: ...

    def refuse(self, worker: str) -> None:
        """Lets a worker go that joined and is not wanted."""
        ...

    def stop(self, *, timed_out: bool) -> None:
        """All are to end what they run within the grace time."""
        ...
