"""From a schema, as it was written, to the schemas inside it, past values that only look like schemas.  Pure."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

Path = tuple[str | int, ...]

VALUES = frozenset({"enum", "const", "default", "examples"})
"""Keywords whose objects are no schemas."""

MAPS = frozenset({"properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"})
"""Keywords that hold schemas under names of the author's: `properties` may have one called `default`."""


def rebuilt(schema: dict[str, Any], change: Callable[[Path, Any], Any]) -> dict[str, Any]:
    """The same schema with what `change` makes of each part that may be a schema, from its path and itself.

    Keywords that no draft knows are looked into too: references may lead there.  The order of keys stays.
    """
    out: dict[str, Any] = {}
    for name, part in schema.items():
        if name in VALUES:
            out[name] = part
        elif name in MAPS and isinstance(part, dict):
            out[name] = {key: change((name, key), held) for key, held in part.items()}
        elif isinstance(part, list):
            out[name] = [change((name, number), held) for number, held in enumerate(part)]
        else:
            out[name] = change((name,), part)
    return out


def subschemas(schema: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """All schemas inside of one, itself among them, with their JSON pointers."""
    waiting = [("", schema)]
    while waiting:
        place, part = waiting.pop()
        if isinstance(part, dict):
            yield place, part
            waiting += [(place + pointer(path), held) for path, held in _inside(part)]


def _inside(schema: dict[str, Any]) -> list[tuple[Path, Any]]:
    found: list[tuple[Path, Any]] = []
    rebuilt(schema, lambda path, part: found.append((path, part)))
    return found


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)
