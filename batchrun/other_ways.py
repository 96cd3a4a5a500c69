"""Runs one job alone, and the other ways that it could have taken at a near-tie between two spellings of one text.

A text says which way an answer went only where the two ways differ in text at once.  Where they spell the same text in
other tokens, the model reads something else from there on: so the other way is run, and compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from batchrun.core import Completion, Constraint, Grammar, NearTie, Request
from batchrun.engine import Engine
from batchrun.verdicts import Decode, Verdict, judged, other_spellings

MOST_WAYS = 6  # that are run for one answer


@dataclass(frozen=True, slots=True)
class Begun:
    """A grammar whose answer has begun: `said` is part of the prompt by now.  `budget_tokens`: of all of it."""

    inner: Grammar
    said: tuple[int, ...]
    budget_tokens: int
    opening: tuple[int, ...] = ()
    least_tokens: int = 0

    def start(self) -> Constraint:
        found = _advanced(self.inner, self.said, self.budget_tokens)
        assert found is not None, "it was advanced before"
        return found[0]


def verdict_of(engine: Engine, output: Any, alone: Completion, decode: Decode) -> Verdict:
    """What a result comes to, beside its job alone.  Raises BackendError."""
    verdict = judged(output, alone, decode)
    ties = other_spellings(output, alone, decode) if verdict is Verdict.DIFFERENT else []
    for tie in ties[:MOST_WAYS]:
        other = _taken(engine, alone, tie, decode)
        if other and judged(output, other, decode) is not Verdict.DIFFERENT:
            return Verdict.NEAR_TIE
    return verdict


def completed(engine: Engine, request: Request) -> Completion:
    """Runs a request to its end, alone."""
    engine.submit([request])
    while True:
        for completion in engine.step():
            return completion


def _taken(engine: Engine, alone: Completion, tie: NearTie, decode: Decode) -> Completion | None:
    """The completion had the other token been drawn at a tie; None where a grammar says that it could not be."""
    assert tie.second is not None, "an other spelling has a token"
    request, said = alone.request, (*alone.tokens[: tie.place], tie.second)
    if request.grammar:
        advanced = _advanced(request.grammar, said, request.job.max_tokens)
        if advanced is None:
            return None
        said += advanced[1]
    left_tokens = request.job.max_tokens - len(said)
    if left_tokens < 1:
        return None
    job = replace(request.job, max_tokens=left_tokens)
    grammar = Begun(request.grammar, said, request.job.max_tokens) if request.grammar else None
    rest = completed(engine, replace(request, job=job, tokens=(*request.tokens, *said), grammar=grammar))
    tokens = (*said, *rest.tokens)
    ties = tuple(each._replace(place=each.place + len(said)) for each in rest.near_ties)
    return replace(rest, text=decode(tokens).decode(errors="ignore"), tokens=tokens, near_ties=ties)


def _advanced(grammar: Grammar, said: Sequence[int], budget_tokens: int) -> tuple[Constraint, tuple[int, ...]] | None:
    """The state after tokens were said, and what it forces then; None where it refuses one, or has ended."""
    constraint, place, forced = grammar.start(), len(grammar.opening), tuple[int, ...]()
    while place < len(said):
        accepted = constraint.accept(said[place], budget_tokens - place)
        if accepted.error or accepted.ended or accepted.dropped or accepted.thought:
            return None
        forced = accepted.forced
        place += 1 + len(forced)
    return constraint, forced if place > len(said) else ()
