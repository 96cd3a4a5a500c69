"""A schema that guides decoding well, from examples of answers.

genson finds types, lists, objects and which keys every example has.  What it leaves open lets a small model run on, so
it is closed here: no other keys, texts and lists a few times as long as in the examples, and choices where an example
offers them (`"good|bad"`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from genson import SchemaBuilder

from batchrun.draft.example import choices
from batchrun.errors import UsageError

DRAFT = "https://json-schema.org/draft/2020-12/schema"
SHORTEST, LENGTHS, ROUND = 60, 3, 20  # characters that any text may have; times the longest example; rounded up to
FEWEST, TIMES = 10, 2  # the same for entries of a list


@dataclass(slots=True)
class Inferred:
    """A schema, and what was taken for granted in it, for a user to look at."""

    schema: dict[str, Any]
    notes: list[str] = field(default_factory=list)


def infer(examples: Sequence[dict[str, Any]]) -> Inferred:
    """The schema of the examples, which all of them pass.  Raises UsageError for an object without keys."""
    builder = SchemaBuilder(schema_uri=DRAFT)
    for example in examples:
        builder.add_object(example)
    inferred = Inferred(builder.to_schema())
    _close(inferred.schema, list(examples), "", inferred.notes)
    return inferred


def _close(part: dict[str, Any], values: list[Any], place: str, notes: list[str]) -> None:
    """Bounds a part of a schema by what the examples have at its place."""
    for option in part.get("anyOf", ()):
        _close(option, values, place, notes)
    kinds = part.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else list(kinds)
    if kinds == ["null"]:
        kinds = part["type"] = ["string", "null"]
        notes.append(f"{place[1:]} is null in the example: taken for a text, or null")
    if "object" in kinds:
        _close_object(part, [value for value in values if isinstance(value, dict)], place, notes)
    if "array" in kinds:
        _close_list(part, [value for value in values if isinstance(value, list)], place, notes)
    if "string" in kinds:
        _close_text(part, [value for value in values if isinstance(value, str)], kinds)


def _close_object(part: dict[str, Any], values: list[dict[str, Any]], place: str, notes: list[str]) -> None:
    properties = part.get("properties")
    if not properties:
        raise UsageError(f"--example: {place[1:]} is an empty object; expected its keys")
    for name, inner in properties.items():
        _close(inner, [value[name] for value in values if name in value], f"{place}.{name}", notes)
    required = set(part.pop("required", ()))
    part["required"] = [name for name in properties if name in required]
    part["additionalProperties"] = False
    optional = [name for name in properties if name not in required]
    if optional:
        notes.append(f"not in every example, so an answer may leave it out: {', '.join(optional)}")


def _close_list(part: dict[str, Any], values: list[list[Any]], place: str, notes: list[str]) -> None:
    entries = [entry for value in values for entry in value]
    if not part.get("items"):
        part["items"] = {"type": "string"}
        notes.append(f"{place[1:]} is an empty list in the example: taken for a list of texts")
    _close(part["items"], entries, place, notes)
    part["maxItems"] = max(FEWEST, TIMES * max(map(len, values), default=0))


def _close_text(part: dict[str, Any], texts: list[str], kinds: list[str]) -> None:
    offered = [choices(text) for text in texts]
    if any(offered) and set(kinds) <= {"string", "null"}:
        all_of_them = [choice for text, each in zip(texts, offered, strict=True) for choice in each or [text]]
        del part["type"]
        part["enum"] = [*dict.fromkeys(all_of_them), *([None] if "null" in kinds else [])]
        return
    longest = LENGTHS * max(map(len, texts), default=0)
    part["maxLength"] = max(SHORTEST, -(-longest // ROUND) * ROUND)
