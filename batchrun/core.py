"""Value types that cross the borders between modules.

All are frozen: what a module hands on, nobody changes.  The one mutable record, `sequence.Sequence`, stays between
the scheduler and the engine.  What a constraint on answers is lies in `constraint.py`; this file hands it on, and knows
no other module and no third-party name.
"""

from collections.abc import Sequence as Seq
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from batchrun.constraint import Accepted as Accepted
from batchrun.constraint import Closed as Closed
from batchrun.constraint import Constraint as Constraint
from batchrun.constraint import Grammar as Grammar
from batchrun.constraint import Language as Language
from batchrun.constraint import Schema as Schema
from batchrun.constraint import Thought as Thought


class Status(StrEnum):
    """How a job ended."""

    OK = "ok"
    INVALID = "invalid"  # finished, but the answer fails its schema
    TRUNCATED = "truncated"  # the token budget ended before the answer did
    ERROR = "error"  # the engine failed under it
    REJECTED = "rejected"  # bad line, unusable schema, too long
    CANCELLED = "cancelled"
    EXPIRED = "expired"  # its deadline passed


FINAL_STATUSES = frozenset({Status.OK, Status.INVALID, Status.TRUNCATED, Status.REJECTED})
"""Statuses that a resumed run leaves alone: running the same job again would only say the same again."""

GROUP_WON = "group_won"
CRASHED_TWICE = "crashed_twice"
FINAL_CODES = frozenset({GROUP_WON, CRASHED_TWICE})
"""Reasons that make a result of another status final too: its group has an answer, or it ended the engine twice."""


class FinishReason(StrEnum):
    """Why decoding of one sequence ended."""

    STOP = "stop"  # an end-of-text token, a stop string, or a grammar with nothing left to say
    LENGTH = "length"
    CANCELLED = "cancelled"
    EXPIRED = "expired"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, as a result shows it.

    `line` is the line of the input (from 1), `column` the column in it (from 1), `file` the input where there are
    several, `path` a JSON pointer into the answer or into the schema.
    """

    code: str
    message: str
    line: int | None = None
    column: int | None = None
    path: str | None = None
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Sampling:
    """How a token is drawn.  Temperature 0 is greedy; the other fields then have no effect."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0  # 0: no limit
    min_p: float = 0.0
    seed: int = 0


@dataclass(frozen=True, slots=True)
class Defaults:
    """What a line that does not say it gets."""

    max_tokens: int = 512
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    system: str | None = None
    schema: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """One turn of a chat."""

    role: str
    content: str


@dataclass(frozen=True, slots=True)
class Job:
    """One checked line of the input, with the run's defaults filled in."""

    index: int  # line number in the input, from 1, counted on over several
    id: str
    messages: tuple[Message, ...]  # as written; the last user turn is what the schema and document are added to
    document: str | None
    schema: Schema | None
    max_tokens: int
    sampling: Sampling
    stop: tuple[str, ...]
    meta: Any
    timeout_s: float | None = None  # from the moment it has a slot, rests left out
    group: str | None = None  # the first good answer of a group ends its other jobs


@dataclass(frozen=True, slots=True)
class Rejection:
    """A line that cannot run, with what its result needs."""

    index: int
    id: str
    problem: Problem
    digest: str
    meta: Any = None


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A job made ready for the engine: token ids, and the grammar that its answer must obey.

    `taken_s`: the moment, on the run's clock, at which a burst took it; its times are counted from there.
    `thinking_tokens`: what may be said before the answer, beside its budget.  `attempt`: which try at the job this is;
    `refusals`: how many before it failed their schema.
    """

    job: Job
    digest: str
    tokens: tuple[int, ...]
    grammar: Grammar | None = None
    taken_s: float = 0.0
    thinking_tokens: int = 0
    attempt: int = 1
    refusals: int = 0

    @property
    def opening(self) -> tuple[int, ...]:
        """The first tokens of the answer, where the grammar leaves no choice."""
        return self.grammar.opening if self.grammar else ()

    @property
    def budget_tokens(self) -> int:
        """Tokens that may be said, thoughts and answer."""
        return self.thinking_tokens + self.job.max_tokens

    @property
    def need_tokens(self) -> int:
        """Cells that this request can come to fill: its prompt and its whole budget."""
        return len(self.tokens) + self.budget_tokens


@dataclass(frozen=True, slots=True)
class Limits:
    """What a backend can hold, counted in slots and tokens, and what it can do.

    `cut`: it can keep the beginning of a sequence without the rest.  `ahead`: it can draw behind proposed tokens, and
    cut off what does not stand.  `chain`: tokens that a row may draw in one step.
    """

    slots: int
    context: int  # tokens in one slot
    cells: int  # tokens over all slots
    batch: int  # tokens in one forward
    vocab: int  # width of a row of logits
    cut: bool = True
    ahead: bool = False
    chain: int = 1


@dataclass(frozen=True, slots=True)
class Pace:
    """How to fill the next step, by what steps have cost so far.

    `chunk_tokens`: the most prefill tokens in one step.  `run_tokens`: the shortest run of tokens that is cheaper fed
    at once than one a step while other rows decode.  `join_tokens`: the longest prompt piece that is cheaper computed
    beside pieces of other lengths than in a step of its own.  `rows`: how many may run.
    """

    chunk_tokens: int
    rows: int
    run_tokens: int = 8
    join_tokens: int = 4


class Feed(NamedTuple):
    """Tokens to append to a slot, which holds `start` tokens now.  `sampling` is None where no token is wanted back.

    The last `proposed` of the tokens are a guess: a token is wanted after each of them, and after the one before them.
    """

    slot: int
    start: int
    tokens: Seq[int]
    sampling: Sampling | None
    proposed: int = 0

    @property
    def draws(self) -> int:
        """Tokens wanted back."""
        return 0 if self.sampling is None else 1 + self.proposed

    @property
    def proposal(self) -> Seq[int]:
        return self.tokens[len(self.tokens) - self.proposed :]


class Copy(NamedTuple):
    """Makes the empty slot `target` equal to the first `tokens` tokens of `source`."""

    source: int
    target: int
    tokens: int


class Cut(NamedTuple):
    """Keeps the first `tokens` tokens of a slot and forgets the rest."""

    slot: int
    tokens: int


class Step(NamedTuple):
    """What the backend does next: frees, cuts, copies, feeds.  Feeds are ordered by slot, at most one a slot.

    The counts say what the feeds are: tokens of prompts and prefixes, rows that decode, and cells that those tokens
    attend to.  `chain`: tokens that every feed draws; more than one only where all draw, greedy and unguided.
    """

    frees: tuple[int, ...]
    cuts: tuple[Cut, ...]
    copies: tuple[Copy, ...]
    feeds: tuple[Feed, ...]
    prefill_tokens: int
    decoding_rows: int
    prefill_cells: float = 0.0
    chain: int = 1


class Drawn(NamedTuple):
    """A token drawn for a slot.  `margin`: logit of the best allowed token less that of the second; inf if alone."""

    slot: int
    token: int
    margin: float


class Outcome(NamedTuple):
    """What a feed's draws came to: the tokens to append, and why the sequence ends, if it does.

    `drawn` of the tokens were drawn, the others were forced by those.
    """

    slot: int
    tokens: tuple[int, ...]
    finish: FinishReason | None
    drawn: int = 1


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one job.  `cached_tokens` of the prompt were copied from a shared prefix and not computed again."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timing:
    """Seconds of one job, counted from the moment a burst took it.

    `queued_s` until it got a slot, `ttft_s` until its first token, `decode_s` from the first token to the last,
    `forced_s` of these in steps that fed it several tokens at once, which its grammar had forced.
    """

    queued_s: float
    ttft_s: float | None
    decode_s: float
    total_s: float
    forced_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """What the engine made of a request: the text, not yet judged.

    `near_ties`: places in `tokens` whose draw was nearly a tie, with the margin in logits.
    """

    request: Request
    text: str
    finish_reason: FinishReason
    usage: Usage
    timing: Timing
    tokens: tuple[int, ...] = ()
    near_ties: tuple[tuple[int, float], ...] = ()
    error: str | None = None
    slot: int | None = None
    closed: frozenset[Closed] = frozenset()
    engine_failed: bool = False  # not the row's own doing: it may run again


@dataclass(frozen=True, slots=True)
class Result:
    """One line of the results file."""

    id: str
    index: int
    status: Status
    output: Any
    finish_reason: FinishReason | None
    errors: tuple[Problem, ...]
    usage: Usage
    timing: Timing | None
    burst: int | None
    attempt: int
    model: str
    digest: str
    meta: Any
    closed_by_budget: bool = False
    closed_by_runaway: bool = False
    verbatim: tuple["Quote", ...] = ()
    document: Any = None  # where it was cut: its characters, and the pieces that were read
    copy_of: str | None = None  # the equal job that was computed in its place
    schema: str | None = None  # its name
    slot: int | None = None  # that it ran in
    ended_at: str | None = None  # ISO 8601, UTC: when it was written


@dataclass(frozen=True, slots=True)
class Quote:
    """Where a verbatim string stands: `document[start:end]`.  `path`: a JSON pointer into the answer."""

    path: str
    start: int
    end: int
