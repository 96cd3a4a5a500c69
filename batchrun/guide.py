"""Grammar state: what a row may say next, from its schema.  The only file that knows llguidance.

A schema is compiled once (`Guide.compile`), cloned per row (`Grammar.start`), and the masks of all rows of a step are
filled by one parallel call without the GIL (`Guide.masks`).  JSON is compact while decoding: the grammar knows no free
white space, so a model cannot spend its budget on it.

llguidance never raises for a bad grammar or token; every answer here is asked for its error.
"""

from collections import OrderedDict
from collections.abc import Sequence as Seq
from functools import partial
from hashlib import blake2b
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer
from llguidance.numpy import (
    allocate_token_bitmask,
    fill_next_token_bitmask_par,
    fill_next_token_bitmask_par_with_draft_tokens,
)
from numpy.typing import NDArray

from batchrun.core import Constraint, Language, Problem, Schema
from batchrun.errors import JobError
from batchrun.grammar_source import GrammarSource, grammar_source
from batchrun.guided_row import BudgetedRow, Row, first_line
from batchrun.keywords import Coverage, Keyword
from batchrun.schemas import is_valid_text
from batchrun.way_home import Homes, Stand

COMPILED_KEPT = 256
"""Compiled schemas kept for reuse.  Jobs of a run share few schemas; a job file may still bring one a line."""

REFUSALS_KEPT = 4096
FIRST_STEPS = 2500
"""Of the search for the shortest answer, which is made once a schema."""

TOKENIZED_BEHIND = (b"", b"\n", b"x")
ALL_ALLOWED = np.int32(-1)


class Guide:
    """Compiles schemas for one tokenizer and fills masks of `vocab` bits a row.

    `closes`: whether rows are led to an end before their budget is spent.
    """

    def __init__(self, tokenizer: LLTokenizer, vocab: int, threads: int = 1, *, closes: bool = True) -> None:
        self._engine = Engine(tokenizer)
        self._executor = LLExecutor(threads)
        self._masks = allocate_token_bitmask(1, vocab)
        self._compiled: OrderedDict[tuple[Schema, str | None], CompiledSchema] = OrderedDict()
        self._closes = closes

    def coverage(self, schema: Schema, document: str | None = None) -> Coverage:
        """What becomes of the keywords of a schema, and its shortest answer.  Raises JobError as `compile` does."""
        compiled = self.compile(schema, document)
        return Coverage(schema.name, compiled.keywords, compiled.least_tokens)

    def compile(self, schema: Schema, document: str | None = None) -> "CompiledSchema":
        """The grammar of a schema, from the cache if it was compiled before.

        `document`: what verbatim strings are to be parts of, where the schema has any.

        Raises JobError (`schema_unsatisfiable`, `schema_not_supported`) where no grammar can be made: without one
        nothing would be enforced.
        """
        key = (schema, document if schema.is_grounded else None)
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = CompiledSchema(self._engine, schema, key[1], closes=self._closes)
            self._compiled[key] = compiled
            if len(self._compiled) > COMPILED_KEPT:
                self._compiled.popitem(last=False)
        self._compiled.move_to_end(key)
        return compiled

    def masks(self, draws: Seq[tuple[Constraint | None, Seq[int]]]) -> NDArray[np.int32] | None:
        """A mask for each draw, `int32[draws, ceil(vocab / 32)]`, bit 1 = allowed.

        `draws`: each feed's constraint and the proposal in it: a feed draws once, and once more behind every proposed
        token.  Without a constraint all is allowed; None if no feed has one.  The array is reused by the next call.
        """
        plain: list[tuple[LLMatcher, int]] = []
        proposing: list[tuple[LLMatcher, int, list[int]]] = []
        led: list[tuple[list[int], int]] = []
        rows = free = 0
        for row, proposal in draws:
            if not isinstance(row, Row):
                free += 1 + len(proposal)
            elif row.ways:
                led.append((list(row.ways), rows))
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
        for tokens, place in led:
            _keep_to(masks[place], tokens)
        return masks


def _keep_to(mask: NDArray[np.int32], tokens: list[int]) -> None:
    """Allows some tokens and no other."""
    mask.fill(0)
    words = mask.view(np.uint32)
    for token in tokens:
        words[token // 32] |= np.uint32(1 << token % 32)


class Engine:
    """llguidance for one tokenizer: makes grammar states over its tokens and over bytes."""

    def __init__(self, tokenizer: LLTokenizer) -> None:
        self.tokenizer = tokenizer
        self.byte_tokenizer = LLTokenizer("byte")
        self._refusals: OrderedDict[bytes, str] = OrderedDict()  # by the hash of the grammar: one may take megabytes
        self._byte_tokens: dict[int, list[int]] = {}
        self._last: tuple[str, Any] = ("", None)  # the last grammar that was asked about: it is the one to be used next

    def matcher(self, source: GrammarSource, *, of_bytes: bool = False) -> LLMatcher:
        """A grammar state at the beginning.  It may be in error."""
        grammar = _grammar(source.language, source.content)
        if of_bytes and self._last[0] == grammar and self._last[1] is not None:
            return self._last[1].deep_copy()
        return LLMatcher(self.byte_tokenizer if of_bytes else self.tokenizer, grammar, log_level=0)

    def refusal(self, schema: Any) -> str:
        """Why a JSON Schema is refused; empty if it is taken.  A grammar that allows nothing is refused too."""
        grammar = _grammar(Language.JSON_SCHEMA, schema)
        key = blake2b(grammar.encode(), digest_size=16).digest()
        known = self._refusals.get(key)
        if known is None:
            matcher = LLMatcher(self.byte_tokenizer, grammar, log_level=0)
            if not matcher.is_error():
                matcher.compute_bitmask()  # a schema that only refers to itself fails here and not before
                opened = matcher.deep_copy()
                opened.consume_tokens(opened.compute_ff_tokens())
                opened.compute_bitmask()  # and one that is too much for it behind its beginning
                matcher = opened if opened.is_error() else matcher
            known = self._refusals[key] = str(matcher.get_error())
            self._last = (grammar, matcher)
            if len(self._refusals) > REFUSALS_KEPT:
                self._refusals.popitem(last=False)
        return known

    def bytes_of(self, tokens: list[int]) -> bytes:
        return bytes(self.tokenizer.decode_bytes(tokens))

    def tokens_of(self, text: bytes) -> list[int]:
        """Tokens that spell a text and nothing else.

        Some tokenizers put a space before whatever they are given: then the text is given behind something, and at
        worst spelled byte by byte.
        """
        for before in TOKENIZED_BEHIND:
            tokens: list[int] = self.tokenizer.tokenize_bytes(before + text)
            if before:
                tokens = tokens[1:] if self.bytes_of(tokens[:1]).endswith(before) else []
            if self.bytes_of(tokens) == text:
                return tokens
        return [token for byte in text for token in self._byte_token(byte)]

    def _byte_token(self, byte: int) -> list[int]:
        if byte not in self._byte_tokens:
            tokens = self.tokenizer.tokenize_bytes(bytes((byte,)))
            self._byte_tokens[byte] = [token for token in tokens if self.bytes_of([token]) == bytes((byte,))]
        return self._byte_tokens[byte]


class CompiledSchema:
    """A grammar, the tokens that it forces before anything is drawn, and its shortest answer."""

    def __init__(self, engine: Engine, schema: Schema, document: str | None = None, *, closes: bool = True) -> None:
        source = grammar_source(schema, engine.refusal, document)
        self._bytes = engine.matcher(source, of_bytes=True)
        if schema.is_json and source.language is Language.LARK and self._bytes.is_error():
            source = grammar_source(schema, engine.refusal)  # without the document it may do
            self._bytes = engine.matcher(source, of_bytes=True)
        self.keywords: tuple[Keyword, ...] = source.keywords
        self._matcher = engine.matcher(source)
        self.opening: tuple[int, ...] = ()
        self.opening = tuple(self._opened(schema))
        self._said = engine.bytes_of(list(self.opening))
        is_valid = None if source.is_exact or not schema.is_json else partial(is_valid_text, schema, document)
        self.homes = Homes(engine, engine.byte_tokenizer.eos_token, source.hints, is_valid)
        self.home = self._found_home(closes)
        self.least_tokens = 0 if self.home is None else len(self.opening) + len(engine.tokens_of(self.home))

    def start(self) -> Row:
        if self.home is None:
            return Row(self._matcher.deep_copy())
        return BudgetedRow(self._matcher.deep_copy(), self.stand(), self.homes, self.home)

    def stand(self) -> Stand:
        """Where an answer stands after the opening."""
        return Stand(self._bytes.deep_copy(), self._said, is_json=self.homes.hints.is_json)

    def _opened(self, schema: Schema) -> list[int]:
        """Takes the forced beginning."""
        matcher = self._matcher
        if matcher.is_error():
            raise _not_supported(schema, matcher.get_error())
        opening: list[int] = matcher.compute_ff_tokens()
        if not matcher.consume_tokens(opening):
            raise _not_supported(schema, matcher.get_error())
        matcher.compute_bitmask()
        if matcher.is_error():
            raise _not_supported(schema, "no answer fits it")
        return opening

    def _found_home(self, closes: bool) -> bytes | None:
        """The shortest answer, less its opening; a valid one, if there is one among the shortest."""
        if not closes or self._bytes.is_error() or not self._bytes.consume_tokens(list(self._said)):
            return None
        stand = self.stand()
        home = self.homes.shortest(stand, FIRST_STEPS)
        return None if home is None else self.homes.valid(stand, home, len(home) + 16)


def _grammar(language: Language, content: Any) -> str:
    if language is Language.REGEX:
        return str(LLMatcher.grammar_from_regex(content))
    if language is Language.LARK:
        return str(LLMatcher.grammar_from_lark(content))
    content = {} if content is True else {"not": {}} if content is False else content
    return str(LLMatcher.grammar_from_json_schema(content, overrides={"whitespace_flexible": False}))


def _not_supported(schema: Schema, reason: str) -> JobError:
    message = f"schema {schema.name!r} cannot be enforced while decoding: {first_line(reason)}"
    return JobError(Problem("schema_not_supported", message))
