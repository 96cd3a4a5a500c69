"""How often each field of the answers is filled, and with what: per schema, in bounded memory.

A field is filled where its value is not null and not empty.  Fields of nested objects are named with dots, elements of
arrays count for their array.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

MOST_FIELDS = 200  # of one schema
MOST_VALUES = 10_000  # told apart in one field
MOST_NESTED = 4
VALUE_CHARACTERS = 80
TOP_VALUES = 5


@dataclass(frozen=True, slots=True)
class Field:
    """One field over all answers.  `values`: the most common ones with their counts; `distinct`: how many there are,
    or None where there are too many to be told apart.
    """

    name: str
    filled: int
    of: int
    values: tuple[tuple[str, int], ...]
    distinct: int | None


@dataclass(frozen=True, slots=True)
class SchemaFields:
    """The fields of the `ok` answers to one schema."""

    schema: str
    answers: int
    fields: tuple[Field, ...]


@dataclass(slots=True)
class _Counts:
    filled: int = 0
    values: Counter[str] = field(default_factory=Counter)
    overflowed: bool = False

    def add(self, value: Any) -> None:
        text = as_text(value)
        if text in self.values or len(self.values) < MOST_VALUES:
            self.values[text] += 1
        else:
            self.overflowed = True

    def found(self, name: str, answers: int) -> Field:
        distinct = None if self.overflowed else len(self.values)
        return Field(name, self.filled, answers, tuple(self.values.most_common(TOP_VALUES)), distinct)


@dataclass(slots=True)
class FieldCounts:
    """Counts the fields of answers, schema by schema."""

    _answers: Counter[str] = field(default_factory=Counter)
    _fields: dict[str, dict[str, _Counts]] = field(default_factory=dict)

    def add(self, schema: str, output: Any) -> None:
        self._answers[schema] += 1
        fields = self._fields.setdefault(schema, {})
        for whole, value in _leaves("", output, 0):
            name = as_text(whole)
            if name not in fields and len(fields) >= MOST_FIELDS:
                continue
            counts = fields.setdefault(name, _Counts())
            elements = value if isinstance(value, list) else [value]
            if any(_is_filled(element) for element in elements):
                counts.filled += 1
            for element in elements:
                if _is_filled(element):
                    counts.add(element)

    def found(self) -> tuple[SchemaFields, ...]:
        """What was counted, the schema with the most answers first."""
        return tuple(
            SchemaFields(schema, answers, tuple(c.found(name, answers) for name, c in self._fields[schema].items()))
            for schema, answers in self._answers.most_common()
        )


def as_text(value: Any) -> str:
    """A value as a person reads it, cut where it is long."""
    text = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
    return text if len(text) <= VALUE_CHARACTERS else text[: VALUE_CHARACTERS - 1] + "…"


def _leaves(name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    """Every field of an answer that is no object, and what it holds; an answer that is no object has one, without a
    name.
    """
    if not isinstance(value, dict) or depth == MOST_NESTED:
        yield name or "(answer)", value
        return
    for key, inner in value.items():
        yield from _leaves(f"{name}.{key}" if name else key, inner, depth + 1)


def _is_filled(value: Any) -> bool:
    return value is not None and value != "" and value != [] and value != {}
