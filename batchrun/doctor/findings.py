"""What a look at one part of a set-up gives: facts, and problems with the command that fixes each."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Problem:
    """`stops`: whether `batchrun run` could not work with it.  `fix`: a command, or what to do where none does it."""

    what: str
    fix: str
    stops: bool = True


@dataclass(frozen=True, slots=True)
class Fact:
    """`value`: for machines, what JSON can say; `shown`: for people, where that is not the value itself."""

    name: str
    value: Any
    shown: str = ""

    @property
    def text(self) -> str:
        return self.shown or ("unknown" if self.value is None or self.value == "" else str(self.value))


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a set-up."""

    name: str
    facts: Sequence[Fact]
    problems: Sequence[Problem] = ()


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All parts that were looked at."""

    sections: Sequence[Section]

    @property
    def problems(self) -> list[Problem]:
        """Those that stop a run first."""
        found = [problem for section in self.sections for problem in section.problems]
        return sorted(found, key=lambda problem: not problem.stops)

    @property
    def can_run(self) -> bool:
        return not any(problem.stops for problem in self.problems)


def as_json(found: Diagnosis) -> dict[str, Any]:
    return {
        "can_run": found.can_run,
        "problems": [
            {"what": problem.what, "fix": problem.fix, "stops_a_run": problem.stops} for problem in found.problems
        ],
        **{section.name: {fact.name: fact.value for fact in section.facts} for section in found.sections},
    }
