"""The straight line on one machine: lines in, results out, burst after burst.

    Supply.next -> Window -> Burst.take -> Worker.step -> Outcomes.settle -> sink

Whatever a line turns out to be, it ends as exactly one result.  Where no rest parts two bursts, the next one is taken
while the last rows of the first still run, so the batch stays full.
"""

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from batchrun.assembly import Parts, open_worker, slot_plan
from batchrun.auditor import Auditor
from batchrun.backends.base import Interrupted
from batchrun.bursts import Burst
from batchrun.capacity import described
from batchrun.core import Completion, FinishReason, Job, Request
from batchrun.glance import Glance
from batchrun.journal import Journal
from batchrun.outcomes import Outcomes, Watch
from batchrun.pacer import Pacer
from batchrun.pacing import unpaced
from batchrun.permission import Stop
from batchrun.prefix import Planned
from batchrun.retries import Retries
from batchrun.selection import failure_limit
from batchrun.sink import Sink
from batchrun.stats import BurstStats
from batchrun.summary import Summary
from batchrun.supply import Room, Supplier
from batchrun.window import Window
from batchrun.worker import Worker

REST_LOOK_S = 1.0  # between two looks during a rest


class StatsSink(Protocol):
    """Where stats lines go."""

    next_burst: int

    def append(self, stats: BurstStats) -> None: ...


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a run touches the world."""

    sink: Sink
    stats: StatsSink
    stop: Stop
    watch: Watch
    clock: Callable[[], float]  # monotonic seconds
    pieces: Journal | None = None  # for the answers to pieces of documents
    share_answers: bool = True  # equal jobs are computed once
    auditor: Auditor | None = None  # where a share of the results is run again alone
    pacer: Pacer | None = None  # None: bursts and rests as set, and nobody looks at heat


class Runner:
    """One run.  `longest_tokens`: what the longest job needs, where a look over the input could tell."""

    def __init__(self, parts: Parts, supplier: Supplier, ends: Ends, longest_tokens: int | None) -> None:
        self._parts = parts
        self._ends = ends
        self._longest_tokens = longest_tokens
        self._pacer = ends.pacer or unpaced(parts.settings, ends.clock)
        self._failures = failure_limit(parts.settings.max_failures)
        retries = Retries(parts.preparer, parts.settings.retries, parts.settings.asking().grows)
        name, shares = parts.model.card.name, ends.share_answers
        self._outcomes = Outcomes(
            ends.sink, ends.pieces, ends.watch, name, self._request, retries, share_answers=shares, auditor=ends.auditor
        )
        room = Room(lambda request: self._loaded_worker().fits(request), lambda: self._loaded_worker().context)
        self._supply = supplier(self._outcomes, room)
        self._worker: Worker | None = None
        self._burst: Burst | None = None
        self._window = Window(lambda requests, last: self._loaded_worker().plan(requests, long_first=last))
        self._next_burst = ends.stats.next_burst
        self._rested: dict[Request, float] = {}  # seconds, of rows that were held over a rest

    @property
    def summary(self) -> Summary:
        return self._outcomes.summary

    def load(self) -> int:
        """Loads the weights now, not with the first job.  Gives the tokens that a slot holds.  Raises ModelError."""
        return self._loaded_worker().context

    @property
    def wanted_jobs(self) -> int:
        """So many fill a burst, and all rows while more are on their way."""
        return self._loaded_worker().jobs_for(self._pacer.allowance.seconds)

    def turn(self) -> bool:
        """One token boundary.  Whether there may be another."""
        if self._stopped() or self._finished:
            return False
        self._turn()
        return True

    def run(self) -> Summary:
        """Runs to the end of the input, or until it is asked to stop.

        Raises ModelError where the engine cannot start or breaks down, OutputError where a result cannot be written.
        """
        began_s = self._ends.clock()
        try:
            while self.turn():
                pass
            too_many, asked = self._too_many_failures, self._ends.stop.stopped or bool(self.summary.gave_up)
            cut_off = self._wind_down()
            self.summary.interrupted = cut_off or not self._finished
            self.summary.too_many_failures = self.summary.interrupted and too_many and not asked
        except Interrupted:
            self.summary.interrupted = True
        finally:
            self.summary.wall_s = self._ends.clock() - began_s
            self.summary.blank_lines = self._supply.blank
            self._pacer.finish()
            if self._worker:
                self._worker.close()
        return self.summary

    def glance(self) -> Glance:
        """What goes on now."""
        work = self._worker.glance() if self._worker else None
        return Glance(self._ends.clock(), work, self._pacer.glance(), self._stopped())

    def _stopped(self) -> bool:
        """Whether no new job is to begin: by a signal, a rule, the clock, for heat, or because too many failed."""
        return self._ends.stop.stopped or bool(self.summary.gave_up) or self._too_many_failures

    @property
    def _too_many_failures(self) -> bool:
        return self._failures.reached(self.summary.failed, self.summary.statuses.total())

    @property
    def _finished(self) -> bool:
        return self._supply.ended and not (self._outcomes.errands or self._outcomes.auditing or self._burst)

    @property
    def _idle(self) -> bool:
        return self._worker is None or self._worker.idle

    def _turn(self) -> None:
        """Tops the burst up and takes one step, or ends the burst when nothing runs or its time is over.

        Rows that run are then held where they are, and go on in the next burst.
        """
        self._ends.watch.tick(self.glance)
        self._top_up()
        worker = self._worker
        if worker and not worker.idle and self._open_burst(worker):
            self._step(worker)
            if self._pacer.draining:
                self._return_waiting(worker)
        burst = self._burst
        if burst and worker and (worker.idle or self._pacer.over(worker.probe) or self._runs_on(burst)):
            self._end_burst(burst)

    def _runs_on(self, burst: Burst) -> bool:
        """Whether all that a burst took has begun and no rest parts it from the next."""
        return burst.full and not self._pacer.cuts and not burst.allowance.rest_s and not self._waiting

    @property
    def _waiting(self) -> int:
        return self._worker.waiting if self._worker else 0

    # -- taking

    def _top_up(self) -> None:
        """Takes requests into the burst until it is full or the input has no more now."""
        self._outcomes.call_audits(last=self._supply.ended and not self._outcomes.errands)
        if self._outcomes.suspects:
            self._run_alone()
            return
        if self._burst and self._burst.full and self._pacer.cuts and not self._waiting:
            self._burst.widen(self._pacer.left_s, self._loaded_worker().wanted_jobs)
        if (self._burst and self._burst.full) or self._pacer.draining:
            return
        taken: list[Planned] = []
        while entry := self._next(wait=self._idle and not taken and not self._burst):
            burst = self._open_burst(self._loaded_worker())
            if not burst or not burst.take(entry):
                break
            self._window.pop()
            taken.append(entry._replace(request=self._outcomes.errands.begin(entry.request, self._ends.clock())))
        taken = [entry for entry in taken if entry.request in self._outcomes.errands]  # a race may have ended meanwhile
        if taken:
            self._loaded_worker().take(taken)

    def _next(self, *, wait: bool) -> Planned | None:
        """The next request of the window, which reads on where it has room."""
        self._take_again()
        for _ in range(self._window.wants):
            request = self._next_request(wait=wait and not self._window)
            if request is None:
                break
            self._window.add(request)
            if self._window.full:
                break
        return self._window.first(last=self._supply.ended and not self._outcomes.again)

    def _take_again(self) -> None:
        """Jobs that are tried again join the window once the burst that they failed in is over."""
        again = self._outcomes.again
        while again and (not self._burst or self._burst.number > again[0][0]):
            self._window.add(again.popleft()[1])

    def _run_alone(self) -> None:
        """Runs a request again with nobody beside it and nothing shared: one under which the engine failed, so that the
        one to blame is found, or one of an audit.
        """
        worker = self._loaded_worker()
        if self._idle and (burst := self._open_burst(worker)):
            alone = Planned(self._outcomes.suspects.popleft(), None)
            burst.take(alone)
            worker.take([alone])

    def _open_burst(self, worker: Worker) -> Burst | None:
        """The burst that runs, or a new one after the rest that is due; None if the run is to stop before that."""
        if not self._burst:
            self._rest(worker)
        return self._burst or (None if self._stopped() else self._begin_burst(worker))

    def _begin_burst(self, worker: Worker) -> Burst:
        self._burst = worker.begin(self._next_burst, self._pacer.allowance, runs_on=self._pacer.cuts)
        self._pacer.open()
        self._next_burst += 1
        return self._burst

    def _next_request(self, *, wait: bool) -> Request | None:
        """The next request; jobs that are done or cannot run are dealt with on the way."""
        while request := self._supply.next(self._stopped, wait=wait):
            self._cancel_lost()  # a result that was found may have ended a race
            if request in self._outcomes.errands:
                return request
        self._cancel_lost()
        return None

    def _request(self, job: Job) -> Request:
        preparer = self._parts.preparer
        return preparer.prepare(job, preparer.digest(job), self._ends.clock())

    def _loaded_worker(self) -> Worker:
        """The worker; its weights are loaded when the first job needs them."""
        if self._worker is None:
            parts, stop = self._parts, self._ends.stop
            load = slot_plan(parts, self._longest_tokens, probes=self._pacer.probes)
            plan = described(load, parts.model.card, fixed=parts.settings.parallel is not None)
            for text in (*parts.notices, f"{parts.model.card.name}: {plan}"):
                self._ends.watch.say(text)
            if parts.settings.context and load.context < parts.settings.context:
                self._ends.watch.say(f"--context {parts.settings.context} is more than this model was trained for")
            grace_s, saw_step, say = parts.settings.grace_seconds, self._pacer.saw_step, self._ends.watch.say
            self._worker = open_worker(
                parts, load, self._ends.clock, lambda: stop.stopped, lambda: stop.overdue(grace_s), saw_step, say
            )
            for text in self._worker.notices:
                self._ends.watch.say(text)
        return self._worker

    # -- running

    def _step(self, worker: Worker) -> None:
        if self._outcomes.errands.timed:
            self._expire(worker)
        for completion in worker.step():
            self._finish(worker, completion)
        self._cancel_lost()
        if self._outcomes.suspects:
            self._return_waiting(worker)

    def _finish(self, worker: Worker, completion: Completion) -> None:
        burst = self._burst or self._begin_burst(worker)  # a race may end while nothing runs
        settled = self._outcomes.settle(completion, burst.number, worker.context)
        if settled:
            worker.count(completion, settled.result, stands=settled.stands)

    def _expire(self, worker: Worker) -> None:
        """Takes rows out whose time is up."""
        now_s = self._ends.clock()
        for request, since_s in worker.running_since():
            limit_s = request.job.timeout_s
            if limit_s is not None and now_s - since_s - self._rested.get(request, 0.0) > limit_s:
                self._take_out(worker, request, FinishReason.EXPIRED, f"its timeout_s, {limit_s:g}, was up")

    def _cancel_lost(self) -> None:
        """Ends what still runs or waits of a group that has its answer."""
        lost, self._outcomes.lost = self._outcomes.lost, []
        for request in lost:
            if request in self._outcomes.errands:
                self._window.discard(request)
                if not (self._worker and self._take_out(self._worker, request, FinishReason.CANCELLED, "")):
                    self._outcomes.end_unrun(request)

    def _take_out(self, worker: Worker, request: Request, finish: FinishReason, reason: str) -> bool:
        """Ends a row at this token boundary.  Whether it had a slot."""
        completion = worker.cancel(request)
        if completion:
            self._finish(worker, replace(completion, finish_reason=finish, error=reason))
        return completion is not None

    def _end_burst(self, burst: Burst) -> None:
        """Closes the burst; the rest after it is taken when the next one is about to open."""
        ready = bool(self._window or self._outcomes.again or self._outcomes.suspects) or not self._idle
        more = (ready or not self._supply.ended) and not self._stopped()
        conditions = self._pacer.close(more=more, ready=ready)
        stats = self._loaded_worker().end(conditions.pace["rest_s"], conditions)
        self._burst = None
        self._ends.sink.sync()
        self._ends.stats.append(stats)  # before the rest: whoever pulls the plug now loses no line
        self.summary.add_burst(conditions)

    def _rest(self, worker: Worker) -> None:
        """Waits until the machine may work again, or the run is asked to stop.  Rows that are held lose no time."""
        rested_s = self.summary.rest_s
        while not self._stopped() and (left_s := self._pacer.rest_left(worker.probe)):
            began_s = self._ends.clock()
            self._ends.stop.wait(min(left_s, REST_LOOK_S))
            self._ends.watch.tick(self.glance)
            self.summary.rest_s += self._ends.clock() - began_s
            self.summary.gave_up = self._pacer.gives_up
        rested_s = self.summary.rest_s - rested_s
        if rested_s:
            self._rested = {row: self._rested.get(row, 0.0) + rested_s for row, _ in worker.running_since()}

    def _return_waiting(self, worker: Worker) -> None:
        """Takes back what no row has begun."""
        for request in worker.drop_waiting():
            self._window.add(request)

    def _wind_down(self) -> bool:
        """When the run is to stop: what waits stays undone, what runs may finish within the grace time.

        Rows that the deadline finds unfinished even then have a result, as far as they came.  Whether there were any.
        """
        worker, cut_off = self._worker, False
        if worker and not worker.idle:
            burst = self._burst or self._begin_burst(worker)
            self._return_waiting(worker)
            until_s = self._ends.clock() + self._parts.settings.grace_seconds
            with contextlib.suppress(Interrupted):  # in the middle of a step: what ended before it is kept
                while not worker.idle and self._ends.clock() < until_s:
                    self._ends.watch.tick(self.glance)
                    self._step(worker)
            for request, _ in worker.running_since() if self._ends.stop.timed_out else ():
                self._take_out(worker, request, FinishReason.EXPIRED, "the run's deadline was reached")
                cut_off = True
            self.summary.cut_off = len(worker.running_since())
            self._end_burst(burst)
        return cut_off
