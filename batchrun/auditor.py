"""The audit of a run while it goes on: which of its results are checked, and when that is worth emptying the batch for.

It runs nothing: it gives requests that are to run alone, and takes what they came to.
"""

from dataclasses import replace

from batchrun.core import Completion, FinishReason, Request, Result
from batchrun.verdicts import COMPARED, Audit, in_sample, same_way

AT_ONCE = 16
"""Results that wait for their audit before the batch is emptied for it: every time costs half a batch."""


class Auditor:
    """Audits a share of a run's results."""

    def __init__(self, share: float, seed: int) -> None:
        self.found = Audit()
        self._share, self._seed = share, seed
        self._waiting: list[tuple[Request, tuple[Result, Completion]]] = []
        self._running: dict[Request, tuple[Result, Completion]] = {}

    @property
    def waits(self) -> bool:
        """Whether results wait for their audit."""
        return bool(self._waiting)

    def saw(self, completion: Completion, result: Result) -> None:
        """A request of the batch has its result."""
        request = completion.request
        if result.status not in COMPARED or not in_sample(result.id, result.digest, self._share, self._seed):
            return
        if request.attempt > 1:
            self.found.passed_over["it was a further try, with words of its own"] += 1
            return
        job = replace(request.job, group=None, timeout_s=None)  # alone it races nobody
        self._waiting.append((replace(request, job=job), (result, completion)))

    def take(self, *, last: bool) -> list[Request]:
        """Requests to run again, alone; none while few wait.  `last`: there will be no more."""
        if not last and len(self._waiting) < AT_ONCE:
            return []
        waiting, self._waiting = self._waiting, []
        self._running.update(waiting)
        return [request for request, _ in waiting]

    def judge(self, request: Request, alone: Completion) -> None:
        """What a request came to when it ran alone."""
        result, batch = self._running.pop(request)
        if alone.engine_failed:
            self.found.passed_over["the engine failed under it"] += 1
        elif alone.finish_reason in (FinishReason.EXPIRED, FinishReason.CANCELLED):
            self.found.passed_over["the run ended before it did"] += 1
        else:
            self.found.count(same_way(batch, alone), result.id, result.index, result.output, alone)
