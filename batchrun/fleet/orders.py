"""What goes between a driver and its workers: orders out, reports back.  All of it can be pickled."""

from dataclasses import dataclass, replace
from typing import Any

from batchrun.core import Job, Request, Result
from batchrun.stats import BurstStats


@dataclass(frozen=True, slots=True)
class Order:
    """A job for another machine: its texts and its schema, and nothing that only this machine could look up.

    `job.index` is the number of the order; `job.meta` and its group stay with the driver.
    """

    job: Job
    digest: str

    @property
    def number(self) -> int:
        return self.job.index


def order(number: int, request: Request) -> Order:
    """The order for a request."""
    return Order(replace(request.job, index=number, meta=None, group=None), request.digest)


@dataclass(frozen=True, slots=True)
class Report:
    """What a worker did since its last one.

    `results`: their `index` is the number of their order, their `burst` the worker's own.  `wanted_jobs`: orders that
    it should have, those under way among them.  `ended`: it takes no more, and why, if not because it was told to.
    """

    results: tuple[Result, ...] = ()
    bursts: tuple[BurstStats, ...] = ()
    said: tuple[str, ...] = ()
    wanted_jobs: int = 0
    ended: bool = False
    failure: str = ""
    gave_up: str = ""


@dataclass(frozen=True, slots=True)
class Likeness:
    """What all workers of a run must have in common, or one corpus would have answers of two kinds."""

    batchrun: str  # version
    engine: str
    model: str  # hash of the weights
    template: str  # hash of the chat template

    def difference(self, other: "Likeness") -> str:
        """The first thing in which another differs, with both values; empty if none."""
        for name in self.__dataclass_fields__:
            ours, theirs = getattr(self, name), getattr(other, name)
            if ours != theirs:
                return f"{name} {theirs[:16]} there, {ours[:16]} here"
        return ""


@dataclass(frozen=True, slots=True)
class Opening:
    """What a worker is told at first.  `settings`: values by name, all that one of another version could read."""

    version: str
    settings: dict[str, Any]
    longest_tokens: int | None
