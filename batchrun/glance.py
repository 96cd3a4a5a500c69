"""A run at one moment, for whoever looks on: frozen values, made when somebody asks and at no cost where nobody does.

The parts that know (engine, worker, pacer, runner) fill them; who shows them is no concern of theirs.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from batchrun.core import Step
from batchrun.heat import Level, Reading
from batchrun.sequence import Sequence
from batchrun.speed import Speed

ID_CHARACTERS = 80  # of a job's id: more fits on no line


class Doing(StrEnum):
    """What a slot is about at a token boundary."""

    WAITING = "waiting"  # for its turn: one prompt is computed at a time
    PREFILL = "prefill"
    FORCED = "forced"  # what a grammar left no choice about is fed
    DECODE = "decode"
    KEPT = "kept"  # a shared beginning, computed, that lies there to be copied


@dataclass(frozen=True, slots=True)
class SlotNow:
    """A slot that is taken.  `job_id`: None of a shared prefix.

    `tokens` of `of_tokens`: of the prompt while it is computed, of the answer's budget from then on.
    """

    slot: int
    doing: Doing
    job_id: str | None
    tokens: int
    of_tokens: int


@dataclass(frozen=True, slots=True)
class WorkNow:
    """The worker.  `rows`: slots for rows at the width of now; `burst`: the number of the one that runs, of whose jobs
    so many have `ended` and `queued` have no slot yet.
    """

    slots: tuple[SlotNow, ...]
    rows: int
    queued: int
    burst: int | None
    ended: int

    @property
    def running(self) -> int:
        """Jobs that have a slot."""
        return sum(now.job_id is not None for now in self.slots)


@dataclass(frozen=True, slots=True)
class PaceNow:
    """The pacer.  `worked_s`: of the burst that runs, or None between two; `rest_s`: of a rest, yet to come."""

    worked_s: float | None
    allowed_s: float
    rest_s: float
    why: str
    level: Level
    reading: Reading
    speed: Speed


@dataclass(frozen=True, slots=True)
class Glance:
    """All of it.  `at_s`: the moment; `work`: None until the model is loaded; `stopping`: no new job begins."""

    at_s: float
    work: WorkNow | None
    pace: PaceNow
    stopping: bool


def slots_now(sequences: Iterable[Sequence], last: Step | None) -> tuple[SlotNow, ...]:
    """The slots that are taken, in their order.  `last`: the step that was just taken."""
    fed = {feed.slot for feed in last.feeds} if last else set()
    return tuple(sorted((_slot(sequence, sequence.slot in fed) for sequence in sequences), key=lambda now: now.slot))


def _slot(sequence: Sequence, was_fed: bool) -> SlotNow:
    request = sequence.request
    job_id = request.job.id[:ID_CHARACTERS] if request else None
    if not sequence.decoding:
        doing = Doing.PREFILL if was_fed else Doing.WAITING
        return SlotNow(sequence.slot, doing, job_id, sequence.fed, sequence.prefill_tokens)
    if request is None:
        return SlotNow(sequence.slot, Doing.KEPT, None, sequence.fed, sequence.prefill_tokens)
    doing = Doing.FORCED if len(sequence.tokens) - sequence.fed > 1 else Doing.DECODE
    return SlotNow(sequence.slot, doing, job_id, sequence.completion_tokens, request.budget_tokens)
