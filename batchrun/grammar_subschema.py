"""One subschema while it is being rewritten for the grammar engine: what the keyword rules share.

`out` takes what stands in the subschema itself, `parts` what has to hold beside it.  The rules lie in
`grammar_values.py`, `grammar_objects.py` and `grammar_logic.py`; `grammar_schema.py` puts them together.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from batchrun.keywords import Treatment
from batchrun.schema_walk import pointer


class Scope(Protocol):
    """The view of a draft and of references that `references.Scope` gives."""

    @property
    def asserting(self) -> frozenset[str]:
        """Keywords that can refuse something in this draft."""
        ...

    @property
    def reference_alone(self) -> bool:
        """Whether what stands beside a `$ref` means nothing."""
        ...

    def enter(self, schema: Any) -> "Scope": ...

    def lookup(self, reference: str) -> tuple[Any, "Scope"]: ...


@dataclass(frozen=True, slots=True)
class Oracles:
    """What is asked of others: whether the engine takes a small schema, whether a value passes a part of the schema,
    and whether the validator checks a format."""

    takes: Callable[[Any], bool]
    admits: Callable[[Any, Any], bool]
    knows_format: Callable[[str], bool]


class Whole(Protocol):
    """The rewriting that a subschema is part of."""

    @property
    def oracles(self) -> Oracles: ...

    def note(self, place: str, name: str, treatment: Treatment, note: str = "") -> None: ...

    def rewritten(self, schema: Any, scope: Scope, place: str) -> Any: ...

    def reference(self, reference: str, scope: Scope, place: str) -> dict[str, Any]: ...

    def definition(self, reference: str) -> Any:
        """What a reference of a rewritten schema stands for, as far as it is known by now."""
        ...


@dataclass(slots=True, eq=False)
class Subschema:
    """`schema` as it was written, in its scope, at a JSON pointer."""

    whole: Whole
    schema: dict[str, Any]
    scope: Scope
    place: str
    out: dict[str, Any] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)

    def holds(self, name: str) -> bool:
        """Whether a keyword stands here and means something in this draft."""
        return name in self.schema and name in self.scope.asserting

    def leave(self, name: str, note: str = "") -> None:
        """Leaves a keyword to the check after decoding."""
        self.whole.note(self.place, name, Treatment.CHECKED, note)

    def inner(self, schema: Any, *path: str | int) -> Any:
        """The rewriting of a subschema of this one."""
        return self.whole.rewritten(schema, self.scope, self.at(*path))

    def at(self, *path: str | int) -> str:
        return self.place + pointer(path)

    def joined(self) -> Any:
        """The outcome: `out` with `parts` beside it."""
        return all_of([self.out, *self.parts]) if self.out else all_of(self.parts)


def all_of(parts: Iterable[Any]) -> Any:
    """What all parts admit.  The first one may take the others in."""
    kept = [part for part in parts if part is not True]
    if any(part is False for part in kept):
        return False
    if len(kept) < 2:
        return kept[0] if kept else True
    first, *others = kept
    if "allOf" in first or "$ref" in first:
        return {"allOf": kept}
    return {**first, "allOf": others}


def any_of(branches: Iterable[Any]) -> Any:
    """What at least one branch admits."""
    kept = [branch for branch in branches if branch is not False]
    if any(branch is True for branch in kept) or not kept:
        return bool(kept)
    return kept[0] if len(kept) == 1 else {"anyOf": kept}
