"""Which jobs are tried again, and how: with what was wrong in the prompt, or with a larger budget.

A try is the same job, with the digest of the job; only the last one becomes a result.
"""

from dataclasses import dataclass, replace

from batchrun.core import Closed, Completion, Problem, Request, Result, Status
from batchrun.errors import JobError
from batchrun.prompts import Preparer

PROBLEMS_SHOWN = 3
LONGEST_REMARK = 400  # characters
ANSWERED = frozenset({Status.OK, Status.INVALID, Status.TRUNCATED})
"""How a job ends that may be asked again: what was cancelled, expired or broke down is to end."""

REMARK_TOKENS = 128
"""Room that a remark takes in a slot, about."""


@dataclass(frozen=True, slots=True)
class Retries:
    """The rule.  `most`: tries more for an answer that fails its schema; `grows`: whether budgets are doubled."""

    preparer: Preparer
    most: int
    grows: bool

    def next_try(self, completion: Completion, result: Result, context: int) -> Request | None:
        """Another try at a job, or None where its result stands.  `context`: tokens of a slot."""
        if result.status not in ANSWERED:
            return None
        request, is_short = completion.request, Closed.BUDGET in completion.closed or result.status is Status.TRUNCATED
        if self.grows and is_short and (more := self._with_more(request, context)):
            return more
        if result.status is Status.INVALID and request.refusals < self.most:
            return self._with_remark(request, result.errors, context)
        return None

    def _with_more(self, request: Request, context: int) -> Request | None:
        """The same with twice the budget, as far as the slot goes."""
        budget = min(2 * request.job.max_tokens, context - len(request.tokens) - request.thinking_tokens)
        if budget <= request.job.max_tokens:
            return None
        return replace(request, job=replace(request.job, max_tokens=budget), attempt=request.attempt + 1)

    def _with_remark(self, request: Request, errors: tuple[Problem, ...], context: int) -> Request | None:
        """The same with what was wrong, and another seed.  A budget that grew as far as the slot goes makes room."""
        job = request.job
        sampling = replace(job.sampling, seed=(job.sampling.seed + 1) % 2**63)
        try:
            again = self.preparer.prepare(replace(job, sampling=sampling), request.digest, 0.0, remark(errors))
        except JobError:
            return None
        room = context - again.need_tokens + again.job.max_tokens
        if room < again.job.max_tokens:
            if not self.grows or room < max(1, again.grammar.least_tokens if again.grammar else 0):
                return None
            again = replace(again, job=replace(again.job, max_tokens=room))
        return replace(again, attempt=request.attempt + 1, refusals=request.refusals + 1)


def remark(errors: tuple[Problem, ...]) -> str:
    """What was wrong, as a model is told."""
    said = [f"at {error.path}: {error.message}" if error.path else error.message for error in errors[:PROBLEMS_SHOWN]]
    return "; ".join(said)[:LONGEST_REMARK]
