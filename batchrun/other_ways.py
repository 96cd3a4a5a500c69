"""Runs one job alone, and the other ways that it could have taken at a near-tie between two spellings of one text.

A text says which way an answer went only where the two ways differ in text at once.  Where they spell the same text in
other tokens, the model reads something else from there on; and where two tokens are nearly as likely, a third may be
too.  So such ways are run, and compared: an answer of another row is on none of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from batchrun.backends.base import Tokenizer
from batchrun.core import Completion, Constraint, Grammar, NearTie, Request
from batchrun.engine import Engine
from batchrun.verdicts import Decode, Verdict, judged, other_spellings, parting

MOST_WAYS = 24  # that are run for one answer
LONGEST_TOKEN = 64  # characters


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


class OtherWays:
    """Compares results with their jobs run alone, on one engine."""

    def __init__(self, engine: Engine, tokenizer: Tokenizer) -> None:
        self._engine = engine
        self._tokenizer = tokenizer
        self._left = 0  # ways that may still be run for the answer in hand

    def verdict(self, output: Any, alone: Completion) -> Verdict:
        """What a result comes to.  Raises BackendError."""
        self._left = MOST_WAYS
        return self._verdict(output, alone)

    def _verdict(self, output: Any, alone: Completion) -> Verdict:
        verdict = judged(output, alone, self._tokenizer.decode)
        for tie in self._ties(output, alone) if verdict is Verdict.DIFFERENT else []:
            self._left -= 1
            if self._left < 0:
                break
            other = _taken(self._engine, alone, tie, self._tokenizer.decode)
            if other and self._verdict(output, other) is not Verdict.DIFFERENT:
                return Verdict.NEAR_TIE
        return verdict

    def _ties(self, output: Any, alone: Completion) -> list[NearTie]:
        """The ways to try: a third token where two were nearly as likely, and other spellings of what came before."""
        decode = self._tokenizer.decode
        place, rest = parting(output, alone, decode)
        tokens = self._tokenizer.encode(rest[:LONGEST_TOKEN], control=False)[:1]
        thirds = [tie._replace(second=token) for tie in alone.near_ties if tie.place == place for token in tokens]
        return thirds + other_spellings(output, alone, decode)


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
