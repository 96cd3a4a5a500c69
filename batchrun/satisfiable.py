"""Whether anything fits a rewritten schema at all, and if not, where the reason stands.  Pure.

A schema can only be met if what it demands can: a required property, the first items of an array, all parts of an
`allOf`, one branch of an `anyOf`, and a reference that does not demand itself without end.  This finds what can be seen
in one place or along such demands; contradictions between two places are left to the grammar engine.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchrun.keywords import KINDS
from batchrun.schema_walk import rebuilt


@dataclass(frozen=True, slots=True)
class Reason:
    """Why nothing fits.  `place`: a JSON pointer into the schema as it was written."""

    place: str
    text: str


def pruned(schema: Any, places: Mapping[int, str]) -> Any | Reason:
    """The schema, references that nothing can fit made `false`; or why nothing fits the schema itself.

    `places`: where its parts came from.
    """
    finder = _Finder(schema, places)
    reason = finder.reason()
    if reason or not finder.endless:
        return reason or schema
    refused = {f"#/$defs/{name}" for name in finder.endless}
    kept = {name: value for name, value in schema["$defs"].items() if name not in finder.endless}
    return _without({**schema, "$defs": kept}, refused)


def _without(schema: Any, refused: set[str]) -> Any:
    """A schema in which references that nothing can fit are `false`."""
    if not isinstance(schema, dict):
        return schema
    return False if schema.get("$ref") in refused else rebuilt(schema, lambda _, part: _without(part, refused))


class _Finder:
    """Assumes of every definition that nothing fits, and takes that back until nothing changes any more.

    Then the reason is looked for inside of those that are left, once in each: they may lead to each other in more ways
    than can be counted.
    """

    def __init__(self, schema: Any, places: Mapping[int, str]) -> None:
        self._schema = schema
        self._places = places
        defs = schema.get("$defs", {}) if isinstance(schema, dict) else {}
        self.endless = dict.fromkeys(defs)  # a set that keeps the order
        self._defs = defs
        self._reasons: dict[str, Reason | None] | None = None  # of these; None: nobody asks for them yet

    def reason(self) -> Reason | None:
        changed = True
        while changed:
            changed = False
            for name in list(self.endless):
                if self._why(self._defs[name], "") is None:
                    del self.endless[name]
                    changed = True
        self._reasons = {}
        return self._why(self._schema, "")

    def _why(self, schema: Any, place: str) -> Reason | None:
        """Why nothing fits here; None if something does."""
        if schema is True:
            return None
        if schema is False:
            return Reason(place, "nothing is allowed here")
        place = self._places.get(id(schema), place)
        name = schema.get("$ref", "").removeprefix("#/$defs/")
        if name in self.endless and (reason := self._of_definition(name, place)):
            return reason
        for part in schema.get("allOf", ()):
            if reason := self._why(part, place):
                return reason
        branches = [self._why(branch, place) for branch in schema.get("anyOf", ())]
        if branches and all(branches):
            return branches[0]
        if "enum" in schema:
            return None if schema["enum"] else Reason(place, "no listed value passes what stands beside the list")
        return self._by_kind(schema, place)

    def _of_definition(self, name: str, place: str) -> Reason | None:
        """The reason inside a definition, unless that is its own circle: there, none is seen."""
        own = Reason(place, "it demands itself without end")
        if self._reasons is None:
            return own
        if name not in self._reasons:
            self._reasons[name] = None
            self._reasons[name] = self._why(self._defs[name], place) or own
        return self._reasons[name]

    def _by_kind(self, schema: dict[str, Any], place: str) -> Reason | None:
        kinds = schema.get("type", KINDS)
        reasons = [self._of_kind(kind, schema, place) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
        return None if not reasons or not all(reasons) else reasons[0]

    def _of_kind(self, kind: str, schema: dict[str, Any], place: str) -> Reason | None:
        if kind == "string":
            return _crossed(schema, "minLength", "maxLength", place)
        if kind in ("number", "integer"):
            return _crossed(schema, "minimum", "maximum", place)
        if kind == "array":
            return _crossed(schema, "minItems", "maxItems", place) or self._items(schema, place)
        if kind == "object":
            return _crossed(schema, "minProperties", "maxProperties", place) or self._properties(schema, place)
        return None

    def _items(self, schema: dict[str, Any], place: str) -> Reason | None:
        least, prefix = schema.get("minItems", 0), schema.get("prefixItems", [])
        for part in prefix[:least]:
            if reason := self._why(part, place):
                return reason
        return self._why(schema.get("items", True), place) if least > len(prefix) else None

    def _properties(self, schema: dict[str, Any], place: str) -> Reason | None:
        values = schema.get("properties", {})
        closed = schema.get("additionalProperties", True) is False and not schema.get("patternProperties")
        for name in schema.get("required", ()):
            if name not in values and closed:
                return Reason(place, f"property {name!r} is required, and no such property is allowed")
            if reason := self._why(values.get(name, True), place):
                is_bare = values.get(name) is False
                return Reason(place, f"property {name!r} is required, and not allowed") if is_bare else reason
        return None


def _crossed(schema: dict[str, Any], least: str, most: str, place: str) -> Reason | None:
    if least in schema and most in schema and schema[least] > schema[most]:
        return Reason(place, f"{least} {schema[least]} is more than {most} {schema[most]}")
    return None
