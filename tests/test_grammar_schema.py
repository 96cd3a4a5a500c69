"""The closest schema: it admits what the schema does, refuses what it can, and says of each keyword which it is."""

import json
from typing import Any

import pytest
from building import TOKENIZER, schema
from hypothesis import given
from hypothesis import strategies as st
from schema_samples import SAMPLES, UNSATISFIABLE, Sample

from batchrun.errors import JobError
from batchrun.guide import CompiledSchema, Engine
from batchrun.keywords import Coverage, Treatment
from batchrun.schema_folders import SchemaFolders
from batchrun.schemas import validate

ENGINE = Engine(TOKENIZER.for_guide())
NAMES = [sample.name for sample in SAMPLES]


def compiled(content: Any) -> CompiledSchema:
    return CompiledSchema(ENGINE, schema(content))


def spells(grammar: CompiledSchema, answer: Any) -> bool:
    """Whether the guide lets an answer through, told token by token."""
    row, said = grammar.start(), [*json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode()]
    if said[: len(grammar.opening)] != list(grammar.opening):
        return False
    matcher = row.matcher
    return bool(matcher.consume_tokens(said[len(grammar.opening) :]) and matcher.is_accepting())


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_the_samples_are_what_they_are_said_to_be(sample: Sample) -> None:
    checked = SchemaFolders([], []).load(sample.schema)
    assert not [answer for answer in sample.good if validate(checked, answer)]
    assert not [answer for answer in sample.bad if not validate(checked, answer)]


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_every_good_answer_can_be_spelled(sample: Sample) -> None:
    grammar = compiled(sample.schema)
    assert not [answer for answer in sample.good if not spells(grammar, answer)]


@pytest.mark.parametrize("sample", [sample for sample in SAMPLES if not sample.late], ids=lambda sample: sample.name)
def test_no_bad_answer_can_be_spelled_where_all_keywords_are_enforced(sample: Sample) -> None:
    grammar = compiled(sample.schema)
    assert not [answer for answer in sample.bad if spells(grammar, answer)]


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_a_keyword_is_left_to_the_check_only_where_it_has_to_be(sample: Sample) -> None:
    late = {keyword.name for keyword in compiled(sample.schema).keywords if keyword.treatment is Treatment.CHECKED}
    assert late == sample.late


@pytest.mark.parametrize("sample", SAMPLES, ids=NAMES)
def test_the_shortest_answer_is_found_and_valid(sample: Sample) -> None:
    grammar = compiled(sample.schema)
    assert grammar.least_tokens
    shortest = json.loads(bytes(grammar.opening) + grammar.home)
    assert not validate(SchemaFolders([], []).load(sample.schema), shortest)
    assert grammar.least_tokens <= min(
        len(json.dumps(answer, separators=(",", ":")).encode()) for answer in sample.good
    )


@pytest.mark.parametrize(("name", "content", "place"), UNSATISFIABLE, ids=[name for name, _, _ in UNSATISFIABLE])
def test_what_nothing_can_satisfy_is_refused_with_the_place_of_the_reason(name: str, content: Any, place: str) -> None:
    with pytest.raises(JobError) as caught:
        compiled(content)
    assert (caught.value.problem.code, caught.value.problem.path) == ("schema_unsatisfiable", place), name


def test_definitions_that_demand_each_other_in_many_ways_are_refused_in_time() -> None:
    names = [f"n{number}" for number in range(20)]
    ways = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names]}
    defs = {name: {"type": "object", "properties": {"a": ways}, "required": ["a"]} for name in names}
    with pytest.raises(JobError, match="it demands itself without end"):
        compiled({"$ref": "#/$defs/n0", "$defs": defs})


def test_a_property_called_like_a_keyword_that_nothing_fits_is_left_out() -> None:
    never = {"type": "object", "properties": {"enum": {"$ref": "#/$defs/n"}}, "required": ["enum"]}
    content = never | {"required": [], "additionalProperties": False, "$defs": {"n": never}}
    assert bytes(compiled(content).opening) == b"{}"


# -- keywords


def treatments(content: Any) -> dict[str, str]:
    return {
        f"{keyword.place} {keyword.name}".strip(): keyword.treatment.value for keyword in compiled(content).keywords
    }


def test_every_keyword_is_named_with_its_place() -> None:
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "T",
        "type": "object",
        "properties": {"a/b": {"type": "array", "uniqueItems": True, "description": "d"}},
        "x-mine": 1,
    }
    assert treatments(content) == {
        "$schema": "annotation",
        "title": "annotation",
        "type": "enforced",
        "properties": "enforced",
        "/properties/a~1b type": "enforced",
        "/properties/a~1b uniqueItems": "checked",
        "/properties/a~1b description": "annotation",
        "x-mine": "annotation",
    }


def test_keywords_behind_a_reference_are_named_where_they_stand() -> None:
    content = {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}, "unused": {"not": {}}}}
    assert treatments(content) == {"$ref": "enforced", "/$defs/a type": "enforced"}


def test_what_a_draft_ignores_is_an_annotation() -> None:
    content = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "definitions": {"a": {}},
        "$ref": "#/definitions/a",
        "type": "null",
    }
    assert treatments(content)["type"] == "annotation"


def test_the_coverage_of_a_schema_is_told_in_lines() -> None:
    content = {"type": "array", "uniqueItems": True, "title": "t"}
    lines = Coverage("mine", compiled(content).keywords, 2).lines()
    assert lines[0].startswith("mine: 1 keywords enforced while decoding, 1 checked after it, 1 annotations; ")
    assert lines[1] == "  checked after decoding: uniqueItems at /"


# -- any schema at all


def _schemas() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(
        [
            True,
            {"type": "string", "maxLength": 3},
            {"type": "integer", "minimum": 0, "maximum": 20},
            {"enum": ["a", "b", 1]},
            {"const": None},
            {"type": "boolean"},
            {"pattern": "^[ab]*$", "type": "string"},
        ]
    )

    def grown(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        names = st.sampled_from(["a", "b", "c"])
        several = st.lists(inner, min_size=1, max_size=3)
        return st.one_of(
            st.builds(
                lambda properties, required, closed: {
                    "type": "object",
                    "properties": properties,
                    "required": sorted(required),
                    "additionalProperties": not closed,
                },
                st.dictionaries(names, inner, max_size=3),
                st.sets(names, max_size=2),
                st.booleans(),
            ),
            st.builds(
                lambda items, least: {"type": "array", "items": items, "minItems": least}, inner, st.integers(0, 2)
            ),
            several.map(lambda parts: {"anyOf": parts}),
            several.map(lambda parts: {"oneOf": parts}),
            several.map(lambda parts: {"allOf": parts}),
            inner.map(lambda part: {"not": part}),
            st.builds(lambda one, two, three: {"if": one, "then": two, "else": three}, inner, inner, inner),
            st.builds(lambda name, part: {"type": "object", "dependentSchemas": {name: part}}, names, inner),
        )

    return st.recursive(leaves, grown, max_leaves=6)


def _answers() -> st.SearchStrategy[Any]:
    leaves = st.sampled_from(["a", "", "abc", 0, 1, 7, 30, True, None])
    return st.recursive(
        leaves,
        lambda inner: st.one_of(
            st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=2)
        ),
        max_leaves=4,
    )


@given(_schemas(), st.lists(_answers(), max_size=6))
def test_a_valid_answer_can_always_be_spelled_in_some_order_of_its_properties(content: Any, answers: list[Any]) -> None:
    checked = SchemaFolders([], []).load(content)
    valid = [answer for answer in answers if not validate(checked, answer)]
    grammar = compiled_or_none(content)
    assert grammar or not valid
    for answer in valid if grammar else []:
        assert any(spells(grammar, ordered) for ordered in orders(answer)), answer


def compiled_or_none(content: Any) -> CompiledSchema | None:
    """None where nothing can satisfy a schema."""
    try:
        return compiled(content)
    except JobError as error:
        if error.problem.code != "schema_unsatisfiable":
            raise
        return None


def orders(answer: Any) -> list[Any]:
    """An answer with its properties in all orders."""
    if isinstance(answer, list):
        found: list[Any] = [[]]
        for part in answer:
            found = [[*before, one] for before in found for one in orders(part)]
        return found
    if not isinstance(answer, dict):
        return [answer]
    if not answer:
        return [{}]
    found = []
    for name, value in answer.items():
        rest = {other: part for other, part in answer.items() if other != name}
        found += [{name: one, **after} for one in orders(value) for after in orders(rest)]
    return found
