"""Who runs what: orders to workers, by what each can take, what it has computed before, and who died over what.

Pure: joins, reports and deaths in, orders out.

* A worker has as many orders as it asked for, which is a burst by its own speed and heat.
* Requests that share a beginning go to a worker that has computed it; a worker takes up a beginning of its own before
  one that another has, and helps out with those only where there is nothing else.
* What a worker had when it died goes back to the front.  Each of these then runs alone, for any of them may be the one
  to blame; one that brings down a second worker so is given up.  One worker at a time is emptied for that.
* Towards the end of the input a worker has no more than its part of what is left, by the results that it has brought,
  so that all end together.  When nothing waits any more, idle workers are offered second copies of what others still
  hold, each order once; the first result counts.  (Backup tasks are from MapReduce, Dean and Ghemawat, 2004.)
"""

import math
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from batchrun.core import Request
from batchrun.prefix import Planned, Prefix

MOST_DEATHS = 2
MOST_FAILURES = 8
PREFIXES_KEPT = 4096
REFILL = 4  # a worker gets more when this part of what it wants is missing: every message costs something


@dataclass(slots=True, eq=False)
class Flight:
    """A request under way.

    `holders`: the workers that have it; `deaths`: of workers that had it; `shunned`: one whose engine failed under it.
    """

    number: int
    request: Request
    deaths: int = 0
    offered: bool = False
    shunned: str = ""
    holders: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Worker:
    """`least`: orders that keep all its rows busy.  `results`: that it has brought so far."""

    wanted: int
    least: int
    results: int = 0
    failures: int = 0  # orders in a row under which its engine failed
    flights: dict[int, Flight] = field(default_factory=dict)  # in the order in which they were given
    alone: bool = False  # runs one that may have ended a worker

    @property
    def missing(self) -> int:
        return self.wanted - len(self.flights)


class Dispatch:
    """The orders of one run."""

    def __init__(self) -> None:
        self._workers: dict[str, _Worker] = {}
        self._back: deque[Flight] = deque()  # of workers that left without blame
        self._suspects: deque[Flight] = deque()
        self._open: dict[int, Flight] = {}
        self._owners: OrderedDict[int, set[str]] = OrderedDict()  # by the hash of a prefix: who has computed it
        self._next = 1

    def __len__(self) -> int:
        """Requests that have no result yet."""
        return len(self._open)

    @property
    def workers(self) -> tuple[str, ...]:
        return tuple(self._workers)

    # -- what happens

    def join(self, worker: str, wanted: int) -> None:
        assert worker not in self._workers, "workers have names of their own"
        self._workers[worker] = _Worker(wanted, wanted)

    def wants(self, worker: str, jobs: int) -> None:
        """A worker says how many orders it should have."""
        self._workers[worker].wanted = max(1, jobs)

    def leave(self, worker: str, *, blame: bool) -> list[Request]:
        """A worker is gone; `blame`: one of its orders may be why.  Gives the requests that are given up."""
        gone, given_up = self._workers.pop(worker, _Worker(0, 0)), []
        for flight in gone.flights.values():
            flight.holders.remove(worker)
            flight.deaths += blame
            flight.offered = False
            if blame and len(gone.flights) == 1 and flight.deaths >= MOST_DEATHS:
                given_up.append(self._open.pop(flight.number).request)
            elif not flight.holders:
                (self._suspects if flight.deaths else self._back).append(flight)
        for owners in self._owners.values():
            owners.discard(worker)  # whoever comes in its place has computed nothing
        return given_up

    def failed(self, worker: str, number: int) -> bool:
        """A worker's engine failed under an order twice, which may be the worker's own doing.

        Whether another is to try, alone.
        """
        here, flight = self._workers[worker], self._open.get(number)
        here.failures += 1
        if not flight or flight.deaths or len(self._workers) < 2:
            return False
        here.flights.pop(number, None)
        flight.holders = [holder for holder in flight.holders if holder != worker]
        flight.deaths, flight.shunned = 1, worker
        if not flight.holders:
            self._suspects.append(flight)
        return True

    def is_sick(self, worker: str) -> bool:
        """Whether its engine fails under everything, while others could do the work."""
        return self._workers[worker].failures >= MOST_FAILURES and len(self._workers) > 1

    def ended(self, worker: str, number: int, *, well: bool) -> Request | None:
        """A worker has a result.  Gives its request, or None if that has one already.  `well`: its engine held."""
        here = self._workers[worker]
        here.results += 1
        here.failures = 0 if well else here.failures
        if here.flights.pop(number, None):
            here.alone = False
        flight = self._open.pop(number, None)
        return flight.request if flight else None

    def losers(self, number: int) -> list[str]:
        """The workers that still run what has its result now; they are to hear of it."""
        losers = [name for name, each in self._workers.items() if each.flights.pop(number, None)]
        for name in losers:
            self._workers[name].alone = False
        return losers

    def drop(self, request: Request) -> list[tuple[str, int]]:
        """A request need not run any more.  Gives the workers that have it, and its number."""
        flight = next((each for each in self._open.values() if each.request is request), None)
        if not flight:
            return []
        del self._open[flight.number]
        for queue in (self._back, self._suspects):
            if flight in queue:
                queue.remove(flight)
        return [(name, flight.number) for name in self.losers(flight.number)]

    # -- who runs what

    def is_hungry(self, worker: str) -> bool:
        """Whether it is time to give it orders."""
        here = self._workers[worker]
        return not here.alone and here.missing * REFILL >= here.wanted

    @property
    def wanted_jobs(self) -> int:
        """That all workers together should have."""
        return sum(each.wanted for each in self._workers.values())

    def pick(self, worker: str, waiting: Sequence[Planned], *, last: bool) -> tuple[list[Flight], list[Planned]]:
        """Orders for a worker now, and which of those that wait were taken for them.

        `last`: no more will come to wait.
        """
        here = self._workers[worker]
        assert self.is_hungry(worker), "a worker is given orders when it wants some"
        if (suspect := self._suspect_for(worker)) and (not here.flights or self._drains(worker, suspect)):
            if here.flights:
                return [], []  # until it is idle
            here.alone = True
            self._suspects.remove(suspect)
            return [self._given(worker, suspect)], []
        flights = [self._given(worker, self._back.popleft()) for _ in range(min(here.missing, len(self._back)))]
        left = len(waiting) + sum(len(each.flights) for each in self._workers.values())
        most = max(here.least, self._part(here, left)) if last else here.wanted
        taken = self._chosen(worker, waiting, min(here.missing, most - len(here.flights)))
        for entry in taken:
            flight = Flight(self._next, entry.request)
            self._next += 1
            self._open[flight.number] = flight
            flights.append(self._given(worker, flight))
        if last and not flights and not here.flights:
            flights = self._second_copies(worker)
        return flights, taken

    def _suspect_for(self, worker: str) -> Flight | None:
        """One that may run here: on whoever it failed it is not tried again while there are others."""
        return next((each for each in self._suspects if each.shunned != worker or len(self._workers) < 2), None)

    def _drains(self, worker: str, suspect: Flight) -> bool:
        """Whether it is this worker that runs empty for a suspect; the others go on with their work."""
        return worker == next(name for name in self._workers if name != suspect.shunned or len(self._workers) < 2)

    def _part(self, worker: _Worker, orders: int) -> int:
        """How many of so many orders it would do while the others do the rest."""
        everybody = sum(each.results + 1 for each in self._workers.values())
        return math.ceil(orders * (worker.results + 1) / everybody)

    def _given(self, worker: str, flight: Flight) -> Flight:
        flight.holders.append(worker)
        self._workers[worker].flights[flight.number] = flight
        return flight

    def _chosen(self, worker: str, waiting: Sequence[Planned], count: int) -> list[Planned]:
        """Those whose beginning it has; then those that nobody has; then any."""
        if count <= 0:
            return []
        homes: dict[int, set[str] | None] = {}
        ranked: tuple[list[Planned], ...] = ([], [], [])
        for entry in waiting:
            owners = self._owners_of(entry.share.prefix, homes) if entry.share else None
            ranked[1 if not owners else 0 if worker in owners else 2].append(entry)
            if len(ranked[0]) == count:
                break
        taken = [*ranked[0], *ranked[1], *ranked[2]][:count]
        for prefix in {id(entry.share.prefix): entry.share.prefix for entry in taken if entry.share}.values():
            self._owns(worker, prefix)
        return taken

    def _owners_of(self, prefix: Prefix, homes: dict[int, set[str] | None]) -> set[str] | None:
        if id(prefix) not in homes:
            owners = self._owners.get(hash(prefix.tokens))
            homes[id(prefix)] = owners and {name for name in owners if name in self._workers}
        return homes[id(prefix)]

    def _owns(self, worker: str, prefix: Prefix) -> None:
        key = hash(prefix.tokens)
        self._owners.setdefault(key, set()).add(worker)
        self._owners.move_to_end(key)
        if len(self._owners) > PREFIXES_KEPT:
            self._owners.popitem(last=False)

    def _second_copies(self, worker: str) -> list[Flight]:
        """What the workers that have longest to go were given last: they have hardly begun it."""
        here, copies = self._workers[worker], list[Flight]()
        others = [each for name, each in self._workers.items() if name != worker and not each.alone]
        held = [(each, [f for f in each.flights.values() if not f.offered and not f.deaths]) for each in others]
        most = min(here.wanted, self._part(here, sum(len(flights) for _, flights in held)))
        while len(copies) < most:
            _, flights = max(held, key=lambda each: len(each[1]) / (each[0].results + 1))
            flight = flights.pop()
            flight.offered = True
            copies.append(self._given(worker, flight))
        return copies
