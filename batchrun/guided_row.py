"""One row under a grammar: takes drawn tokens, gives forced ones, and never lets the budget end before the answer does.

Beside the grammar state that masks are made from, a row keeps one over bytes and, from there, a way home.  A drawn
token stands if the row can still go home after it; else it is dropped and the row is led home from where it was.
"""

from collections.abc import Sequence
from typing import Any

from batchrun.core import Accepted, Closed
from batchrun.homeward import Homeward
from batchrun.json_place import Phase
from batchrun.runaway import RunawayGuard
from batchrun.way_home import Homes, Stand, end_of_value

RUNAWAYS_MENDED = 1
"""Strings and numbers of one answer that are ended for it to go on; after one more the answer is closed."""


class Row:
    """The grammar state of one row, without a care for its budget."""

    __slots__ = ("matcher",)

    def __init__(self, matcher: Any) -> None:
        self.matcher = matcher

    @property
    def ways(self) -> dict[int, bytes]:
        """Tokens that the next draw is kept to; empty where the grammar alone says what may come."""
        return {}

    def accept(self, token: int, left: int) -> Accepted:
        """Takes a drawn token.  The tokens it forces are already taken when they are given back."""
        error = self._taken(token)
        if error or self.matcher.is_stopped():
            return Accepted(ended=not error, error=error)
        forced = self.matcher.compute_ff_tokens()
        if forced and not self.matcher.consume_tokens(forced):
            return Accepted(error=f"forced tokens were refused: {first_line(self.matcher.get_error())}")
        return Accepted(tuple(forced), ended=self.matcher.is_stopped())

    def allows(self, tokens: Sequence[int]) -> int:
        """How many of these tokens may come to be said; none where the row is being led."""
        return 0 if self.ways else int(self.matcher.validate_tokens(list(tokens)))

    def _taken(self, token: int) -> str | None:
        """Moves the matcher on; what is wrong, if anything is."""
        matcher = self.matcher
        if matcher.consume_token(token) and not matcher.is_error():  # in error it takes an end without complaint
            return None
        return f"token {token} is not in the grammar: {first_line(matcher.get_error())}"


class BudgetedRow(Row):
    """A row that knows its way home."""

    __slots__ = ("_guard", "_home", "_homes", "_homeward", "_mended", "_stand")

    def __init__(self, matcher: Any, stand: Stand, homes: Homes, home: bytes) -> None:
        super().__init__(matcher)
        self._stand = stand
        self._homes = homes
        self._home = home
        self._homeward: Homeward | None = None
        self._guard = RunawayGuard()
        self._mended = 0

    @property
    def ways(self) -> dict[int, bytes]:
        return self._homeward.ways if self._homeward else {}

    def accept(self, token: int, left: int) -> Accepted:
        error = self._taken(token)
        if error:
            return Accepted(error=error)
        if self._homeward:
            return self._homeward.led(token, left - 1)
        if self.matcher.is_stopped():
            return Accepted(ended=True)
        spelled, place = self._homes.spelling.bytes_of([token]), self._stand.place
        self._stand.move(spelled)
        home = self._homes.from_here(self._stand, self._home, spelled, left - 1)
        if home is None:
            self._stand.back(spelled, place)
            self.matcher.rollback(1)
            return self._close(Closed.BUDGET, left, dropped=True)
        self._home = home
        number = self._stand.place.phase is Phase.SCALAR
        if self._guard.saw(token, self._stand.within, len(spelled), in_number=number):
            return self._end_runaway(left - 1)
        return self._forced_within(left - 1)

    def _forced_within(self, left: int) -> Accepted:
        """What the grammar forces, unless that would take more tokens than the way home, and it matters by now."""
        if not left:
            return self._ended()
        if not self._stand.matcher.compute_ff_bytes():  # asking it is a hundred times cheaper
            return Accepted()
        forced = self.matcher.compute_ff_tokens()
        spelled = self._homes.spelling.bytes_of(forced)
        rest, left_then = self._home[len(spelled) :], left - len(forced)
        if not forced or not self._home.startswith(spelled) or self._homes.cost(rest, left_then) > left_then:
            return Accepted()
        if not self.matcher.consume_tokens(forced):
            return Accepted(error=f"forced tokens were refused: {first_line(self.matcher.get_error())}")
        self._stand.move(spelled)
        self._home = rest
        ended = self.matcher.is_stopped() or not left_then
        return Accepted(tuple(forced), ended=ended, closed=self._ended().closed if ended else frozenset())

    def _ended(self) -> Accepted:
        """Nothing is left of the budget: the answer is complete, and may have had more to say."""
        return Accepted(ended=True, closed=frozenset() if self.matcher.is_stopped() else frozenset({Closed.BUDGET}))

    def _end_runaway(self, left: int) -> Accepted:
        """Ends the string or number, for the answer to go on; an answer that ran away before is closed."""
        self._mended += 1
        end = end_of_value(self._home, self._stand.place) if self._homes.hints.is_json else 0
        tokens = self._homes.spelling.tokens_of(self._home[:end])
        left_then = left - len(tokens)
        rest = self._home[end:]
        if self._mended > RUNAWAYS_MENDED or not tokens or self._homes.cost(rest, left_then) > left_then:
            return self._close(Closed.RUNAWAY, left, dropped=False)
        if not self.matcher.consume_tokens(tokens):
            return Accepted(error=f"the way home was refused: {first_line(self.matcher.get_error())}")
        self._stand.move(self._home[:end])
        self._home = rest
        if self.matcher.is_stopped():
            return Accepted(tuple(tokens), ended=True, closed=frozenset({Closed.RUNAWAY}))
        on = self._forced_within(left_then)
        return Accepted((*tokens, *on.forced), ended=on.ended, error=on.error, closed=on.closed | {Closed.RUNAWAY})

    def _close(self, why: Closed, left: int, *, dropped: bool) -> Accepted:
        """Leads the row home from where it is.  `dropped`: the drawn token went too far and does not stand."""
        home = self._homes.valid(self._stand, self._home, left)
        self._homeward = Homeward(self.matcher, self._stand, self._homes, home)
        led = self._homeward.go(left, at_once=dropped)
        return Accepted(led.forced, ended=led.ended, error=led.error, dropped=dropped, closed=frozenset({why}))


def first_line(text: str) -> str:
    """An error of the engine in one line, without its advice on options that nobody here can set."""
    return " ".join(text.split()).partition(" Enable ")[0].partition(" <state>")[0][:200]
