"""Whether a grammar can spell a value, whatever the order in which it wants the properties."""

import json
from collections.abc import Callable
from typing import Any

from llguidance import LLMatcher

MOST_STEPS = 20_000


def spells(matcher: LLMatcher, value: Any) -> bool:
    """Whether a grammar state over bytes takes a whole value, its properties in some order."""
    speller = _Speller(matcher.deep_copy())
    return speller.value(value, lambda: bool(speller.matcher.is_accepting()))


class _Speller:
    """Says a value piece by piece, and goes back where that leads nowhere."""

    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher
        self._said = 0
        self._steps = 0

    def value(self, value: Any, then: Callable[[], bool]) -> bool:
        self._steps += 1
        if self._steps > MOST_STEPS:
            return False
        if isinstance(value, dict):
            return self._tried(b"{", lambda: self._pairs(list(value.items()), b"", then))
        if isinstance(value, list):
            return self._tried(b"[", lambda: self._items(value, b"", then))
        return self._tried(json.dumps(value, ensure_ascii=False).encode(), then)

    def _items(self, values: list[Any], before: bytes, then: Callable[[], bool]) -> bool:
        if not values:
            return self._tried(b"]", then)
        return self._tried(before, lambda: self.value(values[0], lambda: self._items(values[1:], b",", then)))

    def _pairs(self, pairs: list[tuple[str, Any]], before: bytes, then: Callable[[], bool]) -> bool:
        if not pairs:
            return self._tried(b"}", then)
        return any(self._pair(pairs, place, before, then) for place in range(len(pairs)))

    def _pair(self, pairs: list[tuple[str, Any]], place: int, before: bytes, then: Callable[[], bool]) -> bool:
        (name, value), others = pairs[place], pairs[:place] + pairs[place + 1 :]
        key = before + json.dumps(name, ensure_ascii=False).encode() + b":"
        return self._tried(key, lambda: self.value(value, lambda: self._pairs(others, b",", then)))

    def _tried(self, said: bytes, then: Callable[[], bool]) -> bool:
        at = self._said
        if self.matcher.validate_tokens(list(said)) < len(said):
            return False
        self.matcher.consume_tokens(list(said))
        self._said += len(said)
        if then():
            return True
        self.matcher.rollback(self._said - at)
        self._said = at
        return False
