"""A row under a grammar and a budget: whatever a model wants to say, the answer is whole before the budget ends."""

import json
import random
from typing import Any

import numpy as np
import pytest
from building import GUIDE, schema
from hypothesis import given
from hypothesis import strategies as st
from schema_samples import SAMPLES, Sample

from batchrun.backends.fake import END_OF_TEXT
from batchrun.core import Closed, Language, Schema
from batchrun.guide import CompiledSchema
from batchrun.guided_row import Row
from batchrun.runaway import WINDOW_TOKENS
from batchrun.schemas import validate

WORDY = schema(
    {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
)
DIGITS = schema({"type": "array", "items": {"type": "number"}})


def walked(grammar: CompiledSchema, budget: int, source: random.Random) -> tuple[bytes, set[Closed], bool]:
    """An answer of draws at random among what the masks allow, why it was closed, and whether it ended by itself."""
    row, said, closed = grammar.start(), list(grammar.opening), set()
    while len(said) <= budget:
        masks = GUIDE.masks([(row, ())])
        assert masks is not None
        allowed = np.flatnonzero(np.unpackbits(masks[0].view(np.uint8), bitorder="little"))
        token = int(source.choice(allowed))
        accepted = row.accept(token, budget - len(said))
        assert not accepted.error
        closed |= accepted.closed
        said += ([] if accepted.dropped or token == END_OF_TEXT else [token]) + list(accepted.forced)
        if accepted.ended or token == END_OF_TEXT:
            return bytes(said), closed, True
    return bytes(said), closed, False


@given(st.sampled_from(SAMPLES), st.integers(0, 60), st.randoms(use_true_random=False))
def test_an_answer_is_whole_within_every_budget_that_holds_the_shortest(
    sample: Sample, more: int, source: random.Random
) -> None:
    wanted = schema(sample.schema)
    grammar = GUIDE.compile(wanted)
    budget = grammar.least_tokens + more
    said, closed, ended = walked(grammar, budget, source)
    assert ended
    assert len(said) <= budget
    value = json.loads(said)
    if not sample.late:
        assert not validate(wanted, value)
    if more == 0:
        assert closed or said == bytes(grammar.opening) + (grammar.home or b"")


@pytest.mark.parametrize("text", ["[a-z]{3}-[0-9]+", "(yes|no)", ".*"])
def test_an_expression_is_closed_within_its_budget_too(text: str) -> None:
    wanted = Schema("mine", json.dumps({"regex": text}), {"regex": text}, Language.REGEX)
    grammar = GUIDE.compile(wanted)
    for seed in range(10):
        said, _, ended = walked(grammar, grammar.least_tokens + seed, random.Random(seed))
        assert ended
        assert len(said) <= grammar.least_tokens + seed


def say(row: Any, text: str, left: int) -> tuple[str, list[Any]]:
    """Says a text token by token: what came of it, and what was answered."""
    said, answers = "", []
    for char in text.encode():
        accepted = row.accept(char, left - len(said))
        said += ("" if accepted.dropped else chr(char)) + bytes(accepted.forced).decode()
        answers.append(accepted)
        if accepted.ended or accepted.closed:
            break
    return said, answers


def test_a_token_that_leaves_no_room_to_close_does_not_stand() -> None:
    grammar = GUIDE.compile(WORDY)
    left = len('x","b":0}') + 1
    said, answers = say(grammar.start(), "xyz", left)
    assert answers[-1].closed == {Closed.BUDGET}
    assert said.startswith("xy")
    assert len(said) <= left


def led_home() -> Row:
    """A row that has no room for more of its first string: what is left to choose is a digit."""
    content = {**WORDY.content, "properties": {"a": {"type": "string"}, "b": {"enum": [*range(10)]}}}
    row = GUIDE.compile(schema(content)).start()
    said, answers = say(row, "xyz", len('x","b":0}') + 1)
    assert (said, answers[-1].closed) == ('xy","b":', {Closed.BUDGET})
    return row


def test_where_several_ways_are_as_short_the_model_chooses() -> None:
    row = led_home()
    masks = GUIDE.masks([(row, ())])
    assert masks is not None
    allowed = np.flatnonzero(np.unpackbits(masks[0].view(np.uint8), bitorder="little"))
    assert set(allowed) == set(row.ways) == set(b"0123456789")
    accepted = row.accept(ord("7"), 2)
    assert (bytes(accepted.forced), accepted.ended) == (b"}", True)


def test_the_same_few_tokens_again_and_again_end_their_string_and_the_answer_goes_on() -> None:
    grammar = GUIDE.compile(WORDY)
    row = grammar.start()
    said, answers = say(row, "ab" * 200, 1000)
    assert answers[-1].closed == {Closed.RUNAWAY}
    assert not answers[-1].ended
    assert len(said) <= 2 * WINDOW_TOKENS
    assert said.endswith('","b":')
    assert row.accept(ord("7"), 900).error is None


def test_a_number_without_end_is_ended() -> None:
    row = GUIDE.compile(DIGITS).start()
    said, answers = say(row, "1" + "0123456789" * 50, 1000)
    assert answers[-1].closed == {Closed.RUNAWAY}
    assert len(said) < 60


def test_an_answer_that_runs_away_again_is_closed() -> None:
    row = GUIDE.compile(schema({"type": "array", "items": {"type": "string"}})).start()
    first, _ = say(row, '"' + "ab" * 200, 1000)
    assert first.endswith('"')
    second, answers = say(row, "," + "cd" * 200, 900)
    assert answers[-1].closed == {Closed.RUNAWAY}
    assert answers[-1].ended
    assert len(json.loads("[" + first + second)) == 2


def test_a_row_that_is_led_home_takes_no_proposal() -> None:
    row = led_home()
    assert row.matcher.validate_tokens(list(b"7}")) == 2
    assert row.allows(b"7}") == 0
