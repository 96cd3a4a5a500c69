"""The straight line on one machine: lines in, results out, burst after burst.

    source -> Intake.next -> Window -> Burst.take -> Worker.step -> Outcomes.settle -> sink

Whatever a line turns out to be, it ends as exactly one result.  Where no rest parts two bursts, the next one is taken
while the last rows of the first still run, so the batch stays full.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol

from batchrun.assembly import Parts, open_backend, slot_plan
from batchrun.backends.base import Interrupted
from batchrun.bursts import Burst
from batchrun.capacity import described
from batchrun.core import Completion, FinishReason, Job, Request
from batchrun.governor import FixedGovernor
from batchrun.intake import Intake, Room
from batchrun.jobs import JobReader
from batchrun.journal import Journal
from batchrun.outcomes import Outcomes, Watch
from batchrun.prefix import Planned
from batchrun.retries import Retries
from batchrun.selection import Selection, failure_limit
from batchrun.sink import Sink
from batchrun.source import Source
from batchrun.stats import BurstStats
from batchrun.summary import Summary
from batchrun.window import Window
from batchrun.worker import Worker


class Stop(Protocol):
    """Whether the run was asked to stop, or its time is up."""

    @property
    def stopped(self) -> bool: ...

    @property
    def timed_out(self) -> bool:
        """Whether it was the deadline that stopped it."""
        ...

    def overdue(self, grace_s: float) -> bool:
        """Whether it stopped longer ago than that."""
        ...

    def wait(self, seconds: float) -> bool: ...


class StatsSink(Protocol):
    """Where stats lines go."""

    next_burst: int

    def append(self, stats: BurstStats) -> None: ...


@dataclass(frozen=True, slots=True)
class Ends:
    """Where a run touches the world."""

    source: Source
    sink: Sink
    stats: StatsSink
    stop: Stop
    watch: Watch
    clock: Callable[[], float]  # monotonic seconds
    pieces: Journal | None = None  # for the answers to pieces of documents
    selection: Selection = field(default_factory=Selection)
    share_answers: bool = True  # equal jobs are computed once


class Runner:
    """One run.  `longest_tokens`: what the longest job needs, where a look over the input could tell."""

    def __init__(self, parts: Parts, reader: JobReader, ends: Ends, longest_tokens: int | None) -> None:
        self._parts = parts
        self._ends = ends
        self._longest_tokens = longest_tokens
        self._governor = FixedGovernor(parts.settings.burst_seconds, parts.settings.rest_seconds)
        self._failures = failure_limit(parts.settings.max_failures)
        retries = Retries(parts.preparer, parts.settings.retries, parts.settings.asking().grows)
        name, shares = parts.model.card.name, ends.share_answers
        self._outcomes = Outcomes(
            ends.sink, ends.pieces, ends.watch, name, self._request, retries, share_answers=shares
        )
        room = Room(lambda request: self._loaded_worker().fits(request), lambda: self._loaded_worker().context)
        self._intake = Intake(parts, reader, ends.source, ends.sink, ends.selection, self._outcomes, room, ends.clock)
        self._worker: Worker | None = None
        self._burst: Burst | None = None
        self._window = Window(lambda requests, last: self._loaded_worker().plan(requests, long_first=last))
        self._next_burst = ends.stats.next_burst

    @property
    def summary(self) -> Summary:
        return self._outcomes.summary

    def run(self) -> Summary:
        """Runs to the end of the input, or until it is asked to stop.

        Raises ModelError where the engine cannot start or breaks down, OutputError where a result cannot be written.
        """
        began_s = self._ends.clock()
        try:
            while not self._stopped() and not self._finished:
                self._turn()
            self._wind_down()
            self.summary.interrupted = not self._finished
            self.summary.too_many_failures = self._stopped() and not self._ends.stop.stopped
        except Interrupted:
            self.summary.interrupted = True
        finally:
            self.summary.wall_s = self._ends.clock() - began_s
            self.summary.blank_lines = self._ends.source.blank
            if self._worker:
                self._worker.close()
        return self.summary

    def _stopped(self) -> bool:
        """Whether no new job is to begin: by a signal, by the clock, or because too many failed."""
        return self._ends.stop.stopped or self._failures.reached(self.summary.failed, self.summary.statuses.total())

    @property
    def _finished(self) -> bool:
        return self._intake.ended and not self._outcomes.errands and not self._burst

    @property
    def _idle(self) -> bool:
        return self._worker is None or self._worker.idle

    def _turn(self) -> None:
        """Tops the burst up and takes one step, or ends the burst when nothing runs."""
        self._ends.watch.tick()
        self._top_up()
        if self._worker and not self._worker.idle:
            self._step(self._worker)
        burst = self._burst
        if burst and (self._idle or (burst.full and not burst.allowance.rest_s and not self._waiting)):
            self._end_burst(burst)

    @property
    def _waiting(self) -> int:
        return self._worker.waiting if self._worker else 0

    # -- taking

    def _top_up(self) -> None:
        """Takes requests into the burst until it is full or the input has no more now."""
        if self._outcomes.suspects:
            self._retry_alone()
            return
        if self._burst and self._burst.full:
            return
        taken: list[Planned] = []
        while entry := self._next(wait=self._idle and not taken and not self._burst):
            if not self._open_burst(self._loaded_worker()).take(entry):
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
        return self._window.first(last=self._intake.ended and not self._outcomes.again)

    def _take_again(self) -> None:
        """Jobs that are tried again join the window once the burst that they failed in is over."""
        again = self._outcomes.again
        while again and (not self._burst or self._burst.number > again[0][0]):
            self._window.add(again.popleft()[1])

    def _retry_alone(self) -> None:
        """Runs a request again under which the engine failed, with nobody beside it: so the one to blame is found."""
        if self._idle:
            worker, request = self._loaded_worker(), self._outcomes.suspects.popleft()
            planned = worker.plan([request], long_first=False)
            self._open_burst(worker).take(planned[0])
            worker.take(planned)

    def _open_burst(self, worker: Worker) -> Burst:
        if not self._burst:
            self._burst = worker.begin(self._next_burst, self._governor.allowance())
            self._next_burst += 1
        return self._burst

    def _next_request(self, *, wait: bool) -> Request | None:
        """The next request; jobs that are done or cannot run are dealt with on the way."""
        while request := self._intake.next(self._stopped, wait=wait):
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
            load = slot_plan(parts, self._longest_tokens)
            plan = described(load, parts.model.card, fixed=parts.settings.parallel is not None)
            for text in (*parts.notices, f"{parts.model.card.name}: {plan}"):
                self._ends.watch.say(text)
            if parts.settings.context and load.context < parts.settings.context:
                self._ends.watch.say(f"--context {parts.settings.context} is more than this model was trained for")
            grace_s = parts.settings.grace_seconds
            backend = open_backend(parts, load, lambda: stop.stopped, lambda: stop.overdue(grace_s))
            for text in backend.notices:
                self._ends.watch.say(text)
            self._worker = Worker(
                backend,
                parts.model.tokenizer,
                parts.guide,
                load,
                self._ends.clock,
                share_prefixes=parts.settings.prefix,
                look_ahead=parts.settings.lookup,
                fixed_width=parts.settings.parallel is not None,
            )
        return self._worker

    # -- running

    def _step(self, worker: Worker) -> None:
        self._open_burst(worker)  # rows may run on after the burst that took them
        if self._outcomes.errands.timed:
            self._expire(worker)
        for completion in worker.step():
            self._finish(worker, completion)
        self._cancel_lost()
        if self._outcomes.suspects:
            for request in worker.drop_waiting():
                self._window.add(request)

    def _finish(self, worker: Worker, completion: Completion) -> None:
        settled = self._outcomes.settle(completion, self._open_burst(worker).number, worker.context)
        if settled:
            worker.count(completion, settled.result, stands=settled.stands)

    def _expire(self, worker: Worker) -> None:
        """Takes rows out whose time is up."""
        now_s = self._ends.clock()
        for request, since_s in worker.running_since():
            limit_s = request.job.timeout_s
            if limit_s is not None and now_s - since_s > limit_s:
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
        """Closes the burst; rests if more is to come."""
        more = bool(self._window or self._outcomes.again) or not self._intake.ended
        rest_s = burst.allowance.rest_s if more and not self._stopped() else 0.0
        stats = self._loaded_worker().end(rest_s)
        self._burst = None
        self._ends.sink.sync()
        self._ends.stats.append(stats)  # before the rest: whoever pulls the plug now loses no line
        self.summary.bursts += 1
        if rest_s:
            began_s = self._ends.clock()
            self._ends.stop.wait(rest_s)
            self.summary.rest_s += self._ends.clock() - began_s

    def _wind_down(self) -> None:
        """When the run is to stop: what waits stays undone, what runs may finish within the grace time.

        Rows that the deadline finds unfinished even then have a result, as far as they came.
        """
        worker = self._worker
        if worker and not worker.idle:
            burst = self._open_burst(worker)
            worker.drop_waiting()
            until_s = self._ends.clock() + self._parts.settings.grace_seconds
            while not worker.idle and self._ends.clock() < until_s:
                self._step(worker)
            for request, _ in worker.running_since() if self._ends.stop.timed_out else ():
                self._take_out(worker, request, FinishReason.EXPIRED, "the run's deadline was reached")
            self._end_burst(burst)
