"""The driver of a fleet: it holds the input, the plan and the results, and hands jobs to workers elsewhere.

    Intake.next -> Window -> Dispatch.pick -> Fleet.give ... Fleet.poll -> Outcomes.accept -> sink

The counterpart of `runner.py`: there one worker steps, here many report.
"""

from collections.abc import Sequence
from dataclasses import replace

from batchrun.assembly import Parts
from batchrun.conditions import Conditions
from batchrun.core import CRASHED_TWICE, Job, Problem, Request, Result, Status
from batchrun.errors import ModelError
from batchrun.fleet.dispatch import Dispatch
from batchrun.fleet.events import Event, Fleet, Joined, Left, Reported
from batchrun.fleet.orders import Order, Report, order
from batchrun.outcomes import Outcomes
from batchrun.prefix import Planned
from batchrun.prefix import plan as plan_prefixes
from batchrun.retries import Retries
from batchrun.runner import Ends
from batchrun.selection import failure_limit
from batchrun.stats import BurstStats
from batchrun.summary import Summary
from batchrun.supply import Room, Supplier
from batchrun.window import MOST_JOBS, Window

POLL_S = 0.1  # between two looks at the signals
READ_JOBS = 256  # between two looks at the workers
MOST_WINDOW_JOBS = 8192
LATE_S = 5.0  # after the grace time, for last reports to arrive


class Driver:
    """One run over a fleet."""

    def __init__(self, parts: Parts, supplier: Supplier, ends: Ends, fleet: Fleet) -> None:
        self._parts = parts
        self._ends = ends
        self._fleet = fleet
        self._failures = failure_limit(parts.settings.max_failures)
        retries = Retries(parts.preparer, 0, False)  # workers try again by themselves
        self._outcomes = Outcomes(
            ends.sink,
            ends.pieces,
            ends.watch,
            parts.model.card.name,
            self._request,
            retries,
            share_answers=ends.share_answers,
        )
        self._context = 0  # of a slot of the first worker: what jobs have to fit into
        self._supply = supplier(self._outcomes, Room(self._fits, lambda: self._context))
        self._window = Window(self._plan)
        self._dispatch = Dispatch()
        self._lost: dict[str, list[int]] = {}  # by worker: orders that it need not run any more
        self._bursts: dict[tuple[str, int], int] = {}  # the run's own numbers of the workers' bursts
        self._next_burst = ends.stats.next_burst
        self._ending = False
        self._cut_off = False  # the deadline ended rows that ran

    @property
    def summary(self) -> Summary:
        return self._outcomes.summary

    def run(self) -> Summary:
        """Runs to the end of the input, or until it is asked to stop.

        Raises ModelError where no worker is left, OutputError where a result cannot be written.
        """
        began_s = self._ends.clock()
        summary = self.summary
        try:
            while not self._stopped() and not self._finished:
                self._turn()
            too_many, asked = self._too_many_failures, self._ends.stop.stopped or bool(summary.gave_up)
            self._wind_down()
            summary.interrupted = self._cut_off or not self._finished
            summary.too_many_failures = summary.interrupted and too_many and not asked
        finally:
            summary.wall_s = self._ends.clock() - began_s
            summary.blank_lines = self._supply.blank
        return summary

    @property
    def _finished(self) -> bool:
        return self._supply.ended and not self._outcomes.errands

    def _stopped(self) -> bool:
        return self._ends.stop.stopped or bool(self.summary.gave_up) or self._too_many_failures

    @property
    def _too_many_failures(self) -> bool:
        return self._failures.reached(self.summary.failed, self.summary.statuses.total())

    def _turn(self) -> None:
        self._ends.watch.tick(lambda: None)
        more = False
        if self._dispatch.workers:
            more = self._read()
            self._hand_out()
        for event in self._fleet.poll(0.0 if more else POLL_S):
            self._take(event)
        over = self._stopped() or self._finished
        if not self._dispatch.workers and not over and (why := self._fleet.hopeless):
            raise ModelError(why)

    # -- jobs out

    def _read(self) -> bool:
        """Fills the window: so many jobs are held, however long the input is.  Whether there is more to read now."""
        self._window.most_jobs = min(MOST_WINDOW_JOBS, max(MOST_JOBS, 2 * self._dispatch.wanted_jobs))
        wants = self._window.wants
        for _ in range(min(READ_JOBS, wants)):
            request = self._supply.next(self._stopped, wait=not self._window and not len(self._dispatch))
            self._cancel_lost()
            if request is None:
                return False
            if request in self._outcomes.errands:
                self._window.add(request)
            if self._window.full:
                return False
        return wants > READ_JOBS

    def _hand_out(self) -> None:
        last = self._supply.ended
        for worker in self._dispatch.workers:
            orders: tuple[Order, ...] = ()
            if self._dispatch.is_hungry(worker):
                flights, taken = self._dispatch.pick(worker, self._window.planned(last=last), last=last)
                self._window.take(taken)
                orders = tuple(order(flight.number, flight.request) for flight in flights)
            lost = tuple(self._lost.pop(worker, ()))
            if orders or lost:
                self._fleet.give(worker, orders, lost)

    def _plan(self, requests: Sequence[Request], last: bool) -> list[Planned]:
        if self._parts.settings.prefix:
            return plan_prefixes(requests, (), cut=True, long_first=last)
        return [Planned(request, None) for request in requests]

    def _request(self, job: Job) -> Request:
        preparer = self._parts.preparer
        return preparer.prepare(job, preparer.digest(job), self._ends.clock())

    def _fits(self, request: Request) -> bool:
        return request.need_tokens <= self._context

    # -- reports in

    def _take(self, event: Event) -> None:
        if isinstance(event, Joined):
            self._admit(event)
        elif isinstance(event, Left):
            self._let_go(event.worker, event.why, blame=event.blame)
        else:
            self._hear(event.worker, event.report)

    def _admit(self, event: Joined) -> None:
        """The first worker settles how long a job may be; one with shorter slots that comes later cannot help."""
        assert event.context > 0, "a worker that joins has slots"
        if self._context and event.context < self._context:
            held = f"a slot there holds {event.context} tokens, and this run began with {self._context}"
            self._ends.watch.say(f"{event.worker}: refused: {held}")
            self._fleet.refuse(event.worker)
            return
        self._context = self._context or event.context
        self._dispatch.join(event.worker, event.wanted_jobs)
        self._ends.watch.say(f"{event.worker}: joined")

    def _let_go(self, worker: str, why: str, *, blame: bool) -> None:
        self._lost.pop(worker, None)
        self._bursts = {key: number for key, number in self._bursts.items() if key[0] != worker}
        if worker in self._dispatch.workers:
            self._ends.watch.say(f"{worker}: {why}; what it had runs elsewhere")
        for request in self._dispatch.leave(worker, blame=blame):
            reason = "the worker that ran it died, and the one that ran it alone after that"
            self._outcomes.fail(request, Problem(CRASHED_TWICE, reason))

    def _hear(self, worker: str, report: Report) -> None:
        if worker not in self._dispatch.workers:
            return
        for text in report.said:
            self._ends.watch.say(f"{worker}: {text}")
        for result in report.results:
            self._accept(worker, result)
        self._cancel_lost()
        for burst in report.bursts:
            self._note(worker, burst)
        self._dispatch.wants(worker, report.wanted_jobs)
        if self._dispatch.is_sick(worker):
            self._fleet.refuse(worker)
            self._let_go(worker, "its engine fails under every job", blame=False)
            return
        if report.ended and not self._ending:
            why = report.failure or report.gave_up or "ended"
            self._let_go(worker, why, blame=bool(report.failure))
            if report.gave_up and not self._dispatch.workers:
                self.summary.gave_up = report.gave_up

    def _accept(self, worker: str, result: Result) -> None:
        failed = any(problem.code == CRASHED_TWICE for problem in result.errors)
        if failed and self._dispatch.failed(worker, result.index):
            return
        request = self._dispatch.ended(worker, result.index, well=not failed)
        if request is None:
            return
        for other in self._dispatch.losers(result.index):
            self._lost.setdefault(other, []).append(result.index)
        burst = None if result.burst is None else self._number(worker, result.burst)
        if request in self._outcomes.errands:
            self._cut_off |= self._ending and result.status is Status.EXPIRED
            self._outcomes.accept(request, replace(result, burst=burst))

    def _cancel_lost(self) -> None:
        """Ends what waits or runs of a group that has its answer."""
        lost, self._outcomes.lost = self._outcomes.lost, []
        for request in lost:
            if request in self._outcomes.errands:
                self._window.discard(request)
                for worker, number in self._dispatch.drop(request):
                    self._lost.setdefault(worker, []).append(number)
                self._outcomes.end_unrun(request)

    def _note(self, worker: str, burst: BurstStats) -> None:
        self._ends.sink.sync()
        self._ends.stats.append(replace(burst, burst=self._number(worker, burst.burst), node=worker))
        self._bursts.pop((worker, burst.burst - 1), None)
        self.summary.add_burst(Conditions(burst.heat, burst.speed, burst.pace, burst.energy))
        self.summary.rest_s += burst.seconds["rest"]

    def _number(self, worker: str, burst: int) -> int:
        """The run's number of a worker's burst."""
        if (worker, burst) not in self._bursts:
            self._bursts[worker, burst] = self._next_burst
            self._next_burst += 1
        return self._bursts[worker, burst]

    def _wind_down(self) -> None:
        """Workers end what they run, within the grace time where that counts, and give their last reports."""
        self._ending = True
        for worker, numbers in self._lost.items():
            self._fleet.give(worker, (), tuple(numbers))
        self._fleet.stop(timed_out=self._ends.stop.timed_out)
        working = set(self._dispatch.workers)
        grace_s = 0.0 if self._finished else self._parts.settings.grace_seconds
        until_s = self._ends.clock() + grace_s + LATE_S
        while working and self._ends.clock() < until_s:
            for event in self._fleet.poll(POLL_S):
                self._take(event)
                if isinstance(event, Left) or (isinstance(event, Reported) and event.report.ended):
                    working.discard(event.worker)
