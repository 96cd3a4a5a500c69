"""The straight line on one machine: lines in, results out, burst after burst.

    source -> jobs.read -> journal.claim -> prompts.prepare -> Window -> Burst.take -> Worker.step -> results.judge
    -> journal

Whatever a line turns out to be, it ends as exactly one result.  Where no rest parts two bursts, the next one is taken
while the last rows of the first still run, so the batch stays full.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

from batchrun.assembly import Parts, slot_plan, too_long
from batchrun.backends.base import Interrupted
from batchrun.bursts import Burst
from batchrun.capacity import described
from batchrun.core import Completion, Job, Rejection, Request, Result
from batchrun.errors import JobError
from batchrun.governor import FixedGovernor
from batchrun.jobs import JobReader, rejection
from batchrun.prefix import Planned
from batchrun.results import judge, reject
from batchrun.sink import Sink
from batchrun.source import Line, Source
from batchrun.stats import BurstStats
from batchrun.summary import Summary
from batchrun.window import Window
from batchrun.worker import Worker

IDLE_WAIT_S = 0.2  # between two looks at a stream that has nothing now, and at the signals


class Stop(Protocol):
    """Whether the run was asked to stop."""

    @property
    def stopped(self) -> bool: ...

    def wait(self, seconds: float) -> bool: ...


class Watch(Protocol):
    """Somebody who looks on."""

    def say(self, text: str) -> None: ...

    def saw(self, result: Result | None) -> None:
        """A job got its result, or (None) was found done."""
        ...

    def tick(self) -> None:
        """Time has passed."""
        ...


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


class Runner:
    """One run.  `longest_tokens`: what the longest job needs, where a look over the input could tell."""

    def __init__(self, parts: Parts, reader: JobReader, ends: Ends, longest_tokens: int | None) -> None:
        self.summary = Summary()
        self._parts = parts
        self._reader = reader
        self._ends = ends
        self._longest_tokens = longest_tokens
        self._governor = FixedGovernor(parts.settings.burst_seconds, parts.settings.rest_seconds)
        self._worker: Worker | None = None
        self._burst: Burst | None = None
        self._window = Window(lambda requests, last: self._loaded_worker().plan(requests, long_first=last))
        self._next_burst = ends.stats.next_burst

    def run(self) -> Summary:
        """Runs to the end of the input, or until it is asked to stop.

        Raises ModelError where the engine cannot start or breaks down, OutputError where a result cannot be written.
        """
        began_s = self._ends.clock()
        try:
            while not self._ends.stop.stopped and not self._finished:
                self._turn()
            self._wind_down()
            self.summary.interrupted = not self._finished
        except Interrupted:
            self.summary.interrupted = True
        finally:
            self.summary.wall_s = self._ends.clock() - began_s
            self.summary.blank_lines = self._ends.source.blank
            if self._worker:
                self._worker.close()
        return self.summary

    @property
    def _finished(self) -> bool:
        return self._ends.source.ended and not self._window and self._idle and not self._burst

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
        if self._burst and self._burst.full:
            return
        taken: list[Planned] = []
        while entry := self._next(wait=self._idle and not taken and not self._burst):
            if not self._open_burst(self._loaded_worker()).take(entry):
                break
            self._window.pop()
            taken.append(entry._replace(request=replace(entry.request, taken_s=self._ends.clock())))
        if taken:
            self._loaded_worker().take(taken)

    def _next(self, *, wait: bool) -> Planned | None:
        """The next request of the window, which reads on where it has room."""
        for _ in range(self._window.wants):
            request = self._next_request(wait=wait and not self._window)
            if request is None:
                break
            self._window.add(request)
            if self._window.full:
                break
        return self._window.first(last=self._ends.source.ended)

    def _open_burst(self, worker: Worker) -> Burst:
        if not self._burst:
            self._burst = worker.begin(self._next_burst, self._governor.allowance())
            self._next_burst += 1
        return self._burst

    def _next_request(self, *, wait: bool) -> Request | None:
        """The next line that is to run; lines that are done or cannot run are dealt with on the way."""
        source = self._ends.source
        while not source.ended and not self._ends.stop.stopped:
            line = source.next(IDLE_WAIT_S if wait else 0.0)
            if line is None:
                return None
            request = self._request(line)
            if request:
                return request
        return None

    def _request(self, line: Line) -> Request | None:
        job = self._reader.read(line.data, line.number)
        if isinstance(job, Job):
            prepared = self._prepared(job, line)
            if not isinstance(prepared, Rejection):
                return prepared
            job = prepared
        if not self._is_done(job.id, job.digest):
            self._record(reject(job, self._parts.model.card.name))
        return None

    def _prepared(self, job: Job, line: Line) -> Request | Rejection | None:
        """The request of a job; None if it has its result already."""
        preparer = self._parts.preparer
        digest = preparer.digest(job)
        if self._is_done(job.id, digest):
            return None
        try:
            request = preparer.prepare(job, digest, self._ends.clock())
            worker = self._loaded_worker()
            if not worker.fits(request):
                raise JobError(too_long(request, worker.context, self._parts.model.card.context_train))
        except JobError as error:
            return rejection(line.data, line.number, job.id, error.problem, job.meta)
        return request

    def _is_done(self, job_id: str, digest: str) -> bool:
        status = self._ends.sink.claim(job_id, digest)
        if status:
            self.summary.earlier[status] += 1
            self._ends.watch.saw(None)
        return status is not None

    def _loaded_worker(self) -> Worker:
        """The worker; its weights are loaded when the first job needs them."""
        if self._worker is None:
            parts = self._parts
            load = slot_plan(parts, self._longest_tokens)
            plan = described(load, parts.model.card, fixed=parts.settings.parallel is not None)
            for text in (*parts.notices, f"{parts.model.card.name}: {plan}"):
                self._ends.watch.say(text)
            if parts.settings.context and load.context < parts.settings.context:
                self._ends.watch.say(f"--context {parts.settings.context} is more than this model was trained for")
            backend = parts.model.load(load, lambda: self._ends.stop.stopped)
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
        for completion in worker.step():
            self._finish(worker, completion)

    def _finish(self, worker: Worker, completion: Completion) -> None:
        assert self._burst is not None, "rows run inside a burst"
        result = judge(completion, self._parts.model.card.name, self._burst.number)
        worker.count(result)
        self._record(result)

    def _record(self, result: Result) -> None:
        self._ends.sink.append(result)
        self.summary.add_result(result)
        self._ends.watch.saw(result)

    def _end_burst(self, burst: Burst) -> None:
        """Closes the burst; rests if more is to come."""
        more = bool(self._window) or not self._ends.source.ended
        rest_s = burst.allowance.rest_s if more and not self._ends.stop.stopped else 0.0
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
        """After a signal: what waits stays undone, what runs may finish within the grace time."""
        worker = self._worker
        if worker and not worker.idle:
            burst = self._open_burst(worker)
            for request in worker.drop_waiting():
                self._window.add(request)
            until_s = self._ends.clock() + self._parts.settings.grace_seconds
            while not worker.idle and self._ends.clock() < until_s:
                self._step(worker)
            self._end_burst(burst)
