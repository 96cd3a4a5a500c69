"""Grammar state: what a row may say next, from its JSON Schema.  The only file that knows llguidance.

A schema is compiled once (`Guide.compile`), cloned per row (`Grammar.start`), and the masks of all rows of a step are
filled by one parallel call without the GIL (`Guide.masks`).  JSON is compact while decoding: the grammar knows no free
white space, so a model cannot spend its budget on it.

llguidance never raises for a bad grammar or token; every answer here is asked for its error.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from llguidance.numpy import (
    allocate_token_bitmask,
    fill_next_token_bitmask_par,
    fill_next_token_bitmask_par_with_draft_tokens,
)
from numpy.typing import NDArray

from batchrun.core import Accepted, Constraint, Grammar, Problem, Schema
from batchrun.errors import JobError

COMPILED_KEPT = 256
"""Compiled schemas kept for reuse.  Jobs of a run share few schemas; a job file may still bring one a line."""

ALL_ALLOWED = np.int32(-1)


class Guide:
    """Compiles schemas for one tokenizer and fills masks of `vocab` bits a row."""

    def __init__(self, tokenizer: LLTokenizer, vocab: int, threads: int = 1) -> None:
        self._tokenizer = tokenizer
        self._executor = LLExecutor(threads)
        self._masks = allocate_token_bitmask(1, vocab)
        self._compiled: OrderedDict[Schema, CompiledSchema] = OrderedDict()

    def compile(self, schema: Schema) -> Grammar:
        """The grammar of a schema, from the cache if it was compiled before.

        Raises JobError (`schema_not_supported`) where no grammar can be made: without one nothing would be enforced.
        """
        compiled = self._compiled.get(schema)
        if compiled is None:
            compiled = CompiledSchema(self._tokenizer, schema)
            self._compiled[schema] = compiled
            if len(self._compiled) > COMPILED_KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(schema)
        return compiled

    def masks(self, draws: Seq[tuple[Constraint | None, Seq[int]]]) -> NDArray[np.int32] | None:
        """A mask for each draw, `int32[draws, ceil(vocab / 32)]`, bit 1 = allowed.

        `draws`: each feed's constraint and the proposal in it: a feed draws once, and once more behind every proposed
        token.  Without a constraint all is allowed; None if no feed has one.  The array is reused by the next call.
        """
        plain: list[tuple[LLMatcher, int]] = []
        proposing: list[tuple[LLMatcher, int, list[int]]] = []
        rows = free = 0
        for row, proposal in draws:
            if not isinstance(row, Row):
                free += 1 + len(proposal)
            elif proposal:
                proposing.append((row.matcher, rows, list(proposal)))
            else:
                plain.append((row.matcher, rows))
            rows += 1 + len(proposal)
        if free == rows:
            return None
        if len(self._masks) < rows:
            self._masks = np.zeros((rows, self._masks.shape[1]), dtype=np.int32)
        masks: NDArray[np.int32] = self._masks[:rows]
        if free or proposing:  # behind an end in a proposal nothing is filled
            masks.fill(ALL_ALLOWED)
        if plain:
            fill_next_token_bitmask_par(self._executor, plain, masks)
        if proposing:
            fill_next_token_bitmask_par_with_draft_tokens(self._executor, proposing, masks)
        return masks


class CompiledSchema:
    """A grammar and the tokens that it forces before anything is drawn."""

    def __init__(self, tokenizer: LLTokenizer, schema: Schema) -> None:
        self._matcher = LLMatcher(tokenizer, _grammar(schema), log_level=0)
        self.opening: tuple[int, ...] = ()
        if self._matcher.is_error():
            raise _not_supported(schema, self._matcher.get_error())
        opening = self._matcher.compute_ff_tokens()
        if not self._matcher.consume_tokens(opening):
            raise _not_supported(schema, self._matcher.get_error())
        self._matcher.compute_bitmask()  # a schema that only refers to itself fails here and not before
        if self._matcher.is_error():
            raise _not_supported(schema, "no answer fits it")
        self.opening = tuple(opening)

    def start(self) -> "Row":
        return Row(self._matcher.deep_copy())


class Row:
    """The grammar state of one row."""

    __slots__ = ("matcher",)

    def __init__(self, matcher: LLMatcher) -> None:
        self.matcher = matcher

    def accept(self, token: int) -> Accepted:
        """Takes a drawn token.  The tokens it forces are already taken when they are given back."""
        matcher = self.matcher
        if not matcher.consume_token(token) or matcher.is_error():  # a matcher in error takes an end without complaint
            return Accepted(error=f"token {token} is not in the grammar: {first_line(matcher.get_error())}")
        if matcher.is_stopped():
            return Accepted(ended=True)
        forced = matcher.compute_ff_tokens()
        if forced and not matcher.consume_tokens(forced):
            return Accepted(error=f"forced tokens were refused: {first_line(matcher.get_error())}")
        return Accepted(tuple(forced), ended=matcher.is_stopped())

    def allows(self, tokens: Seq[int]) -> int:
        return int(self.matcher.validate_tokens(list(tokens)))


def first_line(text: str) -> str:
    """An error of llguidance in one line, without its advice on options that nobody here can set."""
    return " ".join(text.split()).partition(" Enable ")[0].partition(" <state>")[0][:200]


def _grammar(schema: Schema) -> str:
    content = {} if schema.content is True else schema.content
    try:
        return str(LLMatcher.grammar_from_json_schema(content, overrides={"whitespace_flexible": False}))
    except ValueError as error:
        raise _not_supported(schema, str(error)) from error


def _not_supported(schema: Schema, reason: str) -> JobError:
    message = f"schema {schema.name!r} cannot be enforced while decoding: {first_line(reason)}"
    return JobError(Problem("schema_not_supported", message))
