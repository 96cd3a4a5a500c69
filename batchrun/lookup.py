"""Lookahead without a draft model: where an answer copies from its prompt, the prompt says how it goes on.

A `Trail` follows one answer through the text that it may be copying: three tokens that stood somewhere before point to
what followed them there.  The engine proposes that continuation, and the backend draws after each proposed token in the
same forward; what was drawn is kept as far as it says the same, so the answer is the one that plain decoding gives.
(Prompt lookup decoding: Saxena 2023; the check in one forward is from speculative decoding, arXiv 2211.17192.)

Whether a proposal pays is reckoned from what steps have cost and from how often trails of that length were right so
far.  Trails are followed all the time and proposals made only where they pay, so that record costs nothing.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

KEY_TOKENS = 3
LONGEST_RUN = 12
LENGTHS = (2, 4, 8, 16)
"""Of proposals.  All rows of a step get the same: rows of unequal length are computed apart, in one more pass."""

FIRST_HIT_SHARE = 0.5
WEIGHT = 0.05
CLEARLY = 1.25
"""A proposal must be expected to save this many times what it costs."""


class Trail:
    """One answer's way through the text before it.  `tokens`: the sequence's own list, which grows."""

    __slots__ = ("_at", "_index", "_seen", "_tokens", "run")

    def __init__(self, tokens: list[int]) -> None:
        self._tokens = tokens
        self._index: dict[tuple[int, ...], int] = {}  # three tokens, and the place after them where they stood last
        self._seen = 0
        self._at: int | None = None
        self.run = 0  # tokens that the answer and the trail have in common up to here
        self.follow()

    @property
    def found(self) -> bool:
        return self._at is not None

    def follow(self) -> None:
        """Takes the tokens that the sequence has got since."""
        tokens = self._tokens
        for place in range(self._seen, len(tokens)):
            if self._at is not None and tokens[self._at] == tokens[place]:
                self._at += 1
                self.run += 1
            else:
                self._at = None
            if place + 1 >= KEY_TOKENS:
                key = tuple(tokens[place + 1 - KEY_TOKENS : place + 1])
                if self._at is None:
                    self._at = self._index.get(key)
                    self.run = KEY_TOKENS
                self._index[key] = place + 1
        self._seen = len(tokens)

    def says(self, token: int) -> bool:
        """Whether the trail goes on with this token."""
        return self._at is not None and self._tokens[self._at] == token

    def ahead(self, count: int) -> tuple[int, ...]:
        """The next tokens of the trail, as many as there are."""
        return () if self._at is None else tuple(self._tokens[self._at : self._at + count])


class Prices(NamedTuple):
    """Seconds: of a pass more, of a row's one token, of a token of a longer piece; at the depth of the rows."""

    pass_s: float
    row_s: float
    token_s: float


class Record:
    """How often trails were right, by the length of what they had in common with the answer."""

    def __init__(self) -> None:
        self._hit_shares = [FIRST_HIT_SHARE] * (LONGEST_RUN + 1)

    def saw(self, run: int, hit: bool) -> None:
        place = min(run, LONGEST_RUN)
        self._hit_shares[place] += WEIGHT * (hit - self._hit_shares[place])

    def expected(self, run: int, length: int) -> float:
        """Tokens of a proposal that will stand, on average."""
        share = self._hit_shares[min(run, LONGEST_RUN)]
        return sum(share**place for place in range(1, length + 1))


def chosen(runs: Sequence[tuple[int, int]], decoding: int, prices: Prices, record: Record) -> tuple[set[int], int]:
    """Which rows get a proposal, and how long; nobody, where it does not pay.

    `runs`: (slot, run) of the rows that are on a trail.  `decoding`: rows that decode in this step.
    """
    best: tuple[float, set[int], int] = (0.0, set(), 0)
    saved_s = prices.row_s + prices.pass_s / max(decoding, 1)
    for length in LENGTHS:
        gains = [(record.expected(run, length) * saved_s, slot) for slot, run in runs]
        price_s = (length + 1) * prices.token_s - prices.row_s
        worth = [(gain_s, slot) for gain_s, slot in gains if gain_s > CLEARLY * price_s]
        total_s = sum(gain_s for gain_s, _ in worth)
        cost_s = len(worth) * price_s + (prices.pass_s if len(worth) < decoding else 0.0)
        if total_s > CLEARLY * cost_s and total_s - cost_s > best[0]:
            best = (total_s - cost_s, {slot for _, slot in worth}, length)
    return best[1], best[2]


def matching(proposal: Sequence[int], said: Iterable[int]) -> int:
    """How many tokens of a proposal were said."""
    count = 0
    for proposed, token in zip(proposal, said, strict=False):
        if proposed != token:
            break
        count += 1
    return count
