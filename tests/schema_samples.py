"""Schemas of the kinds that people write, in all drafts, each with answers that pass it and answers that do not.

Answers name their properties in the order of the schema, as the guide spells them.
"""

from dataclasses import dataclass
from typing import Any

DRAFT_4, DRAFT_6, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
DRAFT_2019, DRAFT_2020 = (f"https://json-schema.org/draft/{name}/schema" for name in ("2019-09", "2020-12"))


@dataclass(frozen=True)
class Sample:
    """A schema with good and bad answers.  `late`: keywords that are left to the check after decoding."""

    name: str
    schema: Any
    good: tuple[Any, ...]
    bad: tuple[Any, ...] = ()
    late: frozenset[str] = frozenset()


def _closed(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    names = list(properties) if required is None else required
    return {
        "type": "object",
        "properties": properties,
        "required": names,
        "additionalProperties": False,
    } | more


_TEXT, _COUNT = {"type": "string"}, {"type": "integer", "minimum": 0}

SAMPLES = (
    Sample("contact", _closed({"name": _TEXT, "age": _COUNT}), ({"name": "Ada", "age": 36},), ({"name": "Ada"},)),
    Sample("optional", _closed({"a": _TEXT, "b": _COUNT, "c": _TEXT}, ["b"]), ({"b": 1}, {"a": "x", "b": 1, "c": ""})),
    Sample("choice list", {"enum": ["yes", "no", "unclear"]}, ("yes", "unclear"), ("maybe", 1)),
    Sample("constant", {"const": {"a": [1, None]}}, ({"a": [1, None]},), ({"a": [1]},)),
    Sample("listed values that fail beside", {"enum": ["a", 1, None], "type": "string"}, ("a",), (1, None)),
    Sample("anything", {}, (1, "x", {"a": [True]}, None)),
    Sample("several types", {"type": ["string", "null", "integer"]}, ("a", None, 3), ([], 1.5)),
    Sample("bounds", {"type": "integer", "minimum": -5, "exclusiveMaximum": 10}, (-5, 9), (-6, 10)),
    Sample(
        "draft 4 bounds", {"$schema": DRAFT_4, "type": "integer", "minimum": 1, "exclusiveMinimum": True}, (2,), (1,)
    ),
    Sample("steps", {"type": "number", "multipleOf": 0.25, "minimum": 0, "maximum": 1}, (0, 0.25), (0.3,)),
    Sample("large bound", {"type": "integer", "maximum": 1e300, "minimum": 0}, (5,), (-1,), frozenset({"maximum"})),
    Sample("lengths", {"type": "string", "minLength": 2, "maxLength": 4}, ("ab", "äöüß"), ("a", "abcde")),
    Sample("pattern", {"type": "string", "pattern": "^[A-Z]{2}-[0-9]+$"}, ("AB-12",), ("ab-12", "AB-")),
    Sample("open pattern", {"type": "string", "pattern": "[0-9]{4}"}, ("in 2024.",), ("in 24",)),
    Sample(
        "pattern with a tail", {"type": "string", "pattern": "^[A-Z_]+(_LEFT|_RIGHT)$"}, ("A_LEFT",), ("A_", "LEFT")
    ),
    Sample("look-ahead", {"type": "string", "pattern": "^(?!x)[a-z0-9]+$"}, ("a1",), ("xa",), frozenset({"pattern"})),
    Sample("date", {"type": "string", "format": "date"}, ("2024-02-29",), ("2023-02-29", "2024-13-01", "0000-01-01")),
    Sample("date and time", {"type": "string", "format": "date-time"}, ("2024-02-29T23:59:59Z",), ("2024-02-29",)),
    Sample("address", {"type": "string", "format": "email"}, ("a@example.org",), ("a",)),
    Sample("iri", {"type": "string", "format": "iri"}, ("https://example.org/ä",), ("no iri",), frozenset({"format"})),
    Sample("unknown format", {"type": "string", "format": "colour"}, ("anything",)),
    Sample(
        "list", {"type": "array", "items": _COUNT, "minItems": 1, "maxItems": 3}, ([1], [1, 2, 3]), ([], [1, 2, 3, 4])
    ),
    Sample(
        "tuple", {"prefixItems": [_TEXT, _COUNT], "items": False, "minItems": 2, "type": "array"}, (["a", 1],), (["a"],)
    ),
    Sample(
        "draft 7 tuple",
        {"$schema": DRAFT_7, "type": "array", "items": [_TEXT, _COUNT], "additionalItems": {"type": "null"}},
        (["a", 1, None], ["a"]),
        (["a", 1, 2],),
    ),
    Sample("contains", {"type": "array", "contains": {"const": 1}}, ([1], [0, 1]), ([], [2]), frozenset({"contains"})),
    Sample(
        "unique",
        {"type": "array", "items": _COUNT, "uniqueItems": True},
        ([1, 2],),
        ([1, 1],),
        frozenset({"uniqueItems"}),
    ),
    Sample(
        "definitions",
        {"$ref": "#/$defs/a", "$defs": {"a": _closed({"b": {"$ref": "#/$defs/c"}}), "c": _COUNT}},
        ({"b": 1},),
    ),
    Sample("anchor", {"$ref": "#here", "$defs": {"a": {"$anchor": "here", "type": "null"}}}, (None,), (1,)),
    Sample(
        "id of its own",
        {"$id": "https://example.org/a", "$ref": "b", "$defs": {"b": {"$id": "b", "type": "boolean"}}},
        (True,),
        (1,),
    ),
    Sample(
        "beside a reference, ignored",
        {"$schema": DRAFT_7, "definitions": {"a": _TEXT}, "$ref": "#/definitions/a", "maxLength": 1},
        ("abc",),
        (1,),
    ),
    Sample("beside a reference", {"$defs": {"a": _TEXT}, "$ref": "#/$defs/a", "maxLength": 2}, ("ab",), ("abc",)),
    Sample(
        "tree",
        {
            "$defs": {"n": _closed({"v": _COUNT, "c": {"type": "array", "items": {"$ref": "#/$defs/n"}}})},
            "$ref": "#/$defs/n",
        },
        ({"v": 1, "c": [{"v": 2, "c": []}]},),
        ({"v": 1},),
    ),
    Sample("all of", {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 3}]}, ("ab",), ("a", "abcd")),
    Sample("any of", {"anyOf": [{"type": "null"}, {"type": "string", "maxLength": 1}]}, (None, "a"), ("ab", 1)),
    Sample("one of two types", {"oneOf": [{"type": "null"}, _TEXT]}, (None, "a"), (1,)),
    Sample(
        "one of two kinds",
        {
            "oneOf": [
                _closed({"kind": {"const": "circle"}, "r": _COUNT}),
                _closed({"kind": {"enum": ["box", "cube"]}, "w": _COUNT}),
            ]
        },
        ({"kind": "circle", "r": 1}, {"kind": "box", "w": 2}),
        ({"kind": "circle", "w": 1},),
    ),
    Sample(
        "one of two names",
        {
            "type": "object",
            "properties": {"a": _COUNT, "b": _COUNT},
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
        },
        ({"a": 1}, {"b": 1}),
        ({"a": 1, "b": 1}, {}),
    ),
    Sample(
        "one of overlapping",
        {"oneOf": [{"type": "integer", "minimum": 3}, {"type": "integer", "maximum": 5}]},
        (1, 9),
        (4,),
        frozenset({"oneOf"}),
    ),
    Sample(
        "not required", {"type": "object", "properties": {"a": _TEXT}, "not": {"required": ["a"]}}, ({},), ({"a": "x"},)
    ),
    Sample("not a type", {"not": {"type": ["object", "array", "number"]}}, ("a", None, True), ({}, 1)),
    Sample("not a value", {"type": "string", "not": {"const": "x"}}, ("y",), ("x",), frozenset({"not"})),
    Sample(
        "dependencies",
        {
            "$schema": DRAFT_4,
            "type": "object",
            "properties": {"card": _TEXT, "street": _TEXT},
            "dependencies": {"card": ["street"]},
        },
        ({}, {"street": "x"}, {"card": "1", "street": "x"}),
        ({"card": "1"},),
    ),
    Sample(
        "dependent schemas",
        {
            "type": "object",
            "properties": {"a": _COUNT, "b": _COUNT},
            "dependentSchemas": {"a": {"properties": {"b": {"maximum": 3}}, "required": ["b"]}},
        },
        ({"b": 9}, {"a": 1, "b": 3}),
        ({"a": 1}, {"a": 1, "b": 9}),
    ),
    Sample(
        "if and then",
        {
            "$schema": DRAFT_7,
            "type": "object",
            "properties": {"kind": {"enum": ["home", "work"]}, "firm": _TEXT},
            "required": ["kind"],
            "if": {"properties": {"kind": {"const": "work"}}},
            "then": {"required": ["firm"]},
        },
        ({"kind": "home"}, {"kind": "work", "firm": "x"}),
        ({"kind": "work"},),
    ),
    Sample(
        "if that cannot be turned round",
        {"if": {"type": "string", "maxLength": 3}, "then": {"pattern": "^a"}, "else": {"type": "null"}},
        ("ab", None),
        ("b", 5),
        frozenset({"if"}),
    ),
    Sample("names by pattern", {"type": "object", "propertyNames": {"pattern": "^x-"}}, ({}, {"x-a": 1}), ({"a": 1},)),
    Sample(
        "patterns of names",
        {"type": "object", "patternProperties": {"^n": _COUNT, "^s": _TEXT}, "additionalProperties": False},
        ({"n1": 1, "s": "x"},),
        ({"n1": "x"}, {"other": 1}),
    ),
    Sample(
        "patterns that share names",
        {"type": "object", "patternProperties": {"a": _COUNT, "b": {"type": "integer"}}, "additionalProperties": False},
        ({"a": 1}, {"ab": 2}),
        ({"a": "x"}, {"a": -1}),
        frozenset({"patternProperties"}),
    ),
    Sample(
        "one property at least",
        {"type": "object", "properties": {"a": _COUNT, "b": _COUNT}, "minProperties": 1, "additionalProperties": False},
        ({"a": 1}, {"b": 1}),
        ({},),
    ),
    Sample(
        "one property at least of many more",
        {"type": "object", "properties": {"a": _COUNT}, "minProperties": 1},
        ({"a": 1}, {"c": 1}),
        ({},),
    ),
    Sample("few properties", {"type": "object", "maxProperties": 1}, ({}, {"a": 1}), ({"a": 1, "b": 2},)),
    Sample(
        "nothing unevaluated",
        {"$schema": DRAFT_2019, "type": "object", "properties": {"a": _COUNT}, "unevaluatedProperties": False},
        ({"a": 1},),
        ({"b": 1},),
    ),
    Sample(
        "nothing unevaluated behind a reference",
        {
            "$defs": {"a": {"properties": {"a": _COUNT}}},
            "type": "object",
            "$ref": "#/$defs/a",
            "unevaluatedProperties": False,
        },
        ({"a": 1}, {}),
        ({"b": 1},),
        frozenset({"unevaluatedProperties"}),
    ),
    Sample(
        "draft 6 constant",
        {"$schema": DRAFT_6, "properties": {"a": {"const": 1}}, "type": "object"},
        ({"a": 1},),
        ({"a": 2},),
    ),
    Sample("keyword of a later draft", {"$schema": DRAFT_4, "type": "array", "contains": {"const": 1}}, ([2],)),
    Sample(
        "a branch that nothing fits",
        {"anyOf": [{"type": "string", "minLength": 3, "maxLength": 1}, _COUNT]},
        (1,),
        ("ab",),
    ),
    Sample("an option that nothing fits", {"type": "object", "properties": {"a": False}}, ({}, {"b": 1}), ({"a": 1},)),
)

UNSATISFIABLE = (
    (
        "lengths",
        {"properties": {"a": {"type": "string", "minLength": 3, "maxLength": 1}}, "required": ["a"], "type": "object"},
        "/properties/a",
    ),
    ("false", {"type": "array", "items": False, "minItems": 1}, ""),
    (
        "no listed value",
        {"type": "object", "properties": {"a": {"enum": ["x"], "type": "null"}}, "required": ["a"]},
        "/properties/a",
    ),
    ("a missing property", {"type": "object", "required": ["a"], "additionalProperties": False}, ""),
    ("endless", {"$defs": {"n": _closed({"n": {"$ref": "#/$defs/n"}})}, "$ref": "#/$defs/n"}, ""),
    ("all branches", {"anyOf": [False, {"not": {}}]}, ""),
    ("two places", {"allOf": [{"type": "string"}, {"type": "null"}]}, ""),
)
"""Name, schema, and the place of the reason."""
