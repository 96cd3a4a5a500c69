"""Grammar state: what a schema forces, what it allows, and that no row ever gets the mask of another."""

import json
from collections.abc import Sequence
from typing import Any

import jsonschema
import numpy as np
import pytest
from building import TOKENIZER, engine, finish, limits, request, schema
from numpy.typing import NDArray

from batchrun import guide as guide_module
from batchrun.backends.fake import END_OF_TEXT, VOCAB, FakeBackend
from batchrun.core import Constraint, FinishReason, Language, Schema
from batchrun.errors import JobError
from batchrun.guide import CompiledSchema, Engine, Guide
from batchrun.guided_row import Row

PLENTY = 1000  # tokens of budget

PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}


@pytest.fixture
def guide() -> Guide:
    return Guide(TOKENIZER.for_guide(), VOCAB)


def started(guide: Guide, content: Any) -> Row:
    row = guide.compile(schema(content)).start()
    assert isinstance(row, Row)
    return row


def allowed(mask: NDArray[np.int32]) -> set[int]:
    return set(np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")[:VOCAB]).tolist())


def plainly(*rows: Constraint | None) -> list[tuple[Constraint | None, tuple[int, ...]]]:
    """Draws of rows that propose nothing."""
    return [(row, ()) for row in rows]


def say(row: Row, text: str) -> str:
    """Walks a row along a text, taking what it forces on the way; the text with what was forced behind it."""
    said = b""
    while len(said) < len(text.encode()):
        accepted = row.accept(text.encode()[len(said)], PLENTY)
        assert accepted.error is None
        said += bytes([text.encode()[len(said)], *accepted.forced])
    return said.decode()


# -- compiling


def test_a_schema_forces_its_opening_before_anything_is_drawn(guide: Guide) -> None:
    assert bytes(guide.compile(schema(PERSON)).opening) == b'{"name":"'


def test_a_schema_that_leaves_the_first_token_open_forces_nothing(guide: Guide) -> None:
    assert guide.compile(schema({"type": ["integer", "boolean"]})).opening == ()


def test_a_constant_is_its_own_opening_and_only_an_end_may_follow(guide: Guide) -> None:
    compiled = guide.compile(schema({"const": "yes"}))
    assert bytes(compiled.opening) == b'"yes"'
    masks = guide.masks(plainly(compiled.start()))
    assert masks is not None
    assert allowed(masks[0]) == {END_OF_TEXT}


@pytest.mark.parametrize("content", [True, {}])
def test_a_schema_that_allows_anything_still_allows_only_json(guide: Guide, content: Any) -> None:
    masks = guide.masks(plainly(started(guide, content)))
    assert masks is not None
    assert allowed(masks[0]) == set(b'"-0123456789[fnt{')


@pytest.mark.parametrize(
    ("content", "code", "path"),
    [
        ({"type": "integer", "minimum": 5, "maximum": 2}, "schema_unsatisfiable", ""),
        (
            {
                "properties": {"a": {"allOf": [{"type": "string"}, {"type": "null"}]}},
                "required": ["a"],
                "type": "object",
            },
            "schema_unsatisfiable",
            "/properties/a",
        ),
        (False, "schema_unsatisfiable", ""),
        ({"$ref": "#/$defs/missing"}, "schema_invalid", "/$ref"),
        ({"$ref": "https://example.org/schema.json"}, "schema_invalid", "/$ref"),
        ({"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}, "schema_unsatisfiable", ""),
    ],
)
def test_a_schema_that_nothing_fits_is_a_problem_of_its_job(guide: Guide, content: Any, code: str, path: str) -> None:
    with pytest.raises(JobError) as caught:
        guide.compile(schema(content, name="mine"))
    assert (caught.value.problem.code, caught.value.problem.path) == (code, path)
    assert "schema 'mine'" in caught.value.problem.message
    assert "\n" not in caught.value.problem.message


@pytest.mark.parametrize(
    ("language", "text"), [(Language.REGEX, "("), (Language.LARK, "start: missing"), (Language.LARK, "nonsense")]
)
def test_a_grammar_that_is_none_is_a_problem_of_its_job(guide: Guide, language: Language, text: str) -> None:
    written = Schema("mine", text, {"": text}, language)
    with pytest.raises(JobError) as caught:
        guide.compile(written)
    assert caught.value.problem.code == "schema_not_supported"
    assert caught.value.problem.message.startswith("schema 'mine' cannot be enforced while decoding: ")


@pytest.mark.parametrize("content", [{"type": "string", "pattern": "(?=x)"}, {"type": "array", "uniqueItems": True}])
def test_what_the_engine_cannot_enforce_is_left_to_the_check(guide: Guide, content: Any) -> None:
    assert guide.coverage(schema(content)).counts["checked"] == 1


def test_an_equal_schema_is_compiled_once(guide: Guide) -> None:
    assert guide.compile(schema(PERSON, "one")) is guide.compile(schema(PERSON, "another"))


def test_the_schema_that_was_used_longest_ago_leaves_the_cache_first(
    guide: Guide, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guide_module, "COMPILED_KEPT", 2)
    first, second, third = (schema({"const": number}) for number in range(3))
    kept, dropped = guide.compile(first), guide.compile(second)
    assert guide.compile(first) is kept
    guide.compile(third)
    assert guide.compile(first) is kept
    assert guide.compile(second) is not dropped


# -- walking


def test_a_drawn_token_brings_the_tokens_that_it_forces(guide: Guide) -> None:
    row = started(guide, PERSON)
    assert row.accept(ord("A"), PLENTY).forced == ()
    accepted = row.accept(ord('"'), PLENTY)
    assert bytes(accepted.forced) == b',"age":'
    assert not accepted.ended


def test_a_grammar_with_nothing_left_to_say_has_ended(guide: Guide) -> None:
    row = started(guide, PERSON)
    assert say(row, 'Ada","age":3') == 'Ada","age":3'
    assert row.accept(ord("}"), PLENTY).ended


def test_a_forced_end_ends_too(guide: Guide) -> None:
    row = started(guide, {"enum": ["abc", "abd"]})
    accepted = row.accept(ord("c"), PLENTY)
    assert (bytes(accepted.forced), accepted.ended) == (b'"', True)


def test_a_token_outside_of_the_grammar_is_an_error_in_one_line(guide: Guide) -> None:
    accepted = started(guide, PERSON).accept(ord("\n"), PLENTY)
    assert accepted.error
    assert accepted.error.startswith("token 10 is not in the grammar")
    assert "\n" not in accepted.error


def test_an_end_in_the_middle_is_an_error(guide: Guide) -> None:
    assert started(guide, PERSON).accept(END_OF_TEXT, PLENTY).error


def test_a_row_in_error_stays_in_error_whatever_it_is_told(guide: Guide) -> None:
    row = started(guide, PERSON)
    row.accept(ord("\n"), PLENTY)
    assert row.accept(ord("A"), PLENTY).error
    assert row.accept(END_OF_TEXT, PLENTY).error


def test_an_end_where_the_answer_is_complete_ends(guide: Guide) -> None:
    row = started(guide, {"type": "integer"})
    row.accept(ord("5"), PLENTY)
    accepted = row.accept(END_OF_TEXT, PLENTY)
    assert (accepted.forced, accepted.ended, accepted.error) == ((), True, None)


def test_no_white_space_is_allowed_between_json_tokens(guide: Guide) -> None:
    row = started(guide, {"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}})
    for token in b"1,2":
        masks = guide.masks(plainly(row))
        assert masks is not None
        assert not allowed(masks[0]) & set(b" \t\r\n")
        assert row.accept(token, PLENTY).error is None


def test_one_compiled_schema_starts_rows_that_know_nothing_of_each_other(guide: Guide) -> None:
    compiled = CompiledSchema(Engine(TOKENIZER.for_guide()), schema(PERSON))
    first, second, third = (compiled.start() for _ in range(3))
    say(first, 'Ada","age":1')
    say(second, "B")
    masks = guide.masks(plainly(first, second, third))
    assert masks is not None
    assert [ord("}") in allowed(mask) and ord("A") not in allowed(mask) for mask in masks] == [True, False, False]
    assert third.accept(ord('"'), PLENTY).forced == tuple(b',"age":')


# -- masks


def test_rows_without_a_grammar_need_no_masks(guide: Guide) -> None:
    assert guide.masks(plainly(None, None)) is None
    assert guide.masks([]) is None


def test_masks_are_words_of_32_tokens_that_span_the_vocabulary(guide: Guide) -> None:
    masks = guide.masks(plainly(None, started(guide, PERSON), None))
    assert masks is not None
    assert masks.shape == (3, (VOCAB + 31) // 32)
    assert masks.dtype == np.int32


def test_a_free_row_among_guided_ones_may_say_anything(guide: Guide) -> None:
    digits, letters = started(guide, {"type": "integer", "minimum": 1}), started(guide, {"enum": ["ab", "cd"]})
    masks = guide.masks(plainly(digits, None, letters, None))
    assert masks is not None
    assert allowed(masks[0]) == set(b"123456789")
    assert allowed(masks[2]) == set(b"ac")
    assert (masks[[1, 3]] == -1).all()


def test_a_mask_holds_nothing_of_the_call_before(guide: Guide) -> None:
    digits, letters = started(guide, {"type": "integer", "minimum": 1}), started(guide, {"enum": ["ab", "cd"]})
    orders = [[None, digits, letters], [letters, digits, None], [digits, letters], [letters], [None, None, letters]]
    expected = {id(digits): set(b"123456789"), id(letters): set(b"ac"), id(None): set(range(VOCAB))}
    for rows in orders:
        masks = guide.masks(plainly(*rows))
        assert masks is not None
        assert [allowed(mask) for mask in masks] == [expected[id(row)] for row in rows]


def test_masks_are_the_same_on_one_thread_and_on_many() -> None:
    one, many = (Guide(TOKENIZER.for_guide(), VOCAB, threads) for threads in (1, 4))
    rows = [started(one, {"enum": [f"{letter}x", f"{letter}y", "z"]}) for letter in "abcdefgh"]
    first = one.masks(plainly(*rows))
    assert first is not None
    assert np.array_equal(first, many.masks(plainly(*rows)))


# -- masks of proposals


def walked_masks(guide: Guide, content: Any, said: str, proposal: Sequence[int]) -> list[set[int]]:
    """What a row that said this allows behind each token of a proposal, one after the other."""
    row = started(guide, content)
    say(row, said)
    found = []
    for token in (*proposal, None):
        masks = guide.masks(plainly(row))
        assert masks is not None
        found.append(allowed(masks[0]))
        if token is not None:
            row.matcher.consume_token(token)
    return found


@pytest.mark.parametrize(
    ("content", "said", "proposal"),
    [
        (PERSON, "A", b'da","age":3'),
        ({"enum": ["abc", "abd"]}, "", b""),
        ({"type": "integer"}, "5", (ord("6"), END_OF_TEXT)),
        ({"type": "array", "items": {"type": "integer", "maximum": 9, "minimum": 0}}, "1,", b"2,3]"),
    ],
)
def test_the_masks_of_a_proposal_are_those_of_its_tokens_said_one_by_one(
    guide: Guide, content: Any, said: str, proposal: Sequence[int]
) -> None:
    wanted = walked_masks(guide, content, said, proposal)
    row = started(guide, content)
    say(row, said)
    assert row.allows(proposal) == len(proposal)
    masks = guide.masks([(row, proposal)])
    assert masks is not None
    compared = len(proposal) + (END_OF_TEXT not in tuple(proposal))  # nothing is drawn behind an end
    assert [allowed(mask) for mask in masks][:compared] == wanted[:compared]


def test_a_proposal_leaves_its_row_where_it_was(guide: Guide) -> None:
    row = started(guide, PERSON)
    before = walked_masks(guide, PERSON, "", ())
    assert row.allows(b'Ada","age":12') == len(b'Ada","age":12')
    guide.masks([(row, b'Ada","age":12')])
    masks = guide.masks(plainly(row))
    assert masks is not None
    assert [allowed(masks[0])] == before
    assert row.accept(ord("A"), PLENTY).error is None


def test_a_proposal_is_allowed_as_far_as_the_grammar_goes(guide: Guide) -> None:
    row = started(guide, PERSON)
    assert row.allows(b'Ada","age":x') == len(b'Ada","age":')
    assert row.allows(b"\n") == 0
    assert row.allows(b"") == 0
    assert row.allows([END_OF_TEXT]) == 0


def test_masks_of_proposals_stand_in_the_order_of_their_feeds(guide: Guide) -> None:
    digits, letters = started(guide, {"type": "integer", "minimum": 1}), started(guide, {"enum": ["ab", "cd"]})
    masks = guide.masks([(None, ()), (digits, b"12"), (None, b"xy"), (letters, ()), (letters, b"a")])
    assert masks is not None
    free = set(range(VOCAB))
    assert len(masks) == 1 + 3 + 3 + 1 + 2
    found = [allowed(mask) for mask in masks]
    assert found[0] == free
    assert found[1] == set(b"123456789")
    assert found[2] == found[3] == {*b"0123456789", END_OF_TEXT}
    assert found[4:7] == [free] * 3
    assert found[7:9] == [set(b"ac")] * 2
    assert found[9] == set(b"b")


def test_rows_without_a_grammar_need_no_masks_for_their_proposals(guide: Guide) -> None:
    assert guide.masks([(None, b"abc"), (None, ())]) is None


def test_masks_of_proposals_hold_nothing_of_the_call_before(guide: Guide) -> None:
    digits = started(guide, {"type": "integer", "minimum": 1})
    guide.masks([(digits, b"1" * 20), (None, b"x" * 20)])
    masks = guide.masks([(None, b"a"), (digits, b"1")])
    assert masks is not None
    free = set(range(VOCAB))
    assert [allowed(mask) for mask in masks] == [free, free, set(b"123456789"), {*b"0123456789", END_OF_TEXT}]


def test_masks_behind_an_end_in_a_proposal_allow_something(guide: Guide) -> None:
    """Nothing is drawn there that counts, but a draw from nothing is no draw."""
    row = started(guide, {"type": "array", "items": {"enum": ["yes", "no"]}, "minItems": 2, "maxItems": 3})
    proposal = [*b'yes","no"]', END_OF_TEXT]
    proposal = proposal[: row.allows(proposal)]
    masks = guide.masks([(row, proposal)])
    assert masks is not None
    assert all(allowed(mask) for mask in masks)


# -- the canary


def test_in_a_mixed_batch_every_answer_fits_its_own_schema_and_no_other(guide: Guide) -> None:
    contents = [
        {
            "type": "object",
            "properties": {f"field_{number}": {"enum": [f"{number}a", f"{number}b", f"{number}c"]}},
            "required": [f"field_{number}"],
            "additionalProperties": False,
        }
        for number in range(4)
    ]
    jobs = []
    for place in range(48):
        content = contents[place % 4] if place % 5 else None
        grammar = guide.compile(schema(content)) if content else None
        jobs.append((content, request(f"Question {place}.", 25, grammar=grammar)))
    mixed = engine(FakeBackend(limits(slots=7)), rows=6, guide=guide)
    mixed.submit([wanted for _, wanted in jobs])
    said = {completion.request: completion for completion in finish(mixed)}
    for own, wanted in jobs:
        if own is None:
            continue
        assert said[wanted].finish_reason is FinishReason.STOP
        answer = json.loads(said[wanted].text)
        assert [content for content in contents if jsonschema.Draft202012Validator(content).is_valid(answer)] == [own]
    free = [said[wanted].text for own, wanted in jobs if own is None]
    assert not any(text.startswith('{"field_') for text in free)
