"""A row on its way home: says the way it knows, and lets the model's logits choose where several are equally short.

A choice is offered where a value begins or a listed value goes on: between true and false, between digits, between the
values of a list.  It is offered as the only tokens that the next draw may give (`ways`).
"""

from typing import Any

from batchrun.core import Accepted
from batchrun.json_place import Phase, Place
from batchrun.way_home import Homes, Stand, end_of_value

WAYS_COMPARED = 12
NO_CHOICE = frozenset(b'}],:" \t\r\n')
"""Bytes that end or part something: where the way home says one, nothing else would be as short."""

VISIBLE = range(0x21, 0x7F)
VALUES = frozenset({Phase.BETWEEN, Phase.STRING, Phase.SCALAR})


class Homeward:
    """One row that is being led.  `ways`: the tokens of the next draw, each with the way home that begins with it."""

    __slots__ = ("_home", "_homes", "_matcher", "_stand", "ways")

    def __init__(self, matcher: Any, stand: Stand, homes: Homes, home: bytes) -> None:
        self.ways: dict[int, bytes] = {}
        self._matcher = matcher
        self._stand = stand
        self._homes = homes
        self._home = home

    def led(self, token: int, left: int) -> Accepted:
        """Takes a token that was drawn among the ways."""
        way = self.ways.get(token)
        if way is None:
            return Accepted(error=f"token {token} does not lead home")
        spelled = self._homes.spelling.bytes_of([token])
        self._stand.move(spelled)
        self._home = way[len(spelled) :]
        return self.go(left)

    def go(self, left: int, *, at_once: bool = False) -> Accepted:
        """Says the way up to the next choice, or to its end.  `at_once`: it must say something first."""
        home, spelling = self._home, self._homes.spelling
        for at in range(len(home)):
            others = self._others(home[at:]) if at or not at_once else []
            if others:
                first = spelling.tokens_of(home[:at])
                self.ways = self._fewest([home[at:], *others], left - len(first))
                if self.ways:
                    self._home = home[at:]
                    return self._said(first, ended=False)
            self._stand.move(home[at : at + 1])
        self._home, self.ways = b"", {}
        return self._said(spelling.tokens_of(home), ended=True)

    def _said(self, tokens: list[int], *, ended: bool) -> Accepted:
        if tokens and not self._matcher.consume_tokens(tokens):
            return Accepted(error="the way home was refused")
        return Accepted(tuple(tokens), ended=ended)

    def _fewest(self, ways: list[bytes], left: int) -> dict[int, bytes]:
        """The ways that take the fewest tokens, by their first one; empty where only one does, or none fits."""
        spelled = [(way, self._homes.spelling.tokens_of(way)) for way in ways]
        fewest = min(len(tokens) for _, tokens in spelled)
        found = {tokens[0]: way for way, tokens in reversed(spelled) if len(tokens) == fewest <= left}
        return found if len(found) > 1 else {}

    def _others(self, home: bytes) -> list[bytes]:
        """Ways that say another value here and then go on as the known one does."""
        place, matcher = self._stand.place, self._stand.matcher
        if not self._homes.hints.is_json or home[0] in NO_CHOICE or place.phase not in VALUES:
            return []
        allowed = int.from_bytes(matcher.compute_bitmask()[:32], "little")
        firsts = [byte for byte in VISIBLE if allowed >> byte & 1 and byte not in NO_CHOICE]
        if len(firsts) > WAYS_COMPARED:
            return []
        found, value_end = [], _end_of(home, place)
        for byte in firsts:
            way = bytes((byte,)) + home[1:]
            if byte != home[0] and not self._homes.is_home(matcher, way):
                matcher.consume_tokens([byte])
                way = bytes((byte,)) + matcher.compute_ff_bytes() + home[value_end:]
                matcher.rollback(1)
            if way != home and self._homes.is_home(matcher, way):
                found.append(way)
        return found


def _end_of(home: bytes, place: Place) -> int:
    """Where the value ends with which a way home begins, or goes on: what follows belongs to another value too."""
    begun = place if place.phase else place.after(home[:1])
    if begun.phase is Phase.BETWEEN:
        return 1
    skipped = 0 if place.phase else 1
    end = skipped + end_of_value(home[skipped:], begun)
    return (
        end - 1
        if begun.phase is Phase.SCALAR and end <= len(home) and home[end - 1 : end] in (b",", b"}", b"]")
        else end
    )
