"""One object that holds all that is true of one sequence, from its admission to its end.

The scheduler owns the part that says where the tokens are (`slot`, `fed`, `tokens`); the engine owns the part that
says what they mean (`constraint`, `near_ties`, the times).  Nothing about a sequence is kept anywhere else, so there is
no second list that could drift from this one.
"""

from dataclasses import dataclass, field

from batchrun.core import Closed, Constraint, FinishReason, Request
from batchrun.lookup import Trail
from batchrun.prefix import Prefix


@dataclass(slots=True, eq=False)
class Sequence:
    """Tokens on their way through a slot.  A prefix has no request: it is computed, copied, and never drawn from.

    `tokens[:fed]` are in the slot; `tokens[fed:]` wait to be fed; a token is wanted back when they all have been.
    """

    slot: int
    tokens: list[int]
    prompt_tokens: int
    request: Request | None = None
    prefix: Prefix | None = None
    fed: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0
    finish: FinishReason | None = None
    copied_in_step: int = -1  # of a prefix: the last step that copied it
    # the engine's part
    constraint: Constraint | None = None
    trail: Trail | None = None
    proposal: tuple[int, ...] = ()  # to be tried with the next feed that draws
    near_ties: list[tuple[int, float]] = field(default_factory=list)
    error: str | None = None
    closed: set[Closed] = field(default_factory=set)
    thought_tokens: int = 0  # said before the answer
    spared_tokens: int = 0  # of the budget for thoughts
    admitted_s: float = 0.0
    first_token_s: float | None = None
    last_token_s: float = 0.0
    forced_s: float = 0.0  # in steps that fed forced tokens at once
    told_tokens: int = 0  # of the answer, to whoever listens

    @property
    def decoding(self) -> bool:
        """Its prompt and its opening lie in the slot; what waits was drawn, or forced by a draw."""
        return self.fed >= self.prefill_tokens

    @property
    def prefill_tokens(self) -> int:
        """Tokens known before the first draw."""
        return self.prompt_tokens + (len(self.request.opening) if self.request else 0)

    @property
    def completion_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens

    @property
    def left_tokens(self) -> int:
        """What is left of the budget.  Thoughts that were spared do not make the answer longer."""
        budget = self.request.budget_tokens if self.request else 0
        return budget - self.spared_tokens - self.completion_tokens

    @property
    def thinks(self) -> bool:
        """Whether what it says is not yet the answer."""
        return self.request is not None and self.request.thinking_tokens > 0 and not self.thought_tokens

    def starts_answer(self, more: int, constraint: Constraint | None) -> None:
        """The answer begins after `more` tokens that are still to be appended."""
        assert self.request is not None, "a prefix has no thoughts"
        self.constraint = constraint
        self.thought_tokens = self.completion_tokens + more
        self.spared_tokens = max(0, self.request.thinking_tokens - self.thought_tokens)

    @property
    def completion(self) -> list[int]:
        """The tokens of the answer so far."""
        return self.last_said(len(self.tokens))

    def last_said(self, most: int) -> list[int]:
        """The last tokens of the answer so far."""
        return self.tokens[max(self.prompt_tokens + self.thought_tokens, len(self.tokens) - most) :]
