"""One worker of a fleet: the runner of a single machine, whose lines come as orders and whose results leave as reports.

A plain class of plain methods; whatever carries them between machines is applied where it is used.  The model is opened
once and stays loaded; bursts, rests, tries and probes are this machine's own affair, as in a run of its own.
"""

import hashlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from batchrun import __version__
from batchrun.assembly import Parts, engine_and_formats, open_parts
from batchrun.config import Settings
from batchrun.core import Rejection, Request, Result
from batchrun.errands import Errand
from batchrun.errors import BatchrunError, JobError
from batchrun.fleet.orders import Likeness, Opening, Order, Report
from batchrun.glance import Glance
from batchrun.launcher import lower_priority
from batchrun.machine import this_machine
from batchrun.outcomes import Outcomes
from batchrun.pacing import paced
from batchrun.results import reject
from batchrun.runner import Ends, Runner
from batchrun.sink import NoPast
from batchrun.stats import BurstStats
from batchrun.supply import Room, Supplier
from batchrun.thermal import open_sensors

IDLE_WAIT_S = 0.2  # between two looks at an empty inbox, and at whether to stop
LAUNCHER = "ray"


class Inbox:
    """Orders that wait on this machine, as a runner's supply."""

    blank = 0

    def __init__(self, idle_wait_s: float = IDLE_WAIT_S) -> None:
        self._idle_wait_s = idle_wait_s
        self._orders: deque[Order] = deque()
        self._lost: set[int] = set()  # orders to be ended
        self._changed = threading.Condition()

    def supplier(self, parts: Parts, clock: Callable[[], float]) -> Supplier:
        def open_supply(outcomes: Outcomes, room: Room) -> "Inbox":
            self._parts, self._clock, self._outcomes = parts, clock, outcomes
            return self

        return open_supply

    @property
    def ended(self) -> bool:
        return False  # it is told to stop

    def put(self, orders: Iterable[Order], lost: Iterable[int]) -> None:
        with self._changed:
            self._orders.extend(orders)
            self._lost |= set(lost)
            self._orders = deque(each for each in self._orders if each.number not in self._lost)
            self._changed.notify()

    def next(self, stopped: Callable[[], bool], *, wait: bool) -> Request | None:
        while True:
            with self._changed:
                if wait and not self._orders and not stopped():
                    self._changed.wait(self._idle_wait_s)
                if not self._orders:
                    return None
                taken = self._orders.popleft()
            if request := self._prepared(taken):
                return request

    def _prepared(self, taken: Order) -> Request | None:
        job = taken.job
        try:
            request = self._parts.preparer.prepare(job, taken.digest, self._clock())
        except JobError as error:
            refused = Rejection(job.index, job.id, error.problem, taken.digest)
            self._outcomes.record(reject(refused, self._parts.model.card.name))
            return None
        self._outcomes.add(Errand(request))
        return self._outcomes.ready.popleft()

    def end_lost(self) -> None:
        """Has the orders ended that somebody else was quicker with."""
        with self._changed:
            lost, self._lost = self._lost, set()
        if lost:
            self._outcomes.lost += [each for each in self._outcomes.errands if each.job.index in lost]


class Outbox(NoPast):
    """What this machine has to report: a runner's sink, its stats, and who looks on."""

    next_burst = 1

    def __init__(self, inbox: Inbox) -> None:
        self.wanted_jobs: Callable[[], int] = lambda: 1
        self._inbox = inbox
        self._results: list[Result] = []
        self._bursts: list[BurstStats] = []
        self._said: list[str] = []
        self._wanted = 1
        self._ended, self._failure, self._gave_up = False, "", ""
        self._changed = threading.Condition()

    def take(self, wait_s: float) -> Report:
        """All there is to report; waits so long for something."""
        with self._changed:
            if not (self._results or self._bursts or self._ended) and wait_s:
                self._changed.wait(wait_s)
            report = Report(
                tuple(self._results),
                tuple(self._bursts),
                tuple(self._said),
                self._wanted,
                self._ended,
                self._failure,
                self._gave_up,
            )
            self._results, self._bursts, self._said = [], [], []
        return report

    def end(self, failure: str = "", gave_up: str = "") -> None:
        with self._changed:
            self._ended, self._failure, self._gave_up = True, failure, gave_up
            self._changed.notify()

    # -- as a sink

    def append(self, result: Result | BurstStats) -> None:
        with self._changed:
            if isinstance(result, Result):
                self._results.append(result)
            else:
                self._bursts.append(result)
            self._changed.notify()

    # -- as one who looks on

    def say(self, text: str) -> None:
        with self._changed:
            self._said.append(text)

    def saw(self, result: Result | None) -> None:
        pass

    def tick(self, look: Callable[[], Glance | None]) -> None:
        self._inbox.end_lost()
        self._wanted = self.wanted_jobs()


class Halt:
    """Whether this machine was told to stop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.timed_out = False
        self._clock = clock
        self._event = threading.Event()
        self._since_s = 0.0

    def ask(self, *, timed_out: bool) -> None:
        self.timed_out = timed_out
        self._since_s = self._clock()
        self._event.set()

    @property
    def stopped(self) -> bool:
        return self._event.is_set()

    def overdue(self, grace_s: float) -> bool:
        return self.stopped and self._clock() - self._since_s > grace_s

    def wait(self, seconds: float) -> bool:
        return self._event.wait(seconds)


class Station:
    """A worker as its driver sees it.  Its methods may be called from several threads."""

    def __init__(self) -> None:
        self._inbox = Inbox()
        self._outbox = Outbox(self._inbox)
        self._halt = Halt(time.monotonic)
        self._loaded = threading.Event()
        self._plan = {"context": 0, "wanted_jobs": 1}
        self._failure = ""

    def open(self, opening: dict[str, Any]) -> dict[str, Any]:
        """Opens and loads the model; takes and gives plain values, for the other side may be of another version.

        Gives `batchrun` alone where that is so; `failure` where the model cannot be run here; else all of a `Likeness`,
        the `context` of a slot, `wanted_jobs`, and this process's `pid`.
        """
        found: dict[str, Any] = {"batchrun": __version__, "pid": os.getpid()}
        if opening["version"] != __version__:
            return found
        told = Opening(**opening)
        try:
            parts = open_parts(Settings(**told.settings))
        except BatchrunError as error:
            return found | {"failure": str(error)}
        threading.Thread(target=self._work, args=(parts, told.longest_tokens), name="worker", daemon=True).start()
        self._loaded.wait()
        if self._failure:
            return found | {"failure": self._failure}
        like = likeness(parts)
        return found | {name: getattr(like, name) for name in Likeness.__dataclass_fields__} | self._plan

    def give(self, orders: tuple[Order, ...], lost: tuple[int, ...]) -> None:
        """Orders to be run, and numbers of those that need not be any more."""
        self._inbox.put(orders, lost)

    def collect(self, wait_s: float) -> Report:
        """What came of it since the last call."""
        return self._outbox.take(wait_s)

    def stop(self, *, timed_out: bool) -> None:
        """Ends the work within the grace time; the last report says so."""
        self._halt.ask(timed_out=timed_out)

    def _work(self, parts: Parts, longest_tokens: int | None) -> None:
        try:
            if parts.settings.priority == "low":
                lower_priority()
            threads = parts.settings.threads or this_machine().threads
            pacer = paced(parts, open_sensors(threads=threads), LAUNCHER)
            ends = Ends(
                self._outbox, self._outbox, self._halt, self._outbox, time.monotonic, share_answers=False, pacer=pacer
            )
            runner = Runner(parts, self._inbox.supplier(parts, time.monotonic), ends, longest_tokens)
            self._plan = {"context": runner.load(), "wanted_jobs": runner.wanted_jobs}
            self._outbox.wanted_jobs = lambda: runner.wanted_jobs
            self._loaded.set()
            summary = runner.run()
            self._outbox.end(gave_up=summary.gave_up)
        except Exception as error:  # noqa: BLE001  whatever it was, nobody else would hear of it
            self._failure = str(error) if isinstance(error, BatchrunError) else f"{type(error).__name__}: {error}"
            self._outbox.end(failure=self._failure)
        finally:
            self._loaded.set()
            parts.model.close()


def likeness(parts: Parts) -> Likeness:
    """What this machine would run."""
    model, settings = parts.model, parts.settings
    engine = settings.engine if settings.engine == "fake" else engine_and_formats(settings)[0]
    template = hashlib.sha256(model.template.text.encode()).hexdigest()
    return Likeness(__version__, engine, model.card.identity, template)
