"""Rewrites a JSON Schema, of whatever draft, into the closest one that the grammar engine takes.  Pure.

The outcome is written in a small part of draft 2020-12, its references all to `$defs`.  It admits every instance that
the schema does, as far as the engine can; what it cannot say is left out, never tightened, and counted as checked
after decoding.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from batchrun import grammar_logic, grammar_objects, grammar_values
from batchrun.grammar_subschema import Oracles, Scope, Subschema
from batchrun.grounding import KEYWORD
from batchrun.keywords import FLOW, HOLDERS, Keyword, Treatment
from batchrun.schema_walk import pointer, subschemas

RULES: dict[str, Callable[[Subschema], Any]] = {
    **grammar_values.RULES,
    **grammar_objects.RULES,
    **grammar_logic.RULES,
}
ALWAYS = frozenset({"const", KEYWORD})
"""Keywords that mean something in every draft to whoever writes them."""

LISTS = frozenset({"const", "enum"})
MOST_VALUES_CHECKED = 512
MOST_NESTED_DEFINITIONS = 16


@dataclass(frozen=True, slots=True)
class Rewritten:
    """The closest schema, where its parts came from (JSON pointers by identity), and what became of each keyword."""

    content: Any
    places: dict[int, str]
    keywords: tuple[Keyword, ...]


class BrokenReference(LookupError):
    """A reference that leads nowhere.  `place`: a JSON pointer to it."""

    def __init__(self, place: str, reference: str) -> None:
        super().__init__(reference)
        self.place = place


def rewrite(content: Any, scope: Scope, oracles: Oracles) -> Rewritten:
    """The closest schema that the engine takes.  Raises BrokenReference."""
    return Rewriting(content, oracles).whole(content, scope)


class Rewriting:
    """One rewriting.  References are followed from a list, so that neither cycles nor long chains are a matter."""

    def __init__(self, content: Any, oracles: Oracles) -> None:
        self.oracles = oracles
        self._pointers = dict(pointers(content))
        self._names: dict[int, str] = {}
        self._definitions: dict[str, Any] = {}
        self._waiting: list[tuple[str, Any, Scope, str]] = []
        self._places: dict[int, str] = {}
        self._keywords: dict[tuple[str, str], Keyword] = {}
        self._nested = 0

    def whole(self, content: Any, scope: Scope) -> Rewritten:
        root = self.rewritten(content, scope, "")
        while self._waiting:
            name, target, inner, place = self._waiting.pop()
            self._definitions[name] = self.rewritten(target, inner, place)
        if self._definitions and isinstance(root, dict):
            root = {**root, "$defs": self._definitions}
            self._places[id(root)] = ""
        return Rewritten(root, self._places, tuple(self._keywords.values()))

    def note(self, place: str, name: str, treatment: Treatment, note: str = "") -> None:
        """Takes down what became of a keyword.  What is left to the check once stays so."""
        known = self._keywords.get((place, name))
        if known is None or known.treatment is not Treatment.CHECKED:
            self._keywords[place, name] = Keyword(place, name, treatment, note)

    def rewritten(self, schema: Any, scope: Scope, place: str) -> Any:
        if not isinstance(schema, dict):
            return schema is not False
        sub = Subschema(self, schema, scope.enter(schema), place)
        out = self._by_rules(sub)
        if isinstance(out, dict):
            self._places[id(out)] = place
        return out

    def reference(self, reference: str, scope: Scope, place: str) -> dict[str, Any]:
        try:
            target, inner = scope.lookup(reference)
        except LookupError as error:
            raise BrokenReference(f"{place}/$ref", reference) from error
        name = self._names.get(id(target))
        if name is None:
            name = self._names[id(target)] = f"d{len(self._names)}"
            self._waiting.append((name, target, inner, self._pointers.get(id(target), reference)))
        return {"$ref": f"#/$defs/{name}"}

    def definition(self, reference: str) -> Any:
        """Followed at once if need be: whether branches overlap may hang on it."""
        name = reference.removeprefix("#/$defs/")
        for entry in list(self._waiting):
            if entry[0] == name and self._nested < MOST_NESTED_DEFINITIONS:
                self._waiting.remove(entry)
                self._definitions[name] = True  # what is said of it inside of itself is nothing
                self._nested += 1
                self._definitions[name] = self.rewritten(*entry[1:])
                self._nested -= 1
        return self._definitions.get(name, True)

    def _by_rules(self, sub: Subschema) -> Any:
        schema, scope = sub.schema, sub.scope
        if scope.reference_alone and isinstance(schema.get("$ref"), str):
            for name in schema.keys() - {"$ref"} - HOLDERS:
                self.note(
                    sub.place, name, Treatment.ANNOTATION, "stands beside a $ref, which in this draft rules alone"
                )
            self.note(sub.place, "$ref", Treatment.ENFORCED)
            return self.reference(schema["$ref"], scope, sub.place)
        self._classify(sub)
        if (listed := self._listed(sub)) is not None:
            return listed
        for name, rule in RULES.items():
            if name in schema and (name in scope.asserting or name in ALWAYS):
                rule(sub)
        grammar_objects.numbers(sub)
        return sub.joined()

    def _classify(self, sub: Subschema) -> None:
        asserting = sub.scope.asserting
        read_along = FLOW if {"if", "contains"} & asserting else frozenset()
        for name in sub.schema.keys() - HOLDERS:
            if name in asserting or name in ALWAYS:
                self.note(sub.place, name, Treatment.ENFORCED)
            elif name not in read_along:
                note = "means nothing in this draft" if name in RULES else ""
                self.note(sub.place, name, Treatment.ANNOTATION, note)

    def _listed(self, sub: Subschema) -> Any | None:
        """Listed values that pass what stands beside the list: they are all that there is to say."""
        schema = sub.schema
        values = [schema["const"]] if "const" in schema else schema.get("enum")
        if not isinstance(values, list) or len(values) > MOST_VALUES_CHECKED:
            return None
        beside = schema.keys() - (LISTS if "const" not in schema or "enum" not in schema else {"const"})
        if beside & sub.scope.asserting:
            values = [value for value in values if self.oracles.admits(schema, value)]
        for name in beside & (sub.scope.asserting | ALWAYS):
            if any("$ref" in part or part.get(KEYWORD) is True for _, part in subschemas({name: schema[name]})):
                sub.leave(name, "of listed values")  # whoever is asked about this part alone cannot tell
        return {"enum": values}


def pointers(value: Any, place: str = "") -> Iterator[tuple[int, str]]:
    """JSON pointers of all objects and lists in a document, by identity."""
    waiting = [(value, place)]
    while waiting:
        value, place = waiting.pop()
        if isinstance(value, dict | list):
            yield id(value), place
            parts = value.items() if isinstance(value, dict) else enumerate(value)
            waiting += [(part, place + pointer((key,))) for key, part in parts]
