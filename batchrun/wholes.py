"""A document that is read in pieces: map over the pieces, then one answer of all the answers.

A `Whole` gives the jobs of its pieces, takes their results, gives further jobs where a reduce prompt asks for them, and
comes to the one result of its document.  It runs nothing.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from batchrun.core import Job, Message, Problem, Result, Status, Timing, Usage
from batchrun.cutting import Span
from batchrun.merging import merged, with_scalars_of
from batchrun.results import as_json
from batchrun.schemas import quotes, ungrounded, validate

GRAVEST = (Status.ERROR, Status.EXPIRED, Status.CANCELLED, Status.REJECTED, Status.TRUNCATED, Status.INVALID)
PROBLEMS_SHOWN = 8


class Whole:
    """One job whose document is read in pieces.

    `digest`: of the whole job; `fits`: whether a job fits into a slot; `again`: whether pieces that did not come out
    well in an earlier run are read again.
    """

    def __init__(
        self,
        job: Job,
        digest: str,
        spans: Sequence[Span],
        reduce_prompt: str | None,
        fits: Callable[[Job], bool],
        *,
        again: bool = False,
    ) -> None:
        assert job.document is not None, "only a document has pieces"
        self.job = job
        self.digest = digest
        self.again = again
        self.result: Result | None = None  # set when all is done
        self._document = job.document
        self._spans = list(spans)
        self._reduce_prompt = reduce_prompt
        self._fits = fits
        self._pieces: list[Result] = []  # the results of the first round, in the order of the document
        self._awaited = len(self._spans)
        self._round: dict[int, Result] = {}
        self._all: list[Result] = []

    def jobs(self) -> list[Job]:
        """A job for each piece."""
        return [
            replace(self.job, id=f"{self.job.id}#{number}", document=self._document[span.start : span.end])
            for number, span in enumerate(self._spans, 1)
        ]

    def take(self, number: int, result: Result) -> list[Job]:
        """Takes the result of a job, by its place in what was given last.  Gives the jobs of the next round, if any."""
        self._round[number] = result
        self._all.append(result)
        if len(self._round) < self._awaited:
            return []
        results = [self._round[place] for place in range(self._awaited)]
        self._round = {}
        is_first = not self._pieces
        self._pieces = self._pieces or results
        bad = any(result.status is not Status.OK for result in results)
        if bad or self._reduce_prompt is None or (len(results) == 1 and not is_first):
            self.result = self._finished(None if is_first else results)
            return []
        return self._reductions(results)

    def give_up(self, problem: Problem) -> None:
        """The answers of the pieces cannot be brought together."""
        self.result = self._finished(None, problem)

    def _reductions(self, results: list[Result]) -> list[Job]:
        """Jobs that take as many answers each as fit; more than one makes another round."""
        texts = [_text(result.output) for result in results]
        jobs: list[Job] = []
        group: list[str] = []
        for text in texts:
            if group and not self._fits(self._reduction([*group, text], 0)):
                jobs.append(self._reduction(group, len(jobs)))
                group = []
            group.append(text)
        jobs.append(self._reduction(group, len(jobs)))
        if len(jobs) == len(texts) or not all(map(self._fits, jobs)):
            reason = "the answers of two pieces and the reduce prompt fit into no slot"
            self.give_up(Problem("reduce_too_long", reason))
            return []
        self._awaited = len(jobs)
        return jobs

    def _reduction(self, texts: list[str], number: int) -> Job:
        assert self._reduce_prompt is not None, "asked for only where there is one"
        system = tuple(message for message in self.job.messages if message.role == "system")
        messages = (*system, Message("user", self._reduce_prompt))
        schema = self.job.schema and ungrounded(self.job.schema)  # the whole is checked against the document
        job_id = f"{self.job.id}#all-{number}"
        return replace(self.job, id=job_id, messages=messages, document="\n\n".join(texts), schema=schema)

    def _finished(self, reduced: list[Result] | None, failure: Problem | None = None) -> Result:
        """The one result.  `reduced`: results of the last round of reductions."""
        results = self._pieces if reduced is None else [*self._pieces, *reduced]
        bad = [result for result in results if result.status is not Status.OK]
        good = [result.output for result in self._pieces if result.status is Status.OK]
        output = merged(good) if self.job.schema else "\n\n".join(good) or None
        if reduced and not bad:
            last = reduced[-1].output
            output = with_scalars_of(output, last) if self.job.schema else last
        status = next((status for status in GRAVEST if any(result.status is status for result in bad)), Status.OK)
        problems = [self._placed(result, problem) for result in bad for problem in result.errors]
        if failure:
            status, problems = Status.INVALID, [failure]
        if status is Status.OK and self.job.schema:
            problems = validate(self.job.schema, output, self._document)
            status = Status.INVALID if problems else Status.OK
        return self._as_result(status, output, problems[:PROBLEMS_SHOWN])

    def _as_result(self, status: Status, output: Any, problems: list[Problem]) -> Result:
        usage = Usage(*(sum(getattr(r.usage, name) for r in self._all) for name in Usage.__dataclass_fields__))
        last = max(self._all, key=lambda result: result.burst or 0)
        schema = self.job.schema if status is Status.OK else None
        return replace(
            last,
            id=self.job.id,
            index=self.job.index,
            status=status,
            output=output,
            finish_reason=next((r.finish_reason for r in self._all if r.status is status), last.finish_reason),
            errors=tuple(problems),
            usage=usage,
            timing=_timing([result.timing for result in self._all if result.timing]),
            digest=self.digest,
            meta=self.job.meta,
            document={"characters": len(self._document), "cut": "chunk", "pieces": self._spans},
            copy_of=None,
            closed_by_budget=any(result.closed_by_budget for result in self._all),
            closed_by_runaway=any(result.closed_by_runaway for result in self._all),
            verbatim=quotes(schema, output, self._document) if schema else (),
            slot=None,
        )

    def _placed(self, result: Result, problem: Problem) -> Problem:
        number = result.id.rpartition("#")[2]
        if not number.isdigit():
            return problem
        start, end = self._spans[int(number) - 1]
        return replace(problem, message=f"piece {number}, characters {start} to {end}: {problem.message}")


def whole_digest(digest: str, piece_digests: Sequence[str], reduce_prompt: str | None) -> str:
    """Covers what a whole is made of: the job, where it was cut, and how its answers were brought together."""
    shape = "\0".join(("chunk", digest, *piece_digests, reduce_prompt or ""))
    return hashlib.sha256(shape.encode()).hexdigest()


def _text(output: Any) -> str:
    return output if isinstance(output, str) else as_json(output)


def _timing(timings: list[Timing]) -> Timing | None:
    """From the first token of any piece to the last of all."""
    if not timings:
        return None
    first = [timing.ttft_s for timing in timings if timing.ttft_s is not None]
    return Timing(
        queued_s=min(timing.queued_s for timing in timings),
        ttft_s=min(first, default=None),
        decode_s=sum(timing.decode_s for timing in timings),
        total_s=max(timing.total_s for timing in timings),
        forced_s=sum(timing.forced_s for timing in timings),
    )
