"""Where in a JSON text one stands, kept byte by byte, and how it spells text.  Pure; knows nothing of schemas.

A `Place` is what matters of a text for what may follow: the containers that are open, with the last key or the number
of elements of each, and how far a string or a number has come.  Two texts that end in the same place are as good as
equal to whoever looks for the shortest way to an end.
"""

import json
from enum import IntEnum
from typing import NamedTuple

QUOTE, BACKSLASH, COMMA, COLON = b'"\\,:'
OPENERS, CLOSERS = frozenset(b"[{"), frozenset(b"]}")
SPACE = frozenset(b" \t\r\n")
OBJECT = ord("{")


class Phase(IntEnum):
    """What the next byte belongs to."""

    BETWEEN = 0  # a value, a key, or what stands between them
    STRING = 1
    STRING_ESCAPE = 2
    KEY = 3
    KEY_ESCAPE = 4
    SCALAR = 5  # a number, true, false or null


IN_STRING = frozenset({Phase.STRING, Phase.KEY})
ESCAPES = {Phase.STRING: Phase.STRING_ESCAPE, Phase.KEY: Phase.KEY_ESCAPE}
ESCAPED = {escape: phase for phase, escape in ESCAPES.items()}


class Container(NamedTuple):
    """An open object or array."""

    outer: "Container | None"
    kind: int  # the byte that opened it
    depth: int
    wants_key: bool
    last_key: bytes = b""  # of an object
    commas: int = 0  # in an array


class Place(NamedTuple):
    """After some bytes of a JSON text.  `offset`: bytes of the string or number that it is in."""

    inside: Container | None = None
    phase: Phase = Phase.BETWEEN
    offset: int = 0
    key: bytes = b""  # of an object, while it is being spelled

    @property
    def open(self) -> int:
        """Bytes that any way to an end still has to say: an end for each thing that is open."""
        return (self.inside.depth if self.inside else 0) + (Phase.STRING <= self.phase <= Phase.KEY_ESCAPE)

    def after(self, said: bytes) -> "Place":
        """The place some bytes later."""
        place = self
        if place.phase is Phase.STRING and QUOTE not in said and BACKSLASH not in said:
            return place._replace(offset=place.offset + len(said))
        for byte in said:
            place = _after(place, byte)
        return place


def _after(place: Place, byte: int) -> Place:
    inside, phase, offset, key = place
    if phase is Phase.BETWEEN or (phase is Phase.SCALAR and (byte in CLOSERS or byte == COMMA or byte in SPACE)):
        return _between(inside, byte)
    if phase is Phase.SCALAR:
        return Place(inside, phase, offset + 1)
    spelled = key + bytes((byte,)) if phase in (Phase.KEY, Phase.KEY_ESCAPE) else key
    if phase in ESCAPED:
        return Place(inside, ESCAPED[phase], offset + 1, spelled)
    if byte == BACKSLASH:
        return Place(inside, ESCAPES[phase], offset + 1, spelled)
    if byte != QUOTE:
        return Place(inside, phase, offset + 1, spelled)
    if phase is Phase.KEY and inside:
        return Place(inside._replace(last_key=key, wants_key=False))
    return Place(inside)


def _between(inside: Container | None, byte: int) -> Place:
    if byte in OPENERS:
        return Place(Container(inside, byte, inside.depth + 1 if inside else 1, byte == OBJECT))
    if byte in CLOSERS:
        return Place(inside.outer if inside else None)
    if byte == QUOTE:
        return Place(inside, Phase.KEY if inside and inside.wants_key else Phase.STRING)
    if byte == COMMA and inside:
        is_object = inside.kind == OBJECT
        return Place(inside._replace(commas=inside.commas + (not is_object), wants_key=is_object))
    if byte == COLON or byte in SPACE:
        return Place(inside)
    return Place(inside, Phase.SCALAR, 1)


def spelled(text: str) -> str:
    """A text as it stands inside a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]
