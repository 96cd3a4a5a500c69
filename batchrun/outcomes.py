"""Gives every job its result: the one its request came to, its twin's, the one of its whole document, or none but a
word that its group has an answer already.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Protocol

from batchrun.auditor import Auditor
from batchrun.core import (
    CRASHED_TWICE,
    GROUP_WON,
    Completion,
    Job,
    Problem,
    Rejection,
    Request,
    Result,
    Status,
    Usage,
)
from batchrun.cutting import Span, place_in_whole
from batchrun.errands import Errand, Errands
from batchrun.errors import JobError
from batchrun.glance import Glance
from batchrun.journal import Journal
from batchrun.journal_index import REUSABLE
from batchrun.results import from_record, judge, reject
from batchrun.retries import Retries
from batchrun.sink import Sink
from batchrun.summary import Summary
from batchrun.wholes import Whole

TRIES = 2
"""Of a request whose engine died or failed under it; the second try is made alone."""


class Watch(Protocol):
    """Somebody who looks on."""

    def say(self, text: str) -> None: ...

    def saw(self, result: Result | None) -> None:
        """A job got its result, or (None) was found done."""
        ...

    def tick(self, look: Callable[[], Glance | None]) -> None:
        """Time has passed.  `look`: what goes on now, None where that is elsewhere; only for those who show it."""
        ...


def utc_now() -> str:
    """The moment, as result lines show it: ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Settled:
    """What a completion came to.  `stands`: it is the job's result, and not to be followed by another try."""

    result: Result
    stands: bool = True


class Outcomes:
    """The way from completions to results.  `ready`: requests that came of it and are to run next.

    `pieces`: a journal for answers to pieces of documents, so that they outlive the run; `prepare` makes requests;
    `retries` says which answers are asked for again.
    """

    def __init__(
        self,
        sink: Sink,
        pieces: Journal | None,
        watch: Watch,
        model: str,
        prepare: Callable[[Job], Request],
        retries: Retries,
        *,
        share_answers: bool = True,
        auditor: Auditor | None = None,
        now: Callable[[], str] = utc_now,
    ) -> None:
        self.errands = Errands(share_answers)
        self.ready: deque[Request] = deque()
        self.suspects: deque[Request] = deque()  # to run again, alone: the engine failed under them
        self.again: deque[tuple[int, Request]] = deque()  # tries for bursts after the one of that number
        self.lost: list[Request] = []  # to be cancelled: their group has its answer
        self.summary = Summary()
        self._sink = sink
        self._pieces = pieces
        self._watch = watch
        self._model = model
        self._prepare = prepare
        self._retries = retries
        self._auditor = auditor
        self._now = now
        if auditor:
            self.summary.audit = auditor.found

    # -- results that need no run

    def record(self, result: Result) -> None:
        """Writes a result down."""
        result = replace(result, ended_at=result.ended_at or self._now())
        self._sink.append(result)
        self.summary.add_result(result)
        self._watch.saw(result)

    def was_done(self, status: Status) -> None:
        """A job had its result before this run."""
        self.summary.earlier[status] += 1
        self._watch.saw(None)

    def spare(self, job: Job, digest: str) -> None:
        """A job that need not run: its group has an answer."""
        self.record(self._unrun(job, digest, Status.CANCELLED, self._won(job)))

    def share(self, job: Job, record: dict[str, Any]) -> None:
        """A job whose equal has a result on record."""
        self.record(replace(from_record(record, job), copy_of=record.get("copy_of") or record["id"]))

    # -- results of runs

    def add(self, errand: Errand) -> None:
        """A request is on its way."""
        self.errands.add(errand)
        self.ready.append(errand.request)

    def start(self, whole: Whole) -> None:
        """Sets out to read a document in pieces.  Raises JobError where a piece cannot run: then none does."""
        self._run_pieces(whole, [(job, self._prepare(job)) for job in whole.jobs()])
        self._finish_whole(whole)

    def settle(self, completion: Completion, burst: int, context: int) -> Settled | None:
        """What a completion comes to, for the figures of its burst; None where the engine failed and it runs again.

        `context`: tokens of a slot, which another try has to fit into.
        """
        request = completion.request
        errand = self.errands.of(request)
        if completion.engine_failed and errand.attempt < TRIES:
            errand.attempt += 1
            self.suspects.append(request)
            return None
        if errand.audited:
            self._judge_alone(request, completion)
            return None
        result = judge(completion, self._model, burst)
        result = _placed(errand, replace(result, attempt=request.attempt + errand.attempt - 1))
        if completion.engine_failed:
            result = replace(result, errors=(replace(result.errors[0], code=CRASHED_TWICE),))
        elif again := self._next_try(completion, result, context):
            self.errands.renew(request, again)
            self.again.append((burst, again))
            self.summary.tried_again += 1
            return Settled(result, stands=False)
        self.errands.remove(request)
        if self._auditor and not errand.whole and not errand.document:
            self._auditor.saw(completion, result)
        self._deliver(errand, result)
        return Settled(result)

    # -- audits

    @property
    def auditing(self) -> bool:
        """Whether results wait for their audit."""
        return self._auditor is not None and self._auditor.waits

    def call_audits(self, *, last: bool) -> None:
        """Sends requests out that are to run again alone.  `last`: no more results will come."""
        for request in self._auditor.take(last=last) if self._auditor else ():
            self.errands.add(Errand(request, audited=True))
            self.suspects.append(request)

    def _judge_alone(self, request: Request, completion: Completion) -> None:
        assert self._auditor, "only an auditor sends requests out again"
        self.errands.remove(request)
        self._auditor.judge(request, completion)

    # -- results from elsewhere, and none

    def _next_try(self, completion: Completion, result: Result, context: int) -> Request | None:
        """Another try, unless its group has an answer by now: then nobody waits for a better one."""
        if self.errands.winner(completion.request.job.group) is not None:
            return None
        return self._retries.next_try(completion, result, context)

    def accept(self, request: Request, result: Result) -> None:
        """A result that another machine came to, whose job bears no index and no meta of this run."""
        errand, job = self.errands.remove(request), request.job
        self.summary.tried_again += max(0, result.attempt - 1)
        self._deliver(errand, _placed(errand, replace(result, index=job.index, meta=job.meta)))

    def fail(self, request: Request, problem: Problem) -> None:
        """A request that brings down whoever runs it."""
        errand = self.errands.remove(request)
        self._deliver(errand, self._unrun(request.job, request.digest, Status.ERROR, problem))

    def end_unrun(self, request: Request) -> None:
        """A request is given up before it had a slot: its group has an answer."""
        errand = self.errands.remove(request)
        for queue in (self.ready, self.suspects):
            if request in queue:
                queue.remove(request)
        self.again = deque(entry for entry in self.again if entry[1] is not request)
        self._deliver(errand, self._unrun(request.job, request.digest, Status.CANCELLED, self._won(request.job)))

    def _won(self, job: Job) -> Problem:
        return Problem(GROUP_WON, f"group {job.group!r} has its answer, from line {self.errands.winner(job.group)}")

    def _deliver(self, errand: Errand, result: Result) -> None:
        job = errand.request.job
        if result.status is Status.CANCELLED and self.errands.winner(job.group) is not None:
            result = replace(result, errors=(self._won(job),))
        if errand.whole:
            self._take_piece(errand.whole, errand.piece, result)
            self._finish_whole(errand.whole)
            return
        self._conclude(job, result)
        for twin in errand.twins:
            own = {"id": twin.id, "index": twin.index, "meta": twin.meta, "copy_of": job.id}
            self.record(replace(result, **own, usage=Usage(), timing=None, slot=None))

    def _conclude(self, job: Job, result: Result) -> None:
        """The final result of a job.  A good one ends the race of its group."""
        self.record(result)
        if result.status is Status.OK:
            self.win(job)

    def win(self, job: Job) -> None:
        """A job of a group has a good result."""
        if job.group is not None and self.errands.winner(job.group) is None:
            self.lost += [errand.request for errand in self.errands.win(job.group, job.index)]

    # -- documents in pieces

    def _run_pieces(self, whole: Whole, pieces: list[tuple[Job, Request]]) -> None:
        for number, (job, request) in enumerate(pieces):
            record = self._pieces.answer(request.digest) if self._pieces else None
            if record and (not whole.again or record["status"] == Status.OK):
                self._advance(whole, number, from_record(record, job))
            else:
                self.add(Errand(request, whole=whole, piece=number))

    def _take_piece(self, whole: Whole, number: int, result: Result) -> None:
        if self._pieces and result.status in REUSABLE:
            self._pieces.append(result)
        self._advance(whole, number, result)

    def _advance(self, whole: Whole, number: int, result: Result) -> None:
        try:
            self._run_pieces(whole, [(job, self._prepare(job)) for job in whole.take(number, result)])
        except JobError as error:
            whole.give_up(error.problem)

    def _finish_whole(self, whole: Whole) -> None:
        if whole.result:
            self._conclude(whole.job, whole.result)

    def _unrun(self, job: Job, digest: str, status: Status, problem: Problem) -> Result:
        return replace(reject(Rejection(job.index, job.id, problem, digest, job.meta), self._model), status=status)


def _placed(errand: Errand, result: Result) -> Result:
    """A result with what is to be said of its document, where that was cut."""
    if not errand.document:
        return result
    return _in_whole(replace(result, document=errand.document), errand.document["pieces"])


def _in_whole(result: Result, spans: Sequence[Span]) -> Result:
    """A result of a document that was cut, its quotes placed in the whole one; what a gap stands in is no quote."""
    places = [place_in_whole(spans, Span(quote.start, quote.end)) for quote in result.verbatim]
    quotes = [replace(q, start=at.start, end=at.end) for q, at in zip(result.verbatim, places, strict=True) if at]
    if len(quotes) == len(places):
        return replace(result, verbatim=tuple(quotes))
    strays = [quote.path for quote, at in zip(result.verbatim, places, strict=True) if at is None]
    errors = tuple(Problem("not_in_document", "a part of it was cut out of the document", path=path) for path in strays)
    return replace(result, status=Status.INVALID, errors=errors, verbatim=())
