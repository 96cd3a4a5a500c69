"""The shortest way to an end: from the state of a grammar to bytes that complete an answer.

A best-first search (A*; Hart, Nilsson and Raphael, 1968) over a matcher that takes bytes: what the grammar forces is
taken at once, and where it leaves a choice, one byte of each kind is tried.  States that stand in the same place of the
text under the same mask count as one.  Every way found is a concrete run of bytes that the grammar takes, so as a bound
it is sound; it is the shortest in nearly all cases, and else not much longer.
"""

import heapq
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import NamedTuple, Protocol

from batchrun.json_place import IN_STRING, QUOTE, Phase, Place

STEPS = 1500
"""Of one search.  Nearly all that find something do so within 50."""

FEW = 16
"""Allowed bytes that are all tried; of more, one of each kind is."""

FEW_CHANGES = 8
"""Bytes after which another mask holds that are all tried; of more, one for each mask is."""

KINDS = (b"abcdefghijklmnopqrstuvwxyz", b"ABCDEFGHIJKLMNOPQRSTUVWXYZ", b"0", b"123456789")
PUNCTUATION = b" -_./:@+#,;=?&%!$'()*<>[]^`{|}~"
PUNCTUATION_TRIED = 6
DETOUR_BYTES = 24
"""What a key that nobody requires counts beside its length."""

DIGITS, MINUS = b"0123456789", ord("-")
NO_MASK = -1
LONGEST_CHARACTER = 4  # bytes


class ByteMatcher(Protocol):
    """A grammar state that takes bytes as tokens, and can go back."""

    def compute_bitmask(self) -> bytes: ...

    def compute_ff_bytes(self) -> bytes: ...

    def consume_tokens(self, sampled_tokens: list[int]) -> bool: ...

    def validate_tokens(self, tokens: list[int]) -> int: ...

    def rollback(self, num_tokens: int) -> bool: ...

    def is_accepting(self) -> bool: ...

    def is_error(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class Hints:
    """What is known of a grammar beyond its masks.  None of it need be right: the matcher has the last word.

    `keys`: names of properties that are required somewhere, as JSON strings; `jumps`: what may lead a string to a match
    of its pattern, as JSON spells it; `lucky`: the jump that did so before, by the mask and the offset in the string.
    """

    is_json: bool = True
    keys: frozenset[bytes] = frozenset()
    jumps: tuple[bytes, ...] = ()
    lucky: dict[tuple[int, int], bytes] = field(default_factory=dict)


def ends(
    matcher: ByteMatcher,
    place: Place,
    hints: Hints,
    most_bytes: int,
    *,
    merged: int = 1,
    eager: bool = True,
    most_steps: int = STEPS,
) -> Iterator[bytes]:
    """Ways to an end from where a matcher stands, the shortest first; the matcher is back whenever one is given.

    `eager`: what can be ended is ended; a patient search looks at more.  `merged`: ways to one and the same place that
    are followed up.
    """
    return _Search(matcher, place, hints, merged, eager=eager).ends(most_bytes, most_steps)


class _Way(NamedTuple):
    """A way that is being tried, as the heap orders it: by what it may come to, longer ones first."""

    rank: int
    minus_bytes: int
    number: int
    said: bytes
    place: Place
    mask: int  # under which the last byte was chosen, where that byte stayed in a string or number
    detours: int


class _Search:
    """One search.  The matcher is moved about, and is back when an end is given and when the search is left."""

    def __init__(self, matcher: ByteMatcher, place: Place, hints: Hints, merged: int, *, eager: bool) -> None:
        self._matcher = matcher
        self._hints = hints
        self._merged = merged
        self._eager = eager
        self._at = b""
        self._seen: Counter[tuple[Place, int]] = Counter()
        self._ways: list[_Way] = []
        self._number = 0
        self._push(b"", place, NO_MASK, 0)

    def ends(self, most_bytes: int, most_steps: int) -> Iterator[bytes]:
        try:
            for _ in range(most_steps):
                if not self._ways:
                    return
                way = heapq.heappop(self._ways)
                if len(way.said) + way.place.open > most_bytes:
                    continue
                end = self._followed(way)
                if end is not None:
                    self._goto(b"")
                    yield end
        finally:
            self._goto(b"")

    def _followed(self, way: _Way) -> bytes | None:
        """Follows a way to its next choice, and takes down what may be chosen.  The way itself if it may end there."""
        if not self._goto(way.said):
            return None
        matcher, said, place = self._matcher, way.said, way.place
        forced = matcher.compute_ff_bytes()
        if forced:
            said, place = said + forced, self._moved(place, forced)
            if self._ways and len(said) + place.open + way.detours > self._ways[0].rank:
                self._push(said, place, NO_MASK, way.detours)
                return None
            self._goto(said)
        mask = _bytes_of(matcher.compute_bitmask())
        key = (place, mask)
        self._seen[key] += 1
        if self._seen[key] > self._merged or (mask == way.mask and not forced and _can_leave(mask, place)):
            return None
        accepting = matcher.is_accepting()
        for more in self._choices(said, mask, place):
            moved = self._moved(place, more)
            begins = not place.offset and not self._eager  # a patient search looks a little way into every string
            stays = moved.phase is place.phase and moved.offset > place.offset and not begins
            detours = way.detours + DETOUR_BYTES * self._is_detour(place, moved)
            self._push(said + more, moved, mask if stays else NO_MASK, detours)
        return said if accepting else None

    def _choices(self, said: bytes, mask: int, place: Place) -> tuple[bytes, ...]:
        """What to try.  An eager search tries nothing else where something can be ended, or where something changes."""
        choices = _tried(mask, in_string=place.phase in IN_STRING or not self._hints.is_json)
        if not self._eager:
            return (*choices, *(self._hints.jumps if place.phase is Phase.STRING and not place.offset else ()))
        if self._hints.is_json and (end := _end(mask, place)):
            return (end,)
        if place.phase is Phase.BETWEEN and self._hints.is_json:
            return self._digit(choices) or choices
        if place.phase is not Phase.STRING or mask >> QUOTE & 1:
            return choices
        after = {more: self._mask_after(more) for more in choices}
        if last := tuple(more for more, then in after.items() if then >> QUOTE & 1):
            return last
        if (not place.offset or len(said) < LONGEST_CHARACTER) and (jump := self._jump(mask, place)):
            return (jump,)
        changing = [more for more in choices if after[more] != mask]
        if len(changing) > FEW_CHANGES:
            changing = list({after[more]: more for more in reversed(changing)}.values())
        return tuple(changing) or choices[:1]

    def _digit(self, choices: tuple[bytes, ...]) -> tuple[bytes, ...]:
        """A digit that is a whole number already: no value is shorter."""
        digits = (more for more in choices if more in DIGITS)
        return next(((more,) for more in digits if self._mask_after(more) & NUMBER_ENDS), ())

    def _jump(self, mask: int, place: Place) -> bytes | None:
        """A hint after which the string may end."""
        hints, key = self._hints, (mask, place.offset)
        tried = (hints.lucky[key], *hints.jumps) if key in hints.lucky else hints.jumps
        jump = next((jump for jump in tried if self._mask_after(jump) >> QUOTE & 1), None)
        if jump:
            hints.lucky[key] = jump
        return jump

    def _mask_after(self, more: bytes) -> int:
        """The mask some bytes later; 0 if they are not taken."""
        if self._matcher.validate_tokens(list(more)) < len(more):
            return 0
        self._matcher.consume_tokens(list(more))
        mask = _bytes_of(self._matcher.compute_bitmask())
        self._matcher.rollback(len(more))
        return mask

    def _is_detour(self, before: Place, after: Place) -> bool:
        """Whether a key has just become one that nobody requires."""
        if after.phase is not Phase.KEY or not self._hints.keys:
            return False
        was_one = before.phase is not Phase.KEY or _begins(before.key, self._hints.keys)
        return was_one and not _begins(after.key, self._hints.keys)

    def _moved(self, place: Place, said: bytes) -> Place:
        return place.after(said) if self._hints.is_json else place._replace(offset=place.offset + len(said))

    def _push(self, said: bytes, place: Place, mask: int, detours: int) -> None:
        self._number += 1
        rank = len(said) + place.open + detours
        heapq.heappush(self._ways, _Way(rank, -len(said), self._number, said, place, mask, detours))

    def _goto(self, said: bytes) -> bool:
        """Moves the matcher to the end of some bytes; False, and back to the start, where it does not take them."""
        shared = _shared(self._at, said)
        if shared < len(self._at):
            self._matcher.rollback(len(self._at) - shared)
        self._at = said[:shared]
        more = list(said[shared:])
        if self._matcher.validate_tokens(more) < len(more):
            return False
        self._at = said
        return not more or self._matcher.consume_tokens(more)


def _shared(one: bytes, other: bytes) -> int:
    """Bytes that two ways begin with."""
    if other.startswith(one):
        return len(one)
    return next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))


def _begins(spelled: bytes, keys: frozenset[bytes]) -> bool:
    return any(key.startswith(spelled) for key in keys)


def _end(mask: int, place: Place) -> bytes:
    """The allowed byte that ends the value or container that a place is in.

    Not of a key: where one can end, another may be the one that is required.
    """
    ends = b'"' if place.phase is Phase.STRING else b"}]," if place.phase is Phase.SCALAR else b"}]"
    in_value = place.phase in (Phase.BETWEEN, Phase.STRING, Phase.SCALAR)
    return next((bytes((byte,)) for byte in ends if in_value and mask >> byte & 1), b"")


def _can_leave(mask: int, place: Place) -> bool:
    """Whether the string or number that a place is in could end at once: then to stay in it leads nowhere new."""
    return bool(mask >> QUOTE & 1) if place.phase in IN_STRING else bool(_end(mask, place))


def _bytes_of(mask: bytes) -> int:
    """A mask as a number: 256 bits that stand for bytes, and those of ends above them."""
    return int.from_bytes(mask, "little")


def _bits(chars: bytes) -> int:
    return sum(1 << byte for byte in set(chars))


_DIGITS = _bits(DIGITS)
_WHITE = _bits(b" \t\r\n")
_PLAIN = _bits(bytes(range(0x20, 0x7F))) & ~_bits(b"\\")


NUMBER_ENDS = _bits(b",]}") | 63 << 256
"""What follows a number: in a container, or where nothing follows, one of the ends that masks know above the bytes."""


@lru_cache(maxsize=4096)
def _tried(mask: int, *, in_string: bool) -> tuple[bytes, ...]:
    """The allowed bytes that are worth a try."""
    plain = mask & _PLAIN & (-1 if in_string else ~_WHITE) or mask & ~_bits(b"\\") or mask
    allowed = [byte for byte in range(256) if plain >> byte & 1]
    if in_string and len(allowed) > FEW:
        kinds = [next((byte for byte in kind if plain >> byte & 1), None) for kind in KINDS]
        kept = [byte for byte in kinds if byte is not None]
        marks = [byte for byte in PUNCTUATION if plain >> byte & 1]
        is_free = len(marks) > len(PUNCTUATION) - 4
        kept = kept[:1] if is_free else kept + marks[:PUNCTUATION_TRIED]
        allowed = [byte for byte in (QUOTE, *(kept or allowed[:FEW])) if plain >> byte & 1]
    elif not in_string and plain & _DIGITS:
        allowed = [byte for byte in allowed if byte != MINUS]
    return tuple(bytes((byte,)) for byte in allowed)
