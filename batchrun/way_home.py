"""Ways home: bytes that complete an answer from where a row stands, kept at hand so that the budget is never overrun.

A `Stand` is where a row is: the bytes it said, a grammar state over them, and the place in the JSON text.  `Homes`
knows the ways from there for all rows of a grammar; most are guessed from those that served before, the rest found by
a search.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from batchrun.closing import STEPS, ByteMatcher, Hints, ends
from batchrun.json_place import Phase, Place

HOMES_KEPT = 12
COSTS_KEPT = 1024
MOST_BYTES = 1 << 16
"""Of a way home.  Answers whose shortest is longer fit into no budget anyway."""

SHORT_ENDS = (b"", b'"', b'""', b"0", b"{}", b"[]", b"}", b"]", b"null", b"true", b'":0', b'":""', b'":{}', b'":[]')
"""What may end a thing that has just begun; then the way from before leads on."""

CANDIDATES = 12
"""Ways home that are looked at where the shortest would not be valid."""


class Spelling(Protocol):
    """Tokens to bytes and back."""

    def bytes_of(self, tokens: list[int]) -> bytes: ...

    def tokens_of(self, text: bytes) -> list[int]: ...


class Stand:
    """Where a row is in its answer."""

    __slots__ = ("_is_json", "matcher", "place", "said")

    def __init__(self, matcher: ByteMatcher, said: bytes, *, is_json: bool) -> None:
        """`matcher` has taken `said` already."""
        self.matcher = matcher
        self.said = bytearray(said)
        self.place = Place()
        self._is_json = is_json
        self._moved(said)

    def move(self, spelled: bytes) -> None:
        self.matcher.consume_tokens(list(spelled))
        self.said += spelled
        self._moved(spelled)

    def back(self, spelled: bytes, place: Place) -> None:
        """Takes the last move back; `place` is where it began."""
        self.matcher.rollback(len(spelled))
        del self.said[len(self.said) - len(spelled) :]
        self.place = place

    @property
    def within(self) -> int:
        """Bytes of the string or number that the text is in; 0 between two.  A text that is no JSON is one string."""
        return self.place.offset if self.place.phase or not self._is_json else 0

    def _moved(self, spelled: bytes) -> None:
        if self._is_json:
            self.place = self.place.after(spelled)
        else:
            self.place = Place(offset=self.place.offset + len(spelled))


class Homes:
    """What the rows of one grammar share.

    `end`: the token that ends a text of bytes; `is_valid`: of a whole answer, or None where the grammar is exact.
    """

    def __init__(self, spelling: Spelling, end: int, hints: Hints, is_valid: Callable[[bytes], bool] | None) -> None:
        self.spelling = spelling
        self.hints = hints
        self.is_valid = is_valid
        self._end = end
        self._recent: list[bytes] = []
        self._costs: dict[bytes, int] = {}

    def from_here(self, stand: Stand, last: bytes, spelled: bytes, left: int) -> bytes | None:
        """A way home of at most `left` tokens; None where there is none.  `last`: the way before `spelled` was said."""
        if last.startswith(spelled):
            way: bytes | None = last[len(spelled) :]
        elif self.is_home(stand.matcher, last):
            way = last
        else:
            way = next((way for way in self._guesses(stand, last, spelled) if self.is_home(stand.matcher, way)), None)
        if way is None or self.cost(way, left) > left:
            way = self.shortest(stand)
        return way if way is not None and self.cost(way, left) <= left else None

    def _guesses(self, stand: Stand, last: bytes, spelled: bytes) -> Iterator[bytes]:
        """Ways that may lead home: cheaper tried than searched for."""
        yield last[len(spelled) :]  # one more of so many
        yield from self._recent
        if self.hints.is_json:
            forced = stand.matcher.compute_ff_bytes()
            after_value = last[min((at for at in map(last.find, (b",", b"}", b"]")) if at >= 0), default=len(last)) :]
            for rest in (last, after_value, b',"' + last):
                yield from (forced + end + rest for end in SHORT_ENDS)

    def is_home(self, matcher: ByteMatcher, way: bytes) -> bool:
        """Whether some bytes complete the answer."""
        if not way:
            return matcher.is_accepting()
        tokens = [*way, self._end]
        return matcher.validate_tokens(tokens) == len(tokens)

    def shortest(self, stand: Stand, most_steps: int = STEPS) -> bytes | None:
        """The shortest way home, or None where none was found."""
        searches = (
            ends(stand.matcher, stand.place, self.hints, MOST_BYTES, eager=eager, most_steps=most_steps)
            for eager in (True, False)
        )
        way = next((end for search in searches for end in search), None)
        if way is not None and way not in self._recent:
            self._recent = sorted([way, *self._recent[: HOMES_KEPT - 1]], key=len)
        return way

    def valid(self, stand: Stand, known: bytes, left: int) -> bytes:
        """A way home after which the answer is valid, if one is found; else the known one."""
        if self.is_valid is None or self.is_valid(bytes(stand.said + known)):
            return known
        for eager in (True, False):
            others = ends(stand.matcher, stand.place, self.hints, len(known) + 4 * left, merged=CANDIDATES, eager=eager)
            for way, _ in zip(others, range(CANDIDATES), strict=False):
                if self.cost(way, left) <= left and self.is_valid(bytes(stand.said + way)):
                    return way
        return known

    def cost(self, way: bytes, enough: int) -> int:
        """Tokens of a way; or its bytes, which are never fewer, where these are not more than enough."""
        if len(way) <= enough:
            return len(way)
        if way not in self._costs:
            if len(self._costs) > COSTS_KEPT:
                self._costs.clear()
            self._costs[way] = len(self.spelling.tokens_of(way))
        return self._costs[way]


def end_of_value(home: bytes, place: Place) -> int:
    """Bytes of a way home that belong to the string or number in which it begins, with what ends it."""
    for at in range(len(home)):
        place = place.after(home[at : at + 1])
        if place.phase is Phase.BETWEEN:
            return at + 1
    return len(home)
