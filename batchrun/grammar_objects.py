"""Keywords of objects, rewritten for the grammar engine.

The engine writes properties in the order of `properties`, takes `patternProperties` whose patterns share no name, and
counts properties only where all of them are required.  The rest is said in other words where there are any
(`dependencies` become alternatives, a least number of one becomes a choice of which), and else left to the check.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from batchrun.grammar_subschema import Subschema, all_of, any_of
from batchrun.grammar_values import IN_PLACE
from batchrun.keywords import KINDS

MOST_DEPENDENCIES = 5
"""Alternatives multiply: more than these in one schema are left to the check."""

MOST_CHOICES = 32
MOST_PROPERTIES = 1000
"""Of one object: what the engine takes for them grows with their square."""

NO_OBJECT = {"type": [kind for kind in KINDS if kind != "object"]}


def properties(sub: Subschema) -> None:
    values = sub.schema["properties"]
    if len(values) > MOST_PROPERTIES:
        sub.leave("properties", f"more than {MOST_PROPERTIES} of them")
        return
    sub.out["properties"] = {name: sub.inner(value, "properties", name) for name, value in values.items()}


def pattern_properties(sub: Subschema) -> None:
    """By pattern; patterns that the engine cannot read, or that share names, widen what other names may hold."""
    values = sub.schema["patternProperties"]
    inner = {pattern: sub.inner(value, "patternProperties", pattern) for pattern, value in values.items()}
    takes = sub.whole.oracles.takes
    if takes({"type": "object", "patternProperties": dict.fromkeys(inner, True)}):
        sub.out["patternProperties"] = inner
        return
    sub.leave("patternProperties", "patterns that the engine cannot read or keep apart")
    rest = (
        sub.inner(sub.schema["additionalProperties"], "additionalProperties")
        if "additionalProperties" in sub.schema
        else True
    )
    sub.out["additionalProperties"] = any_of([rest, *inner.values()])


def additional_properties(sub: Subschema) -> None:
    if len(sub.schema.get("properties", ())) > MOST_PROPERTIES:
        sub.leave("additionalProperties")
    elif "additionalProperties" not in sub.out:
        sub.out["additionalProperties"] = sub.inner(sub.schema["additionalProperties"], "additionalProperties")


def unevaluated_properties(sub: Subschema) -> None:
    if IN_PLACE & sub.schema.keys() or "additionalProperties" in sub.schema:
        sub.leave("unevaluatedProperties")
    else:
        sub.out["additionalProperties"] = sub.inner(sub.schema["unevaluatedProperties"], "unevaluatedProperties")


def required(sub: Subschema) -> None:
    sub.out["required"] = list(dict.fromkeys(sub.schema["required"]))


def property_names(sub: Subschema) -> None:
    """A pattern for all names is one for those that stand in no list."""
    names = sub.inner(sub.schema["propertyNames"], "propertyNames")
    pattern = _name_pattern(names)
    is_plain = "patternProperties" not in sub.out and not IN_PLACE & sub.schema.keys()
    if pattern is None or not is_plain or not sub.whole.oracles.takes({"type": "string", "pattern": pattern}):
        sub.leave("propertyNames")
        return
    rest = sub.out.get("additionalProperties", True)
    known = {name: value for name, value in sub.out.get("properties", {}).items() if _matches(pattern, name)}
    dropped = {name: False for name in sub.out.get("properties", {}) if name not in known}
    sub.out |= {"properties": known | dropped, "patternProperties": {pattern: rest}, "additionalProperties": False}
    if not sub.out["properties"]:
        del sub.out["properties"]
    if rest is False:
        del sub.out["patternProperties"]


def dependencies(name: str) -> Callable[[Subschema], None]:
    """Without this property, or with what it brings along."""

    def rule(sub: Subschema) -> None:
        entries = sub.schema[name]
        if len(entries) > MOST_DEPENDENCIES:
            sub.leave(name, f"more than {MOST_DEPENDENCIES} of them")
            return
        for key, value in entries.items():
            names = [value] if isinstance(value, str) else value
            brought = {"required": list(names)} if isinstance(names, list) else sub.inner(value, name, key)
            if brought is not True and brought != {"required": []}:
                with_it = all_of([{"type": "object", "required": [key]}, brought])
                sub.parts.append(any_of([{"properties": {key: False}}, with_it]))

    return rule


def numbers(sub: Subschema) -> None:
    """How many properties: said outright where all known ones are required, by a choice of one, or not at all."""
    least = int(sub.schema["minProperties"]) if sub.holds("minProperties") else 0
    most = int(sub.schema["maxProperties"]) if sub.holds("maxProperties") else None
    known = {name: value for name, value in sub.out.get("properties", {}).items() if value is not False}
    sure = set(sub.out.get("required", ()))
    closed = sub.out.get("additionalProperties", True) is False and not sub.out.get("patternProperties")
    if known.keys() <= sure and len(known) == len(sub.out.get("properties", {})):
        bounds = {"minProperties": least or None, "maxProperties": most}
        sub.out |= {name: bound for name, bound in bounds.items() if bound is not None}
        return
    if least > len(sure) and len(known) > MOST_CHOICES:
        sub.leave("minProperties", f"more than {MOST_CHOICES} properties to choose from")
    elif least > len(sure):
        if least > 1:
            sub.leave("minProperties", "enforced as one at least")
        others = [{"type": "object", "properties": dict.fromkeys(known, False), "minProperties": 1}]
        one_known = [{"type": "object", "required": [name]} for name in known]
        sub.parts.append(any_of([*one_known, *([] if closed else others), NO_OBJECT]))
    if most is not None and (not closed or most < len(known)):
        sub.leave("maxProperties")


def _name_pattern(names: Any) -> str | None:
    """The pattern that a rewritten schema of names comes to, if it comes to one."""
    if not isinstance(names, dict):
        return None
    said = names.keys() - {"type"}
    if said == {"pattern"}:
        return str(names["pattern"])
    if said == {"enum"}:
        return "^(" + "|".join(re.escape(name) for name in names["enum"] if isinstance(name, str)) + ")$"
    if said and said <= {"minLength", "maxLength"}:
        return rf"^[\s\S]{{{names.get('minLength', 0)},{names.get('maxLength', '')}}}$"
    return None


def _matches(pattern: str, name: str) -> bool:
    try:
        return re.search(pattern, name) is not None
    except re.error:
        return True


RULES: Mapping[str, Callable[[Subschema], Any]] = {
    "properties": properties,
    "patternProperties": pattern_properties,
    "additionalProperties": additional_properties,
    "unevaluatedProperties": unevaluated_properties,
    "required": required,
    "propertyNames": property_names,
    "dependencies": dependencies("dependencies"),
    "dependentRequired": dependencies("dependentRequired"),
    "dependentSchemas": dependencies("dependentSchemas"),
}
"""In the order in which they are to be applied: later ones look at what earlier ones said."""
