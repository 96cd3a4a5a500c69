"""oneOf, not, if and their like, rewritten for the grammar engine, which knows "all of" and "any of" only.

Each is said exactly where that can be done: branches that share no instance, a `not` of what can be turned round.
Elsewhere the outcome admits more, and the check after decoding has the last word.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from itertools import combinations
from typing import Any

from batchrun.grammar_subschema import Subschema, all_of, any_of
from batchrun.keywords import KINDS

DEEPEST = 6
SAYS_NOTHING = frozenset({"title", "description", "default", "examples", "$comment", "deprecated"})


def reference(sub: Subschema) -> None:
    sub.parts.append(sub.whole.reference(sub.schema["$ref"], sub.scope, sub.place))


def left(name: str) -> Callable[[Subschema], None]:
    """A keyword that nothing is known about while decoding."""
    return lambda sub: sub.leave(name, "what it refers to is known at the end only")


def all_of_rule(sub: Subschema) -> None:
    sub.parts += [sub.inner(part, "allOf", place) for place, part in enumerate(sub.schema["allOf"])]


def any_of_rule(sub: Subschema) -> None:
    sub.parts.append(any_of(sub.inner(part, "anyOf", place) for place, part in enumerate(sub.schema["anyOf"])))


def one_of(sub: Subschema) -> None:
    """Exactly one: any of them, where no two can hold at once."""
    written = sub.schema["oneOf"]
    branches = [sub.inner(part, "oneOf", place) for place, part in enumerate(written)]
    names = [_required_alone(part) for part in written]
    if len(written) > 1 and all(name is not None for name in names):
        sub.parts.append(_one_set_of_names([name for name in names if name is not None]))
        return
    kept = [branch for branch in branches if branch is not False]
    if not all(disjoint(one, other, sub) for one, other in combinations(kept, 2)):
        sub.leave("oneOf", "its branches may overlap: enforced as anyOf")
    sub.parts.append(any_of(kept))


def not_(sub: Subschema) -> None:
    turned = negated(sub.schema["not"], sub, "not")
    if turned is None:
        sub.leave("not")
    else:
        sub.parts.append(turned)


def if_(sub: Subschema) -> None:
    """Either the condition and what follows from it, or its opposite, as far as that can be said, and the rest."""
    condition = sub.schema["if"]
    then = sub.inner(sub.schema["then"], "then") if "then" in sub.schema else True
    otherwise = sub.inner(sub.schema["else"], "else") if "else" in sub.schema else True
    opposite = negated(condition, sub, "if")
    if opposite is None:
        sub.leave("if", "its opposite cannot be said: enforced in part")
        opposite = True
    sub.parts.append(any_of([all_of([sub.inner(condition, "if"), then]), all_of([opposite, otherwise])]))


def negated(schema: Any, sub: Subschema, *path: str | int) -> Any | None:
    """What does not pass a schema, said exactly; None where that cannot be said."""
    if isinstance(schema, bool):
        return not schema
    if not isinstance(schema, dict):
        return None
    said = schema.keys() - SAYS_NOTHING
    if not said:
        return False
    if said == {"required"}:
        return {"type": "object", **_any_missing(schema["required"])} if schema["required"] else False
    if said == {"type"}:
        return _other_kinds(schema["type"])
    if said == {"not"}:
        return sub.inner(schema["not"], *path, "not")
    if said == {"anyOf"}:
        parts = [negated(part, sub, *path, "anyOf", place) for place, part in enumerate(schema["anyOf"])]
        return None if any(part is None for part in parts) else all_of(parts)
    if said == {"allOf"}:
        parts = [negated(part, sub, *path, "allOf", place) for place, part in enumerate(schema["allOf"])]
        return None if any(part is None for part in parts) else any_of(parts)
    return _other_values(schema, sub) if said <= {"properties", "required", "type"} else None


def _other_values(schema: dict[str, Any], sub: Subschema) -> Any | None:
    """The opposite of `this property has that value`, where the schema around it lists all values there are."""
    entries, names = schema.get("properties", {}), schema.get("required", [])
    around = sub.schema.get("properties", {})
    if schema.get("type", "object") != "object" or sub.schema.get("type") != "object" or not entries:
        return None
    ways: list[Any] = [_any_missing(names)] if names else []
    for name, entry in entries.items():
        wanted, known = _values(entry), _values(around.get(name) if isinstance(around, dict) else None)
        if wanted is None or known is None or entry.keys() - SAYS_NOTHING - {"const", "enum", "type"}:
            return None
        taken = {_canonical(value) for value in wanted}
        rest = [value for value in known if _canonical(value) not in taken]
        ways.append({"properties": {name: {"enum": rest}}, "required": [name]} if rest else False)
    return any_of(ways)


def _values(schema: Any) -> list[Any] | None:
    """The values that a schema lists."""
    if not isinstance(schema, dict):
        return None
    if "const" in schema:
        return [schema["const"]]
    values = schema.get("enum", [True, False] if schema.get("type") == "boolean" else None)
    return values if isinstance(values, list) else None


def _other_kinds(kinds: str | list[str]) -> Any | None:
    named = {kinds} if isinstance(kinds, str) else set(kinds)
    if "integer" in named and "number" not in named:
        return None  # numbers that are not whole have no name
    rest = set(KINDS) - named
    return {"type": sorted(rest)} if rest else False


def _any_missing(names: Iterable[str]) -> Any:
    return any_of({"properties": {name: False}} for name in names)


def _required_alone(schema: Any) -> frozenset[str] | None:
    """The names of a branch that requires them and says nothing else."""
    if not isinstance(schema, dict) or schema.keys() - SAYS_NOTHING - {"type"} != {"required"}:
        return None
    return frozenset(schema["required"]) if schema.get("type", "object") == "object" else None


def _one_set_of_names(sets: list[frozenset[str]]) -> Any:
    """Exactly one of several sets of names is there whole.  A branch that holds another whole set cannot be the one."""
    ways = []
    for place, names in enumerate(sets):
        others = [other for at, other in enumerate(sets) if at != place]
        missing = [_any_missing(sorted(other - names)) if other - names else False for other in others]
        ways.append(all_of([{"type": "object", "required": sorted(names)}, *missing]))
    return any_of(ways)


def disjoint(one: Any, other: Any, sub: Subschema, depth: int = 0) -> bool:
    """Whether two rewritten schemas are seen to share no instance.  Never says so wrongly."""
    if one is False or other is False:
        return True
    if one is True or other is True or depth > DEEPEST:
        return False
    for first, second in ((one, other), (other, one)):
        if "$ref" in first and disjoint(sub.whole.definition(first["$ref"]), second, sub, depth + 1):
            return True
        if any(disjoint(part, second, sub, depth + 1) for part in first.get("allOf", ())):
            return True
        if "anyOf" in first and all(disjoint(part, second, sub, depth + 1) for part in first["anyOf"]):
            return True
    if not kinds_of(one) & kinds_of(other):
        return True
    if "enum" in one and "enum" in other:
        return not {_canonical(value) for value in one["enum"]} & {_canonical(value) for value in other["enum"]}
    return _objects_alone(one, other) and _properties_disjoint(one, other, sub, depth)


def kinds_of(schema: dict[str, Any]) -> frozenset[str]:
    """The kinds of values that a rewritten schema lets through, by its own words.  A whole number is a number."""
    if "enum" in schema:
        return frozenset(map(_kind, schema["enum"]))
    kinds = schema.get("type", KINDS)
    named = {kinds} if isinstance(kinds, str) else set(kinds)
    return frozenset("number" if kind == "integer" else kind for kind in named)


def _objects_alone(*schemas: dict[str, Any]) -> bool:
    return any(kinds_of(schema) == {"object"} for schema in schemas)


def _properties_disjoint(one: dict[str, Any], other: dict[str, Any], sub: Subschema, depth: int) -> bool:
    for first, second in ((one, other), (other, one)):
        values, others = first.get("properties", {}), second.get("properties", {})
        closed = second.get("additionalProperties", True) is False and not second.get("patternProperties")
        for name in first.get("required", ()):
            missing = not closed  # what a property that is not listed may be
            if disjoint(values.get(name, True), others.get(name, missing), sub, depth + 1) and (
                others.get(name, missing) is False or name in second.get("required", ())
            ):
                return True
    return False


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    return {str: "string", list: "array", dict: "object", type(None): "null"}[type(value)]


def _canonical(value: Any) -> str:
    """Equal for equal JSON values; 1.0 is 1."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return json.dumps(value, sort_keys=True)


RULES: Mapping[str, Callable[[Subschema], Any]] = {
    "$ref": reference,
    "$recursiveRef": left("$recursiveRef"),
    "$dynamicRef": left("$dynamicRef"),
    "allOf": all_of_rule,
    "anyOf": any_of_rule,
    "oneOf": one_of,
    "not": not_,
    "if": if_,
}
