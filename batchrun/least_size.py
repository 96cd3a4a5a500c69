"""How many bytes any answer to a rewritten schema takes at least.  A bound from below, and a quick one.  Pure.

The search for the shortest answer gives up on what is too long for any budget; this tells such a schema from one that
is merely hard to search.
"""

from typing import Any

DEEPEST = 60


def least_bytes(schema: Any) -> int:
    """Bytes of the shortest answer, or fewer."""
    return _Sizer(schema.get("$defs", {}) if isinstance(schema, dict) else {}).least(schema, 0)


class _Sizer:
    """One schema.  References are followed once for each; inside of themselves they count as one byte."""

    def __init__(self, defs: dict[str, Any]) -> None:
        self._defs = defs
        self._known: dict[str, int] = {}

    def least(self, schema: Any, depth: int) -> int:
        if not isinstance(schema, dict) or depth > DEEPEST:
            return 1
        sizes = [self._referred(schema["$ref"], depth)] if "$ref" in schema else [1]
        sizes += [self.least(part, depth + 1) for part in schema.get("allOf", ())]
        branches = [self.least(part, depth + 1) for part in schema.get("anyOf", ())]
        sizes += [min(branches)] if branches else []
        kinds = schema.get("type", "any")
        sizes.append(min((self._of_kind(kind, schema, depth) for kind in _listed(kinds)), default=1))
        return max(sizes)

    def _referred(self, reference: str, depth: int) -> int:
        name = reference.removeprefix("#/$defs/")
        if name not in self._known:
            self._known[name] = 1
            self._known[name] = self.least(self._defs.get(name, True), depth + 1)
        return self._known[name]

    def _of_kind(self, kind: str, schema: dict[str, Any], depth: int) -> int:
        if kind == "string":
            return 2 + int(schema.get("minLength", 0))
        if kind == "array":
            least = int(schema.get("minItems", 0))
            prefix = schema.get("prefixItems", [])[:least]
            sizes = sum(self.least(part, depth + 1) for part in prefix)
            commas, more = max(0, least - 1), least - len(prefix)
            return 2 + sizes + commas + (more * self.least(schema.get("items", True), depth + 1) if more else 0)
        if kind == "object":
            values = schema.get("properties", {})
            names = schema.get("required", ())
            return 2 + sum(len(name) + 3 + self.least(values.get(name, True), depth + 1) for name in names)
        return 1


def _listed(kinds: str | list[str]) -> list[str]:
    return [kinds] if isinstance(kinds, str) else kinds
