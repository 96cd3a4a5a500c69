"""What a constraint on answers is, to all who hold one: the schema of a job, its grammar, and the state of one row.

The rows themselves are `guided_row.py`'s.  This file knows no other module and no third-party name.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


class Language(StrEnum):
    """What a job says its constraint in."""

    JSON_SCHEMA = "JSON Schema"
    REGEX = "regular expression"
    LARK = "Lark grammar"


@dataclass(frozen=True, slots=True)
class Schema:
    """A constraint on answers, as a job names it.  Two are equal when their compact text is."""

    name: str = field(compare=False)
    text: str  # compact JSON, keys in the author's order
    content: Any = field(compare=False)  # the parsed form of `text`
    language: Language = field(default=Language.JSON_SCHEMA, compare=False)
    is_grounded: bool = field(default=False, compare=False)  # some of its strings have to stand in the document

    @property
    def is_json(self) -> bool:
        """Whether answers are JSON; else they are text."""
        return self.language is Language.JSON_SCHEMA


class Closed(StrEnum):
    """Why an answer was led to its end before the model came to it."""

    BUDGET = "budget"  # what was left of it was needed to close what is open
    RUNAWAY = "runaway"  # the model went round in circles


class Constraint(Protocol):
    """The grammar state of one row."""

    def accept(self, token: int, left: int) -> "Accepted":
        """Takes a drawn token and gives the tokens that the grammar now forces.

        `left`: tokens that may still be appended, the drawn one counted.
        """
        ...

    def allows(self, tokens: Sequence[int]) -> int:
        """How many of these tokens, one after the other, may come to be said.  Changes nothing."""
        ...


class Grammar(Protocol):
    """A compiled schema, ready to be started once per row.

    `opening`: the tokens it forces before anything is drawn, the same for every row.
    `least_tokens`: of the shortest answer that was found, its opening counted; 0 where none was.
    """

    @property
    def opening(self) -> tuple[int, ...]: ...

    @property
    def least_tokens(self) -> int: ...

    def start(self) -> Constraint:
        """The state after the opening."""
        ...


@dataclass(frozen=True, slots=True)
class Accepted:
    """What a grammar said to a drawn token.

    `forced`: tokens to append behind it, or in its place where it is `dropped`.  `ended`: nothing may follow.
    `error`: the grammar gave up.  `closed`: why the answer is led to its end from here on, or a part of it was.
    """

    forced: tuple[int, ...] = ()
    ended: bool = False
    error: str | None = None
    dropped: bool = False
    closed: frozenset[Closed] = frozenset()
    thought: "Thought | None" = None


@dataclass(frozen=True, slots=True)
class Thought:
    """The model has thought enough: the answer begins with `opening`, and goes on under the constraint, if any."""

    opening: tuple[int, ...]
    constraint: Constraint | None
