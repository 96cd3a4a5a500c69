"""What becomes of a job that fits into no slot: refused, cut, or read in pieces; what was cut stands in its result."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from batchrun.core import Job, Problem
from batchrun.cutting import Span, beginning, both_ends, joined, pieces
from batchrun.errors import JobError

POLICIES = ("reject", "truncate-middle", "truncate-end", "chunk")

FitsJob = Callable[[Job], bool]
"""Whether a job, prompt and whole budget, fits into a slot."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A job made to fit, and what its result says of it."""

    job: Job
    document: dict[str, Any]


def truncated(job: Job, policy: str, fits: FitsJob) -> Cut:
    """The job with as much of its document as fits, or of its last turn where it has none.

    Raises JobError where not even the rest of the prompt fits.
    """
    text = _text(job)
    check_room(job, fits)
    cut = both_ends if policy == "truncate-middle" else beginning
    spans = [span for span in cut(text, lambda kept: fits(_with_text(job, kept))) if span.end > span.start]
    made = _with_text(job, joined(text, spans))
    return Cut(made, {"characters": len(text), "cut": policy, "pieces": spans})


def chunked(job: Job, fits: FitsJob, overlap: int) -> list[Span]:
    """The pieces in which a document is read.  Raises JobError where there is no document, or no room for one."""
    if job.document is None:
        raise JobError(Problem("too_long", "the prompt fits into no slot; only a document can be read in pieces"))
    check_room(job, fits)
    spans = pieces(job.document, lambda text: fits(replace(job, document=text)), overlap)
    if not spans:
        raise JobError(Problem("too_long", "the prompt leaves no room for a document in a slot"))
    return spans


def check_room(job: Job, fits: FitsJob) -> None:
    if not fits(_with_text(job, "")):
        expected = "expected a shorter prompt, a smaller budget or a larger --context"
        message = f"even without its document the job fits into no slot; {expected}"
        raise JobError(Problem("too_long", message))


def _text(job: Job) -> str:
    return job.messages[-1].content if job.document is None else job.document


def _with_text(job: Job, text: str) -> Job:
    if job.document is not None:
        return replace(job, document=text)
    return replace(job, messages=(*job.messages[:-1], replace(job.messages[-1], content=text)))
