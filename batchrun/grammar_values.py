"""Keywords of numbers, strings and arrays, rewritten for the grammar engine.  One rule a keyword."""

from collections.abc import Callable, Mapping
from typing import Any

from batchrun.formats import ENGINE_FORMATS, FORMAT_PATTERNS, LATE_FORMATS, ONLY_NEARLY
from batchrun.grammar_subschema import Subschema
from batchrun.grounding import KEYWORD
from batchrun.keywords import EXAMPLES, Treatment
from batchrun.pattern_tails import tails

LARGEST_BOUND = 2**53
"""Bounds beyond are left to the check: the engine counts in 64 bits, JSON readers in floats."""

IN_PLACE = frozenset({"$ref", "$dynamicRef", "$recursiveRef", "allOf", "anyOf", "oneOf", "if", "dependentSchemas"})
"""Keywords whose subschemas look at the same value; `unevaluated…` then means more than the engine can say."""


def type_(sub: Subschema) -> None:
    kinds = sub.schema["type"]
    sub.out["type"] = kinds if isinstance(kinds, str) else list(kinds)


def enum(sub: Subschema) -> None:
    sub.out["enum"] = list(sub.schema["enum"])


def const(sub: Subschema) -> None:
    sub.out["enum"] = [sub.schema["const"]]


def _bound(name: str) -> Callable[[Subschema], None]:
    exclusive = f"exclusive{name.capitalize()}"

    def rule(sub: Subschema) -> None:
        value = sub.schema[name]
        if not -LARGEST_BOUND <= value <= LARGEST_BOUND:
            sub.leave(name, "too large for the engine")
        elif sub.schema.get(exclusive) is True:  # as draft 4 writes it
            sub.out[exclusive] = value
        else:
            sub.out[name] = value

    return rule


def multiple_of(sub: Subschema) -> None:
    value = sub.schema["multipleOf"]
    if sub.whole.oracles.takes({"type": "number", "multipleOf": value}):
        sub.out["multipleOf"] = value
    else:
        sub.leave("multipleOf", "too much for the engine")


def _copied(name: str) -> Callable[[Subschema], None]:
    def rule(sub: Subschema) -> None:
        sub.out[name] = int(sub.schema[name])  # 2.0 is a whole number too

    return rule


def pattern(sub: Subschema) -> None:
    text = sub.schema["pattern"]
    if sub.whole.oracles.takes({"type": "string", "pattern": text}):
        sub.out["pattern"] = text
    else:
        sub.leave("pattern", "the engine cannot read this expression")
        sub.out[EXAMPLES] = list(tails(text))


def format_(sub: Subschema) -> None:
    name = sub.schema["format"]
    if name in FORMAT_PATTERNS:
        sub.parts.append({"pattern": FORMAT_PATTERNS[name]})
        if name in ONLY_NEARLY:
            sub.leave("format", f"{name} is enforced in part")
    elif name in ENGINE_FORMATS:
        sub.out["format"] = name
    elif sub.whole.oracles.knows_format(name):
        sub.leave("format", f"{name} is too much for the engine")
        sub.out[EXAMPLES] = [LATE_FORMATS.get(name, "")]
    else:
        sub.whole.note(sub.place, "format", Treatment.ANNOTATION, f"{name} is no format that can be checked")


def prefix_items(sub: Subschema) -> None:
    parts = sub.schema["prefixItems"]
    sub.out["prefixItems"] = [sub.inner(part, "prefixItems", place) for place, part in enumerate(parts)]


def items(sub: Subschema) -> None:
    """Up to 2019-09 a list of schemas is what `prefixItems` is now."""
    value = sub.schema["items"]
    if not isinstance(value, list):
        sub.out["items"] = sub.inner(value, "items")
        return
    sub.out["prefixItems"] = [sub.inner(part, "items", place) for place, part in enumerate(value)]
    if sub.holds("additionalItems"):
        sub.out["items"] = sub.inner(sub.schema["additionalItems"], "additionalItems")


def unevaluated_items(sub: Subschema) -> None:
    if IN_PLACE & sub.schema.keys() or "items" in sub.schema or "contains" in sub.schema:
        sub.leave("unevaluatedItems")
    else:
        sub.out["items"] = sub.inner(sub.schema["unevaluatedItems"], "unevaluatedItems")


def contains(sub: Subschema) -> None:
    """An array that has to contain something cannot be empty; the rest is left to the check."""
    sub.leave("contains")
    counted = "dependentRequired" in sub.scope.asserting  # minContains came with the same draft
    least = int(sub.schema.get("minContains", 1)) if counted else 1
    if least > 0:
        sub.parts.append({"minItems": least})


def unique_items(sub: Subschema) -> None:
    if sub.schema["uniqueItems"]:
        sub.leave("uniqueItems")


def verbatim(sub: Subschema) -> None:
    """Kept for `grounded_grammar.py`; the engine reads past it."""
    if sub.schema[KEYWORD] is True:
        sub.out[KEYWORD] = True


RULES: Mapping[str, Callable[[Subschema], Any]] = {
    "type": type_,
    "enum": enum,
    "const": const,
    "minimum": _bound("minimum"),
    "maximum": _bound("maximum"),
    "exclusiveMinimum": _bound("exclusiveMinimum"),
    "exclusiveMaximum": _bound("exclusiveMaximum"),
    "multipleOf": multiple_of,
    "minLength": _copied("minLength"),
    "maxLength": _copied("maxLength"),
    "pattern": pattern,
    "format": format_,
    "prefixItems": prefix_items,
    "items": items,
    "unevaluatedItems": unevaluated_items,
    "minItems": _copied("minItems"),
    "maxItems": _copied("maxItems"),
    "contains": contains,
    "uniqueItems": unique_items,
    KEYWORD: verbatim,
}
