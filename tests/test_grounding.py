"""Verbatim strings: found whatever their white space and Unicode form, spelled from the document, refused otherwise."""

from dataclasses import replace
from typing import Any

import pytest
from building import GUIDE, TOKENIZER
from hypothesis import given
from hypothesis import strategies as st
from test_prompts import JOB, PREPARER
from test_retries import ended

from batchrun.core import Quote, Schema, Status
from batchrun.errors import JobError
from batchrun.grammar_source import GrammarSource
from batchrun.grounding import Document, normalised
from batchrun.guide import CompiledSchema, Engine
from batchrun.schemas import checked, compact, quotes, validate

TEXT = 'Dear \u201cSir\u201d,\n\nI paid  \ufb01ve\u00a0euros (cafe\u0301) to "Bob".'
VERBATIM = {"type": "string", "x-verbatim": True}


def grounded(content: Any) -> Schema:
    return checked("mine", compact("mine", content))


QUOTING = grounded({"type": "object", "properties": {"q": VERBATIM}, "required": ["q"], "additionalProperties": False})


@pytest.mark.parametrize("value", ["paid five euros", "I paid", "café", "cafe\u0301", 'to "Bob"', "\u201cSir\u201d, I"])
def test_a_quote_is_found_whatever_its_white_space_and_form(value: str) -> None:
    place = Document(TEXT).find(value)
    assert place is not None
    assert Document(TEXT[slice(*place)]).find(value)


@pytest.mark.parametrize("value", ["paid six", "euros  x", "Sir,"])
def test_what_does_not_stand_there_is_not_found(value: str) -> None:
    assert Document(TEXT).find(value) is None


@given(st.text(st.sampled_from("ab \n\u00a0\u0301\ufb01\u1100\u1161\uac00") | st.characters(), min_size=1), st.data())
def test_every_part_of_a_document_is_found_in_it(text: str, data: st.DataObject) -> None:
    pieces = Document(text).pieces  # a part does not begin or end between a letter and its accent
    first = data.draw(st.integers(0, len(pieces) - 1))
    last = data.draw(st.integers(first, len(pieces) - 1))
    part = text[pieces[first][1] : pieces[last][2]]
    place = Document(text).find(part)
    assert place is not None
    assert normalised(part) in normalised(text[slice(*place)])


def spells(content: Schema, text: str, answer: str) -> bool:
    grammar = GUIDE.compile(content, text)
    row, rest = grammar.start(), answer.encode()[len(grammar.opening) :]
    return row.allows(rest) == len(rest)


def test_the_guide_spells_parts_of_the_document_and_nothing_else() -> None:
    assert spells(QUOTING, TEXT, '{"q":"paid five"')
    assert spells(QUOTING, TEXT, '{"q":"to \\"Bob\\""')
    assert not spells(QUOTING, TEXT, '{"q":"paid six')


def late(content: Any) -> set[tuple[str, str]]:
    """The keywords that are left to the check, with their places."""
    return {(keyword.place, keyword.name) for keyword in GUIDE.coverage(grounded(content), TEXT).late}


MAP = {"type": "object", "additionalProperties": VERBATIM}


@pytest.mark.parametrize(
    "content",
    [
        MAP,
        MAP | {"properties": {"a": {"type": "integer"}}},
        {"type": "array", "prefixItems": [VERBATIM]},
        {"type": ["string", "array"], "prefixItems": [{"type": "integer"}], "items": VERBATIM},
    ],
)
def test_where_the_guide_cannot_follow_the_demand_is_left_to_the_check(content: Any) -> None:
    assert {name for _, name in late(content)} == {"x-verbatim"}


def test_what_stands_inside_of_values_of_another_kind_is_followed() -> None:
    content = {"type": ["array", "object"], "items": VERBATIM, "properties": {"enum": VERBATIM}, "required": ["enum"]}
    assert late(content) == set()
    for answer in ('["paid"]', '{"enum":"paid"}'):
        assert spells(grounded(content), TEXT, answer)
    for answer in ('["six', '{"enum":"six'):
        assert not spells(grounded(content), TEXT, answer)


@pytest.mark.parametrize("beside", [{"$ref": "#/$defs/q"}, {"allOf": [{"$ref": "#/$defs/q"}]}, {"anyOf": [VERBATIM]}])
def test_a_demand_beside_listed_values_is_left_to_the_check(beside: dict[str, Any]) -> None:
    content = {"properties": {"a": {"enum": ["six"]} | beside}, "$defs": {"q": VERBATIM}}
    assert ("/properties/a", next(iter(beside))) in late(content)


def test_a_document_is_made_a_grammar_of_once_for_tokens_and_once_for_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[bool] = []
    matcher = Engine.matcher

    def counted(own: Engine, source: GrammarSource, *, of_bytes: bool = False) -> Any:
        made.append(of_bytes)
        return matcher(own, source, of_bytes=of_bytes)

    monkeypatch.setattr(Engine, "matcher", counted)
    CompiledSchema(Engine(TOKENIZER.for_guide()), QUOTING, TEXT)
    assert sorted(made) == [False, True]


def test_an_answer_names_the_places_of_its_quotes() -> None:
    asked = replace(PREPARER.prepare(replace(JOB, document=TEXT, schema=QUOTING), "", 0.0))
    _, result = ended(asked, '{"q":"paid five euros"}')
    (quote,) = result.verbatim
    assert result.status is Status.OK
    assert quote.path == "/q"
    assert TEXT[quote.start : quote.end] == "paid  \ufb01ve\u00a0euros"


def test_a_quote_that_stands_nowhere_is_invalid() -> None:
    _, result = ended(PREPARER.prepare(replace(JOB, document=TEXT, schema=QUOTING), "", 0.0), '{"q":"six"}')
    assert (result.status, result.errors[0].code, result.errors[0].path) == (Status.INVALID, "not_in_document", "/q")
    assert "not in document" in result.errors[0].message
    assert result.verbatim == ()


def test_verbatim_strings_behind_lists_and_references_have_places_too() -> None:
    content = {"type": "array", "items": {"$ref": "#/$defs/t"}, "$defs": {"t": {"anyOf": [VERBATIM, {"type": "null"}]}}}
    _, result = ended(PREPARER.prepare(replace(JOB, document="a b", schema=grounded(content)), "", 0.0), '["b",null]')
    assert result.status is Status.OK
    assert result.verbatim == (Quote("/0", 2, 3),)


def test_definitions_that_lead_to_each_other_in_many_ways_are_written_in_time() -> None:
    names = [f"n{number}" for number in range(40)]
    item = {"anyOf": [{"$ref": f"#/$defs/{name}"} for name in names] + [{"type": "null"}]}
    defs = {name: {"type": "array", "items": item} for name in names}
    content = {"properties": {"q": VERBATIM, "n": {"$ref": "#/$defs/n0"}}, "type": "object", "required": ["q"]}
    assert spells(grounded(content | {"$defs": defs}), TEXT, '{"q":"paid"')


def test_a_job_without_a_document_cannot_be_grounded() -> None:
    with pytest.raises(JobError, match="wants text that stands in the document"):
        PREPARER.prepare(replace(JOB, document=None, schema=QUOTING), "", 0.0)


@pytest.mark.parametrize(
    "content",
    [
        {"properties": {"x-verbatim": {"type": "string"}}},
        {"properties": {"x-verbatim": True}},
        {"const": {"x-verbatim": True}},
        {"enum": [{"x-verbatim": 1}]},
        {"default": {"x-verbatim": "yes"}, "examples": [{"type": "integer", "x-verbatim": True}]},
    ],
)
def test_a_property_or_a_value_of_that_name_demands_nothing(content: Any) -> None:
    assert not grounded(content).is_grounded


def test_a_demand_in_a_property_called_like_a_keyword_is_one() -> None:
    assert grounded({"properties": {"default": VERBATIM}}).is_grounded


DRAFTS = ["http://json-schema.org/draft-04/schema#", "http://json-schema.org/draft-07/schema#"]


@pytest.mark.parametrize("draft", [*DRAFTS, "https://json-schema.org/draft/2020-12/schema"])
@pytest.mark.parametrize("own", [*DRAFTS, "https://json-schema.org/draft/2019-09/schema"])
def test_a_demand_holds_below_a_subschema_that_names_a_draft(draft: str, own: str) -> None:
    inner = {"$schema": own, "properties": {"q": VERBATIM | {"format": "email"}}}
    content = grounded({"$schema": draft, "properties": {"a": inner}})
    assert not validate(content, {"a": {"q": "b@c.d"}}, "a b@c.d")
    (problem,) = validate(content, {"a": {"q": "x@c.d"}}, "a b@c.d")
    assert (problem.code, problem.path) == ("not_in_document", "/a/q")
    assert [error.code for error in validate(content, {"a": {"q": "b"}}, "a b@c.d")] == ["schema"]
    assert quotes(content, {"a": {"q": "b@c.d"}}, "a b@c.d") == (Quote("/a/q", 2, 7),)


@pytest.mark.parametrize(
    "part", [{"pattern": "^(a+)+$"}, {"$ref": "#/nowhere"}, {"$ref": "#"}, {"multipleOf": 0.1}], ids=str
)
def test_quotes_of_what_cannot_be_checked_are_none(part: dict[str, Any]) -> None:
    content = grounded({"anyOf": [VERBATIM, {}], "allOf": [part]})
    value: Any = 10**400 if "multipleOf" in part else "a" * 40 + "b"
    assert quotes(content, value, "a" * 50) == ()


@pytest.mark.parametrize(
    "part", [{"type": "integer", "x-verbatim": True}, {"type": "string", "x-verbatim": "yes"}, {"x-verbatim": 1}]
)
def test_a_demand_that_means_nothing_is_refused_with_its_place(part: dict[str, Any]) -> None:
    with pytest.raises(JobError, match=r"x-verbatim at /properties/a/x-verbatim; expected true or false, at a string"):
        checked("s", compact("s", {"properties": {"a": part}}))


def test_the_place_of_a_demand_is_a_json_pointer() -> None:
    with pytest.raises(JobError, match=r"x-verbatim at /properties/a~1b~0c/x-verbatim; expected"):
        checked("s", compact("s", {"properties": {"a/b~c": {"x-verbatim": 1}}}))
