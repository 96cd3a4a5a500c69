"""Schemas are found, checked and obeyed; nothing is ever fetched, and nothing that comes in stops a run."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core import Problem, Schema
from batchrun.errors import JobError
from batchrun.schema_folders import SchemaFolders
from batchrun.schema_walk import pointer
from batchrun.schemas import MOST_NESTED, PROBLEMS_SHOWN, is_too_deep, validate


def load(value: Any, folder: Path = Path("/nowhere")) -> Schema:
    return SchemaFolders([folder], [folder]).load(value)


def problems(content: Any, answer: Any) -> list[Problem]:
    return validate(load(content), answer)


def refusal(value: Any, folder: Path = Path("/nowhere")) -> Problem:
    with pytest.raises(JobError) as caught:
        load(value, folder)
    return caught.value.problem


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a socket was opened")

    monkeypatch.setattr(socket, "socket", refuse)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


# -- drafts


def test_the_draft_is_the_one_that_the_schema_names() -> None:
    in_draft_4 = {"$schema": "http://json-schema.org/draft-04/schema#", "exclusiveMinimum": True, "minimum": 1}
    assert problems(in_draft_4, 1)
    assert refusal({"exclusiveMinimum": True}).code == "schema_invalid"
    in_draft_7 = {"$schema": "http://json-schema.org/draft-07/schema", "items": [{"type": "string"}]}
    assert problems(in_draft_7, [1])
    assert refusal({"items": [{"type": "string"}]}).path == "/items"


def test_a_schema_that_names_no_draft_is_of_2020_12() -> None:
    assert problems({"prefixItems": [{"type": "string"}]}, [1])


@pytest.mark.parametrize("draft", [5, [], {}, None, True, "http://[bad", "no uri"])
def test_a_draft_that_is_none_is_refused(draft: Any) -> None:
    assert refusal({"$schema": draft}).code == "schema_invalid"


# -- formats


@pytest.mark.parametrize(
    ("name", "good", "bad"),
    [
        ("date", "2024-02-29", "2023-02-29"),
        ("time", "23:59:59Z", "25:00:00Z"),
        ("date-time", "2024-02-29T12:00:00+01:00", "2024-02-30T12:00:00Z"),
        ("duration", "P1DT2H", "P"),
        ("email", "a@b.c", "a.b.c"),
        ("hostname", "example.org", "-.org"),
        ("ipv4", "127.0.0.1", "256.0.0.1"),
        ("ipv6", "::1", ":::1"),
        ("uri", "https://example.org/a?b", "example.org"),
        ("uri-reference", "../a", "a b"),
        ("iri", "https://例え.jp/ä?ö#ü", "//例え.jp"),
        ("iri-reference", "../ä", "ä b"),
        ("uuid", "123e4567-e89b-12d3-a456-426614174000", "123e4567"),
        ("json-pointer", "/a~1b", "a"),
        ("regex", "^a+$", "("),
    ],
)
def test_formats_are_checked(name: str, good: str, bad: str) -> None:
    assert problems({"format": name}, good) == []
    assert problems({"format": name}, bad)
    assert problems({"format": name}, 5) == []


@given(st.text(max_size=12), st.sampled_from(["date", "duration", "regex", "relative-json-pointer", "idn-hostname"]))
def test_a_format_check_never_breaks(text: str, name: str) -> None:
    assert isinstance(problems({"format": name}, text), list)


# -- references


@pytest.mark.usefixtures("no_network")
@pytest.mark.parametrize("reference", ["http://example.org/a.json", "https://example.org/#x", "file:///etc/passwd"])
def test_a_reference_to_elsewhere_is_a_problem_and_no_request(reference: str) -> None:
    found = problems({"$ref": reference}, 1)
    assert [problem.code for problem in found] == ["schema"]
    assert "not in it" in found[0].message


@pytest.mark.usefixtures("no_network")
def test_a_published_draft_may_be_referred_to() -> None:
    draft = "https://json-schema.org/draft/2020-12/schema"
    assert problems({"$ref": draft}, {"type": "object"}) == []
    assert problems({"$ref": draft}, {"type": 5})


def test_references_inside_a_schema_are_followed() -> None:
    content = {"$defs": {"n": {"$id": "http://x.example/n", "type": "integer"}}, "$ref": "http://x.example/n"}
    assert problems(content, 1) == []
    assert problems(content, "1")


@pytest.mark.parametrize("reference", ["#/nowhere", "#anchor", "other"])
def test_a_reference_to_nothing_is_a_problem(reference: str) -> None:
    assert problems({"$ref": reference}, 1)


def test_a_schema_that_refers_to_itself_without_end_is_a_problem() -> None:
    assert "without end" in problems({"$ref": "#"}, 1)[0].message


def test_an_answer_as_deep_as_may_be_can_be_checked() -> None:
    answer: Any = 1
    for _ in range(MOST_NESTED):
        answer = {"next": answer}
    node = {"anyOf": [{"type": "integer"}, {"properties": {"next": {"$ref": "#/$defs/node"}}}]}
    assert problems({"$ref": "#/$defs/node", "$defs": {"node": node}}, answer) == []
    assert not is_too_deep(answer)
    assert is_too_deep([answer])


# -- problems


def test_a_problem_names_its_place_as_a_pointer() -> None:
    content = {"properties": {"a/b~c": {"items": {"type": "integer"}}}}
    assert problems(content, {"a/b~c": [1, "x"]})[0].path == "/a~1b~0c/1"


def test_pointers_escape_what_they_must() -> None:
    assert pointer([]) == ""
    assert pointer(["a/b", "~1", 0, ""]) == "/a~1b/~01/0/"


def test_at_most_eight_problems_are_shown() -> None:
    assert PROBLEMS_SHOWN == 8
    assert len(problems({"items": {"type": "string"}}, list(range(100)))) == 8
    assert len(problems({"items": {"type": "string"}}, list(range(3)))) == 3


def test_a_huge_answer_does_not_fill_the_message() -> None:
    assert len(problems({"type": "integer"}, "x" * 100_000)[0].message) < 400


@pytest.mark.parametrize(
    ("content", "answer"), [({"multipleOf": 0.1}, 10**400), ({"format": "regex"}, "a{99999999999999999999}")]
)
def test_a_check_that_breaks_is_a_problem(content: Any, answer: Any) -> None:
    assert problems(content, answer)


# -- schemas that are none


@pytest.mark.parametrize(
    "content",
    [
        {"type": "strin"},
        {"pattern": "["},
        {"pattern": "a{99999999999999999999}"},
        {"pattern": "(" * 5000},
        {"minLength": -1},
        {"$ref": "http://[bad"},
        {"$id": 5},
        {"required": "a"},
    ],
)
def test_an_invalid_schema_is_refused(content: Any) -> None:
    assert refusal(content).code == "schema_invalid"


def test_a_schema_nested_too_deeply_is_refused() -> None:
    content: Any = {}
    for _ in range(MOST_NESTED):
        content = {"not": content}
    assert "100 levels" in refusal(content).message


@pytest.mark.parametrize("text", ["", "{", "[]", "5", '"text"', "null", r'{"const":"\ud800"}', '{"const":1e999}'])
def test_a_file_that_holds_no_schema_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    problem = refusal("bad", tmp_path)
    assert problem.code == "schema_invalid"
    assert "'bad'" in problem.message


@pytest.mark.parametrize("data", [b"\xff\xfe", b"[" * 100_000])
def test_a_file_of_odd_bytes_is_refused(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "bad.json").write_bytes(data)
    assert refusal("bad", tmp_path).code == "schema_invalid"


def test_a_folder_in_place_of_a_file_is_no_schema(tmp_path: Path) -> None:
    (tmp_path / "bad.json").mkdir()
    assert refusal("bad", tmp_path).code == "schema_unknown"


# -- finding


def test_a_name_leads_to_a_file_and_a_path_to_itself(tmp_path: Path) -> None:
    (tmp_path / "contact.json").write_text('{"type": "object"}', encoding="utf-8-sig")
    assert load("contact", tmp_path) == load("contact.json", tmp_path) == load({"type": "object"})


def test_the_first_folder_that_has_a_name_wins(tmp_path: Path) -> None:
    for folder, kind in (("a", "string"), ("b", "integer")):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.json").write_text(json.dumps({"type": kind}))
    folders = SchemaFolders([tmp_path / "missing", tmp_path / "b", tmp_path / "a"], [])
    assert folders.load("x").content == {"type": "integer"}


def test_equal_schemas_are_equal_whatever_their_names(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"type" : "object"}')
    assert load("a", tmp_path) == load({"type": "object"})
    assert load({"a": 1, "b": 2}) != load({"b": 2, "a": 1})  # the order of keys is the order of the answer


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=4) | st.just("string") | st.just("#"),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(
                st.sampled_from(
                    ["type", "$ref", "$id", "$schema", "$defs", "properties", "items", "pattern", "not", "x"]
                ),
                inner,
                max_size=4,
            )
        ),
        max_leaves=8,
    ).filter(lambda content: isinstance(content, dict | bool)),
    st.none() | st.integers() | st.text(max_size=4) | st.dictionaries(st.just("x"), st.integers()),
)
def test_any_schema_is_refused_or_obeyed(content: Any, answer: Any) -> None:
    try:
        schema = load(content)
    except JobError:
        return
    assert isinstance(validate(schema, answer), list)
