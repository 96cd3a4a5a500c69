"""Models that think aloud before they answer: the block is closed before it begins, or gets a budget of its own.

Thoughts would eat the budget of the answer, and no grammar fits them.  Off, the prompt ends behind an empty block, in
the template's own way where it has one.  With a budget, the model thinks freely until it closes the block or the budget
is spent; then the block is closed for it, and the guide starts.
"""

from collections.abc import Sequence

from batchrun.backends.base import Tokenizer
from batchrun.core import Accepted, Grammar, Thought

TAGS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
)
SWITCHES = ("enable_thinking", "thinking_budget")
"""Names by which templates are told whether the model is to think."""

TAIL_BYTES = 64


def tags_of(template: str) -> tuple[str, str] | None:
    """How a chat template opens and closes a thinking block; None where it knows of none."""
    return next((tags for tags in TAGS if tags[1] in template), None)


def without_thinking(rendered: str, template: str) -> str:
    """A prompt after which the model answers at once."""
    tags = tags_of(template)
    if tags is None:
        return rendered
    opened, closed = rendered.rfind(tags[0]), rendered.rfind(tags[1])
    if rendered.rstrip().endswith(tags[0]):
        return f"{rendered.rstrip()}\n\n{tags[1]}\n\n"
    has_switch = any(name in template for name in SWITCHES)
    is_closed = closed > opened and rendered.rstrip().endswith(tags[1])
    return rendered if has_switch or is_closed else f"{rendered}{tags[0]}\n\n{tags[1]}\n\n"


def with_thinking(rendered: str, template: str) -> str:
    """A prompt after which the model thinks."""
    tags = tags_of(template)
    if tags is None or rendered.rstrip().endswith(tags[0]):
        return rendered
    return f"{rendered}{tags[0]}\n"


class ThinkingGrammar:
    """Free thoughts of at most so many tokens, then a grammar, or free text.

    `budget_tokens` is never less than one thought and the closing tag: the answer's own budget must not pay for them.
    """

    opening: tuple[int, ...] = ()

    def __init__(self, tokenizer: Tokenizer, tags: tuple[str, str], budget_tokens: int, inner: Grammar | None) -> None:
        self.tokenizer = tokenizer
        self.close = tags[1].encode()
        self.inner = inner
        self.close_token = tokenizer.encode(tags[1], control=True)
        self.end = tuple(tokenizer.encode(f"\n{tags[1]}\n\n", control=True))
        self.budget_tokens = max(budget_tokens, len(self.end) + 1)

    @property
    def least_tokens(self) -> int:
        return self.inner.least_tokens if self.inner else 0

    def start(self) -> "Thinking":
        return Thinking(self)


class Thinking:
    """One row that thinks.  The closing tag is taken out of its budget."""

    def __init__(self, grammar: ThinkingGrammar) -> None:
        self._grammar = grammar
        self._tokens: list[int] = []

    def accept(self, token: int, left: int) -> Accepted:
        grammar = self._grammar
        if token in grammar.tokenizer.stop_tokens:
            return self._ended(grammar.end, dropped=True)
        self._tokens.append(token)
        if self._closes(self._tokens):
            return self._ended(())
        if len(self._tokens) + len(grammar.end) >= grammar.budget_tokens:
            return self._ended(grammar.end)
        return Accepted()

    def allows(self, tokens: Sequence[int]) -> int:
        """Thoughts are said one by one: any may be the last."""
        return 0

    def _closes(self, tokens: Sequence[int]) -> bool:
        tag = self._grammar.close_token
        if len(tag) == 1:
            return tokens[-1] == tag[0]
        return self._grammar.close in self._grammar.tokenizer.decode(tokens[-TAIL_BYTES:])

    def _ended(self, forced: tuple[int, ...], *, dropped: bool = False) -> Accepted:
        inner = self._grammar.inner
        thought = Thought(inner.opening, inner.start()) if inner else Thought((), None)
        return Accepted(forced, dropped=dropped, thought=thought)
