"""From the lines of the input to requests: what the run takes, what is done before, what cannot run, what is equal.

Whatever a line turns out to be, it ends as exactly one result; lines that are not selected have none.
"""

from collections.abc import Callable

from batchrun.assembly import Parts, too_long
from batchrun.core import Job, Rejection, Request, Status
from batchrun.errands import Errand
from batchrun.errors import JobError
from batchrun.jobs import JobReader, rejection
from batchrun.line import Line
from batchrun.outcomes import Outcomes
from batchrun.overflow import chunked, truncated
from batchrun.results import reject
from batchrun.selection import Selection
from batchrun.sink import Sink
from batchrun.source import Source
from batchrun.supply import Room, Supplier
from batchrun.wholes import Whole, whole_digest

LOOK_LINES = 64  # between two looks at the signals, where lines need no run
IDLE_WAIT_S = 0.2  # between two looks at a stream that has nothing now, and at the signals


def intake(
    parts: Parts, reader: JobReader, source: Source, sink: Sink, selection: Selection, clock: Callable[[], float]
) -> Supplier:
    """The supply of a run over an input."""
    return lambda outcomes, room: Intake(parts, reader, source, sink, selection, outcomes, room, clock)


class Intake:
    """Requests for one run, in the order of its input."""

    def __init__(
        self,
        parts: Parts,
        reader: JobReader,
        source: Source,
        sink: Sink,
        selection: Selection,
        outcomes: Outcomes,
        room: Room,
        clock: Callable[[], float],
    ) -> None:
        self._parts = parts
        self._reader = reader
        self._source = source
        self._sink = sink
        self._selection = selection
        self._outcomes = outcomes
        self._room = room
        self._clock = clock
        self._chosen = selection.chosen(source.total)
        self._selects = selection.looks_back or not selection.takes_all
        self._seen = 0
        self._left = selection.limit

    @property
    def blank(self) -> int:
        """Lines of nothing but space, so far."""
        return self._source.blank

    @property
    def ended(self) -> bool:
        """No request will come any more."""
        return (self._source.ended or self._left == 0) and not self._outcomes.ready

    def next(self, stopped: Callable[[], bool], *, wait: bool) -> Request | None:
        """The next request, or None if there is none now."""
        ready, wait_s = self._outcomes.ready, IDLE_WAIT_S if wait else 0.0
        while not ready and not self.ended and not (self._seen % LOOK_LINES == 0 and stopped()):
            line = None if self._sink.full else self._source.next(wait_s)
            if line is None:
                return None
            self._take(line)
        return ready.popleft() if ready else None

    def _take(self, line: Line) -> None:
        self._seen += 1
        if self._chosen is not None and self._seen - 1 not in self._chosen:
            return
        item = self._reader.read_line(line)
        again = False
        if self._selects:
            past = self._sink.latest(item.id) if self._selection.looks_back else None
            if not (self._selection.takes_id(item.id) and self._selection.takes_past(past)):
                return
            again = self._selection.runs_again(past)
        if self._left is not None:
            self._left -= 1
        self._sink.begin(item.index)
        if isinstance(item, Job):
            self._take_job(item, line, again)
        else:
            self._turn_away(item, again)

    def _turn_away(self, item: Rejection, again: bool) -> None:
        if again or not self._is_done(item.id, item.digest, item.index):
            self._outcomes.record(reject(item, self._parts.model.card.name))

    def _take_job(self, job: Job, line: Line, again: bool) -> None:
        """Finds a result for a job, or sets out to make one."""
        digest = self._parts.preparer.digest(job)
        if not again:
            status = self._done(job.id, digest, job.index)
            if status is Status.OK:
                self._outcomes.win(job)
            if status:
                return
        if self._outcomes.errands.winner(job.group) is not None:
            self._outcomes.spare(job, digest)
        elif not self._shared(job, digest, again):
            self._prepare(job, digest, line, again)

    def _shared(self, job: Job, digest: str, again: bool) -> bool:
        """Whether an equal job has an answer, or will have one."""
        if equal := self._outcomes.errands.equal_to(job, digest):
            equal.twins.append(job)
            return True
        record = self._sink.answer(digest) if self._outcomes.errands.may_share(job) and not again else None
        if record is None or (self._selection.retry_failed and record["status"] != Status.OK):
            return False
        self._outcomes.share(job, record)
        return True

    def _prepare(self, job: Job, digest: str, line: Line, again: bool) -> None:
        try:
            request = self._request(job, digest)
            if self._room.fits(request):
                self._outcomes.add(Errand(request))
            else:
                self._overflow(job, request, again)
        except JobError as error:
            self._turn_away(rejection(line, job.id, error.problem, job.meta), again)

    def _request(self, job: Job, digest: str) -> Request:
        return self._parts.preparer.prepare(job, digest, self._clock())

    def _overflow(self, job: Job, request: Request, again: bool) -> None:
        """The job is too long for a slot.  Raises JobError where that is the end of it."""
        policy, preparer = self._parts.settings.on_overflow, self._parts.preparer
        if policy == "reject":
            raise JobError(too_long(request, self._room.context(), self._parts.model.card.context_train))
        if policy == "chunk":
            self._read_in_pieces(job, request.digest, again)
            return
        cut = truncated(job, policy, self._fits)
        digest = preparer.digest(cut.job)
        if (again or not self._is_done(job.id, digest, job.index)) and not self._shared(cut.job, digest, again):
            self._outcomes.add(Errand(self._request(cut.job, digest), document=cut.document))

    def _read_in_pieces(self, job: Job, digest: str, again: bool) -> None:
        settings, preparer = self._parts.settings, self._parts.preparer
        spans = chunked(job, self._fits, settings.overlap_characters)
        whole = Whole(job, "", spans, settings.reduce_prompt, self._fits, again=again)
        whole.digest = whole_digest(digest, [preparer.digest(piece) for piece in whole.jobs()], settings.reduce_prompt)
        if again or not self._is_done(job.id, whole.digest, job.index):
            self._outcomes.start(whole)

    def _fits(self, job: Job) -> bool:
        return self._room.fits(self._parts.preparer.sized(job))

    def _done(self, job_id: str, digest: str, index: int) -> Status | None:
        status = self._sink.claim(job_id, digest, index)
        if status:
            self._outcomes.was_done(status)
        return status

    def _is_done(self, job_id: str, digest: str, index: int) -> bool:
        return self._done(job_id, digest, index) is not None
