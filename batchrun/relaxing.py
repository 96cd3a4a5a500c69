"""Loosens a rewritten schema where the grammar engine still refuses it: as little as can be, bit by bit.  Pure.

The engine is asked about the parts, from the inside out; of a part that it refuses while it takes all that is in it,
one keyword after the other is dropped, and at worst the part admits anything.  What was dropped is left to the check.
"""

from collections.abc import Callable, Iterator
from typing import Any

MOST_QUESTIONS = 400
"""To the engine, about one schema.  Beyond them whatever is refused admits any JSON value."""

MAPS = frozenset({"properties", "patternProperties"})
LISTS = frozenset({"anyOf", "allOf", "prefixItems"})
SINGLES = frozenset({"items", "additionalProperties"})
FIRST_DROPPED = ("allOf", "patternProperties", "minProperties", "maxProperties", "format", "pattern", "multipleOf")

Engine = Callable[[Any], str]
"""Why the engine refuses a schema; empty if it takes it."""


def relaxed(schema: Any, engine: Engine, dropped: Callable[[Any, str], None]) -> Any:
    """A schema that the engine takes, as near to the given one as was found.

    `dropped` is told each keyword that was left out, with the part that it stood in.
    """
    return _Relaxing(schema, engine, dropped).whole(schema)


def culprit(schema: Any, is_refused: Callable[[Any], bool]) -> Any:
    """The innermost part that is refused by itself and that a schema cannot do without."""
    defs = schema.get("$defs", {})
    part, seen = schema, {id(schema)}
    while True:
        demanded = [child for child in _demanded(part, defs) if id(child) not in seen]
        inner = next((child for child in demanded if is_refused({**child, "$defs": defs})), None)
        if inner is None:
            return part
        part = inner
        seen.add(id(part))


def _demanded(part: dict[str, Any], defs: dict[str, Any]) -> list[dict[str, Any]]:
    """What has to be met inside of a part."""
    values = part.get("properties", {})
    found = [values[name] for name in part.get("required", ()) if name in values]
    found += [*part.get("allOf", ()), *([part["items"]] if part.get("minItems") and "items" in part else ())]
    found += [defs[name] for name in [part.get("$ref", "").removeprefix("#/$defs/")] if name in defs]
    return [child for child in found if isinstance(child, dict)]


class _Relaxing:
    """One loosening."""

    def __init__(self, schema: Any, engine: Engine, dropped: Callable[[Any, str], None]) -> None:
        self._engine = engine
        self._dropped = dropped
        self._defs: dict[str, Any] = dict(schema.get("$defs", {}))
        self._questions = 0

    def whole(self, schema: Any) -> Any:
        root = {name: value for name, value in schema.items() if name != "$defs"}
        if self._taken(root):
            return schema
        for name in list(self._defs):
            self._defs[name] = self._part(self._defs[name])
        root = self._part(root)
        defs = {"$defs": self._defs} if self._defs and isinstance(root, dict) else {}
        return {**root, **defs} if isinstance(root, dict) else root

    def _taken(self, part: Any) -> bool:
        self._questions += 1
        if self._questions > MOST_QUESTIONS:
            return part is True
        asked = {**part, "$defs": self._defs} if isinstance(part, dict) and self._defs else part
        return not self._engine(asked)

    def _part(self, part: Any) -> Any:
        """A part that the engine takes, its insides first."""
        if not isinstance(part, dict) or self._taken(part):
            return part
        loose = dict(part)
        for name, value in part.items():
            loose[name] = self._inside(name, value)
        if self._taken(loose):
            return loose
        for name in sorted(loose, key=lambda name: (name not in FIRST_DROPPED, name in ("type", "properties"))):
            without = {key: value for key, value in loose.items() if key != name}
            if self._taken(without):
                self._dropped(part, name)
                return without
        for name in part:
            self._dropped(part, name)
        return True

    def _inside(self, name: str, value: Any) -> Any:
        if name in MAPS:
            return {key: self._part(part) for key, part in value.items()}
        if name in LISTS:
            return [self._part(part) for part in value]
        return self._part(value) if name in SINGLES else value


def parts(schema: Any) -> Iterator[Any]:
    """A schema and all schemas inside it."""
    waiting = [schema]
    while waiting:
        part = waiting.pop()
        if not isinstance(part, dict):
            continue
        yield part
        for name, value in part.items():
            if name in MAPS or name == "$defs":
                waiting += value.values()
            elif name in LISTS:
                waiting += value
            elif name in SINGLES:
                waiting.append(value)
