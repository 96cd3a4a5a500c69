"""The shortest way to an end: a real one from every state, the shortest where that can be told, and quickly found."""

import json
import random
from typing import Any

import pytest
from building import TOKENIZER, schema
from hypothesis import given
from hypothesis import strategies as st
from schema_samples import SAMPLES

from batchrun.closing import ends
from batchrun.core import Language, Schema
from batchrun.guide import CompiledSchema, Engine
from batchrun.json_place import Place
from batchrun.way_home import Stand

ENGINE = Engine(TOKENIZER.for_guide())
ANSWERS = [
    (sample.schema, answer) for sample in SAMPLES for answer in sample.good if isinstance(answer, dict | list | str)
]


def stand_behind(content: Any, said: bytes) -> tuple[CompiledSchema, Stand]:
    """A grammar, and where one stands in it after some bytes."""
    grammar = CompiledSchema(ENGINE, schema(content))
    opening = bytes(grammar.opening)
    stand = grammar.stand()
    if len(said) < len(opening):
        stand.back(opening[len(said) :], Place().after(said))
    else:
        stand.move(said[len(opening) :])
    return grammar, stand


def shortest(content: Any, said: str = "") -> str | None:
    grammar, stand = stand_behind(content, said.encode())
    way = grammar.homes.shortest(stand)
    return None if way is None else way.decode()


REQUIRED = {
    "type": "object",
    "properties": {"a": {"type": "string"}, "b": {"type": "integer", "minimum": 10}, "c": {"type": "boolean"}},
    "required": ["a", "b"],
}


@pytest.mark.parametrize(
    ("said", "way"),
    [
        ("", '{"a":"","b":10}'),
        ('{"a":"x', '","b":10}'),
        ('{"a":"x\\', '"","b":10}'),
        ('{"a":"x","b":1', "0}"),
        ('{"a":"x","b":99', "}"),
        ('{"a":"x","b":99,"c":f', "alse}"),
        ('{"a":"x","b":99}', ""),
    ],
)
def test_the_shortest_way_is_told_from_every_state(said: str, way: str) -> None:
    found = shortest(REQUIRED, said)
    assert found is not None
    assert len(found) == len(way)
    assert set(json.loads(said + found)) >= {"a", "b"}


@pytest.mark.parametrize(
    ("content", "way"),
    [
        ({"enum": ["alpha", "be", "gamma"]}, '"be"'),
        ({"type": "array", "items": {"enum": [True, False]}, "minItems": 2}, "[true,true]"),
        ({"type": "string", "minLength": 7}, '"aaaaaaa"'),
        ({"type": "string", "pattern": "[0-9]{4}-[0-9]{2}"}, '"0000-00"'),
        ({"type": "string", "pattern": "^[A-Z_]+(_LEFT|_RIGHT)$"}, '"A_LEFT"'),
        ({"type": "string", "format": "date"}, '"0001-01-01"'),
        ({"anyOf": [{"type": "string", "minLength": 9}, {"type": "object", "required": ["x"]}]}, '{"x":0}'),
    ],
)
def test_the_shortest_answer_to_a_schema(content: Any, way: str) -> None:
    assert shortest(content) == way


def test_optional_properties_before_a_required_one_are_passed_by() -> None:
    names = [f"option_{number}" for number in range(30)]
    content = {"type": "object", "properties": dict.fromkeys(names, REQUIRED) | {"z": REQUIRED}, "required": ["z"]}
    assert shortest(content) == '{"z":{"a":"","b":10}}'


def test_a_long_row_of_required_properties_is_no_labyrinth() -> None:
    content = {
        "type": "object",
        "properties": {f"p{number}": {"type": ["boolean", "number", "null"]} for number in range(60)},
        "required": [f"p{number}" for number in range(60)],
    }
    way = shortest(content)
    assert way
    assert len(json.loads(way)) == 60


def test_a_tree_is_closed_and_not_grown() -> None:
    tree = {"$ref": "#/$defs/n", "$defs": {"n": {"type": "object", "properties": {"l": {"$ref": "#/$defs/n"}}}}}
    assert shortest(tree, '{"l":{"l":{"l":') == "{}}}}"


def test_a_state_without_an_end_has_no_way() -> None:
    content = {"type": "object", "properties": {"a": {"type": "string"}}, "additionalProperties": False}
    grammar, stand = stand_behind(content, b'{"a":"')
    assert not list(ends(stand.matcher, stand.place, grammar.homes.hints, most_bytes=1))


@pytest.mark.parametrize(
    ("language", "text", "way"),
    [
        (Language.REGEX, "0{3}-(ab|c)", "000-c"),
        (Language.LARK, 'start: "go" (" " WORD)+\nWORD: /[a-z]{2,5}/', "go aa"),
    ],
)
def test_expressions_and_grammars_have_shortest_answers_too(language: Language, text: str, way: str) -> None:
    grammar = CompiledSchema(ENGINE, Schema("mine", text, {"": text}, language))
    assert bytes(grammar.opening).decode() + (grammar.home or b"").decode() == way


@given(st.sampled_from(ANSWERS), st.randoms(use_true_random=False))
def test_there_is_a_way_home_from_within_every_good_answer(case: tuple[Any, Any], source: random.Random) -> None:
    content, answer = case
    text = json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()
    said = text[: source.randrange(len(text) + 1)]
    grammar, stand = stand_behind(content, said)
    before = stand.matcher.compute_bitmask()
    way = grammar.homes.shortest(stand)
    assert way is not None
    assert len(way) <= len(text) - len(said) or b"\\" in said
    assert grammar.homes.is_home(stand.matcher, way)
    assert stand.matcher.compute_bitmask() == before
    json.loads(said + way)
