"""A line becomes a job, or a rejection that says code, line, column and what was expected."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core import Defaults, Job, Message, Rejection, Sampling
from batchrun.jobs import FIELDS, JobReader
from batchrun.schema_folders import SchemaFolders
from batchrun.schemas import MOST_NESTED

NAME = {"type": "object", "properties": {"name": {"type": "string"}}}
DEFAULTS = Defaults(max_tokens=99, sampling=Sampling(seed=7))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "contact.json").write_text(json.dumps(NAME))
    (tmp_path / "page.txt").write_text("a page", encoding="utf-8-sig")
    return tmp_path


def reader(folder: Path = Path("/nowhere"), defaults: Defaults = DEFAULTS) -> JobReader:
    return JobReader(defaults, SchemaFolders([folder / "schemas"], [folder]), folder)


def read(line: bytes | str | dict[str, Any], folder: Path = Path("/nowhere"), number: int = 3) -> Job | Rejection:
    if isinstance(line, dict):
        line = json.dumps(line, ensure_ascii=False)
    return reader(folder).read(line if isinstance(line, bytes) else line.encode(), number)


def job(line: bytes | str | dict[str, Any], folder: Path = Path("/nowhere"), number: int = 3) -> Job:
    found = read(line, folder, number)
    assert isinstance(found, Job), found
    return found


def refused(line: bytes | str | dict[str, Any], code: str, *words: str, folder: Path = Path("/nowhere")) -> Rejection:
    """The rejection of a line, once its code, its line number and words of its message are as they should be."""
    found = read(line, folder)
    assert isinstance(found, Rejection), found
    assert found.problem.code == code
    assert found.index == found.problem.line == 3
    for word in words:
        assert word in found.problem.message
    return found


def with_meta(text: str) -> str:
    """A good line but for its meta."""
    return f'{{"prompt":"p","meta":{text}}}'


# -- what a good line comes to


def test_a_line_with_a_prompt_gets_the_defaults() -> None:
    assert job('{"prompt":"hi"}') == Job(3, "3", (Message("user", "hi"),), None, None, 99, Sampling(seed=7), (), None)


def test_a_line_may_say_everything(folder: Path) -> None:
    found = job(
        {"id": "a", "prompt": "hi", "document": "", "schema": "contact", "system": "be brief", "max_tokens": 5}
        | {"temperature": 1, "top_p": 0.5, "top_k": 3, "min_p": 0.1, "seed": 2**63 - 1, "meta": {"x": [None]}},
        folder,
    )
    assert found.id == "a"
    assert found.messages == (Message("system", "be brief"), Message("user", "hi"))
    assert found.document == ""
    assert found.schema is not None
    assert found.schema.content == NAME
    assert found.max_tokens == 5
    assert found.sampling == Sampling(1, 0.5, 3, 0.1, 2**63 - 1)
    assert found.meta == {"x": [None]}


def test_null_means_absent() -> None:
    everything_null = dict.fromkeys(FIELDS) | {"prompt": "hi"}
    assert job(everything_null) == job('{"prompt":"hi"}')


def test_messages_stand_in_for_a_prompt() -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "assistant", "content": ""}, {"role": "user", "content": "u"}]
    assert [message.role for message in job({"messages": turns}).messages] == ["system", "assistant", "user"]


def test_a_default_system_turn_yields_to_one_in_messages() -> None:
    turns = [{"role": "system", "content": "mine"}, {"role": "user", "content": "u"}]
    found = reader(defaults=Defaults(system="theirs")).read(json.dumps({"messages": turns}).encode(), 1)
    assert isinstance(found, Job)
    assert [message.content for message in found.messages] == ["mine", "u"]


@pytest.mark.parametrize("stop", ["END", ["END"]])
def test_stop_is_one_string_or_a_list(stop: Any) -> None:
    assert job({"prompt": "hi", "stop": stop}).stop == ("END",)


def test_default_stop_strings_are_dropped_where_a_schema_ends_the_answer(folder: Path) -> None:
    both = reader(folder, Defaults(stop=("END",)))
    free, guided = both.read(b'{"prompt":"p"}', 1), both.read(b'{"prompt":"p","schema":"contact"}', 2)
    assert isinstance(free, Job)
    assert isinstance(guided, Job)
    assert (free.stop, guided.stop) == (("END",), ())


@pytest.mark.parametrize("job_id", ["ß∂/..", "a\nb", "\x1b[31m", "🎈", "null", " x "])
def test_an_id_may_be_any_text(job_id: str) -> None:
    assert job({"id": job_id, "prompt": "p"}).id == job_id


def test_line_separators_inside_a_string_are_text() -> None:
    text = "a\u2028b\u2029c\x85d\x0ce"
    assert job(json.dumps({"prompt": text}).encode()).messages[0].content == text
    assert job('{"prompt":"a\u2028b\x85c"}').messages[0].content == "a\u2028b\x85c"


def test_a_schema_is_a_name_a_path_or_inline(folder: Path) -> None:
    named, path = job({"prompt": "p", "schema": "contact"}, folder), "schemas/contact.json"
    assert job({"prompt": "p", "schema": path}, folder).schema == named.schema
    assert job({"prompt": "p", "schema": str(folder / path)}, folder).schema == named.schema
    assert job({"prompt": "p", "schema": NAME}, folder).schema == named.schema
    assert job({"prompt": "p", "schema": True}, folder).schema is not None


def test_a_document_file_is_read_from_the_folder_of_the_jobs(folder: Path) -> None:
    assert job({"prompt": "p", "document_file": "page.txt"}, folder).document == "a page"


# -- lines that are no JSON object


@pytest.mark.parametrize(
    ("line", "column"),
    [
        (b'{"prompt":"a"', 14),
        (b'{"prompt":"a",}', 15),
        (b"{'prompt':1}", 2),
        (b'{"prompt":"a"} {}', 16),
        (b"hello", 1),
        ('{"prompt":"é" x}'.encode(), 15),
        (b'\xef\xbb\xbf{"prompt":"a"}', 1),
        (b"", 1),
    ],
)
def test_malformed_json_is_refused_with_its_column(line: bytes, column: int) -> None:
    rejection = refused(line, "bad_json", "expected one JSON object on the line")
    assert rejection.problem.column == column
    assert rejection.id == "3"


@pytest.mark.parametrize(("line", "kind"), [("[]", "a list"), ('"x"', "a string"), ("1", "a number"), ("null", "null")])
def test_a_line_that_is_no_object_is_refused(line: str, kind: str) -> None:
    assert refused(line, "bad_json", "expected a JSON object", kind).problem.column == 1


@pytest.mark.parametrize(("line", "column"), [(b'{"prompt":"\xff"}', 12), ('{"é":"'.encode() + b"\xc3", 7)])
def test_a_byte_that_is_no_utf8_is_refused_with_its_column(line: bytes, column: int) -> None:
    assert refused(line, "bad_encoding", "is not UTF-8; expected UTF-8 text").problem.column == column


def test_half_a_surrogate_pair_is_refused_wherever_it_stands() -> None:
    for line in (r'{"prompt":"\ud800"}', r'{"prompt":"p","meta":{"\udfff":1}}', r'{"id":"\ud83d","prompt":"p"}'):
        refused(line, "bad_encoding", "half a surrogate pair", "expected whole characters")
    assert job(r'{"prompt":"\ud83c\udf88"}').messages[0].content == "🎈"


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
def test_a_number_that_json_cannot_hold_is_refused(number: str) -> None:
    refused(with_meta(number), "bad_json")


def test_a_key_that_stands_twice_is_refused_at_any_depth() -> None:
    refused('{"prompt":"a","prompt":"b"}', "bad_json", "'prompt' stands twice")
    refused('{"prompt":"a","meta":[{"x":1,"x":1}]}', "bad_json", "'x' stands twice")


def test_a_key_that_stands_twice_among_very_many_is_found_at_once() -> None:
    keys = ",".join(f'"{number}":0' for number in range(100_000))
    refused(with_meta(f'{{{keys},"99999":0}}'), "bad_json", "'99999' stands twice")


@pytest.mark.parametrize("levels", [MOST_NESTED, 900, 100_000])
def test_too_deep_nesting_is_refused(levels: int) -> None:
    refused(with_meta("[" * levels + "]" * levels), "bad_json", "100 levels")


def test_deep_nesting_within_the_limit_is_taken() -> None:
    assert job(with_meta("[" * (MOST_NESTED - 1) + "]" * (MOST_NESTED - 1))).meta


# -- fields


@pytest.mark.parametrize(("key", "near"), [("promt", "prompt"), ("Max_Tokens", "max_tokens"), ("schma", "schema")])
def test_an_unknown_key_is_refused_and_the_nearest_named(key: str, near: str) -> None:
    refused({"prompt": "p", key: 1}, "unknown_key", repr(key), f"did you mean {near!r}", "'meta'")


def test_a_key_like_no_other_is_refused_with_all_that_are_known() -> None:
    refused({"prompt": "p", "": 1}, "unknown_key", "known: id, prompt")


def test_a_huge_unknown_key_does_not_fill_the_message() -> None:
    assert len(refused({"prompt": "p", "k" * 100_000: 1}, "unknown_key").problem.message) < 400


@pytest.mark.parametrize(
    ("key", "values", "expected"),
    [
        ("id", ["", " ", 5, [], True], "a non-empty string"),
        ("prompt", ["", "\n\t", 5, {}], "a non-empty string"),
        ("messages", ["hi", [], {}], "a non-empty list of messages"),
        ("document", [5, [], False], "a string"),
        ("document_file", ["", 5], "a path"),
        ("schema", ["", 5, []], "a name, a path or an object"),
        ("system", [5, []], "a string"),
        ("max_tokens", [0, -1, 1.0, "5", True, 2**31], "a whole number from 1 to 2147483647"),
        ("temperature", [-0.1, 101, "1", True, 10**400], "a number from 0 to 100"),
        ("top_p", [0, 1.1, "1", True], "a number above 0, at most 1"),
        ("top_k", [-1, 0.5, "1", 2**31], "a whole number from 0"),
        ("min_p", [-0.1, 1.1, []], "a number from 0 to 1"),
        ("seed", [-1, 0.5, 2**63], "a whole number from 0"),
        ("stop", ["", [""], [1], {}, 5], "a non-empty string or a list of them"),
        ("timeout_s", [0, -1, "5", True, 1e10], "seconds, more than 0"),
        ("group", ["", 5], "a non-empty string"),
        ("keep", ["last", 1], '"first"'),
    ],
)
def test_a_value_of_the_wrong_kind_is_refused_with_what_was_expected(
    key: str, values: list[Any], expected: str
) -> None:
    for value in values:
        refused({"prompt": "p"} | {key: value}, "bad_value", f"{key} is ", f"expected {expected}")


def test_every_field_has_a_test_of_its_kind() -> None:
    marks = test_a_value_of_the_wrong_kind_is_refused_with_what_was_expected.pytestmark
    assert {case[0] for case in marks[0].args[1]} == FIELDS.keys() - {"meta"}


def test_a_huge_value_does_not_fill_the_message() -> None:
    assert len(refused({"prompt": "p", "max_tokens": "9" * 100_000}, "bad_value").problem.message) < 200


# -- prompts, documents, schemas


def test_a_line_needs_a_prompt() -> None:
    refused('{"id":"a"}', "bad_prompt", "prompt is missing")
    refused('{"prompt":null,"messages":null}', "bad_prompt", "prompt is missing")


def test_a_line_needs_one_prompt_only() -> None:
    turns = [{"role": "user", "content": "u"}]
    refused({"prompt": "p", "messages": turns}, "bad_prompt", "both prompt and messages")


@pytest.mark.parametrize(
    ("turns", "words"),
    [
        (["hi"], 'messages[0] is "hi"; expected an object with role and content'),
        ([{"role": "user"}], "expected an object with role and content"),
        ([{"role": "user", "content": "u", "name": "x"}], "expected an object with role and content"),
        ([{"role": "robot", "content": "u"}], "messages[0].role"),
        ([{"role": ["user"], "content": "u"}], "expected one of system, user, assistant, tool"),
        ([{"role": "user", "content": None}], "messages[0].content is null; expected a string"),
        ([{"role": "user", "content": "u"}, {"role": "assistant", "content": "a"}], "the last message is by assistant"),
    ],
)
def test_messages_that_are_none_are_refused(turns: list[Any], words: str) -> None:
    refused({"messages": turns}, "bad_prompt", words)


def test_two_system_turns_are_refused() -> None:
    turns = [{"role": "system", "content": "s"}, {"role": "user", "content": "u"}]
    refused({"messages": turns, "system": "s"}, "bad_prompt", "expected one of them")


def test_two_documents_are_refused() -> None:
    refused({"prompt": "p", "document": "", "document_file": "x"}, "bad_document", "expected one of them")


def test_a_document_file_that_cannot_be_read_is_refused(folder: Path) -> None:
    (folder / "latin.txt").write_bytes(b"caf\xe9")
    os.mkfifo(folder / "pipe")
    for name, words in [
        ("missing.txt", "No such file"),
        ("schemas", "not a regular file"),
        ("page.txt/x", "Not a directory"),
        ("latin.txt", "not UTF-8 at byte 3"),
        ("x" * 5000, "name too long"),
        ("a\0b", "null byte"),
        ("/dev/zero", "lies outside of"),
        ("pipe", "not a regular file"),
    ]:
        refused({"prompt": "p", "document_file": name}, "document_unreadable", words, folder=folder)


def test_an_unknown_schema_is_refused_and_the_nearest_named(folder: Path) -> None:
    refused({"prompt": "p", "schema": "contcat"}, "schema_unknown", "did you mean 'contact'", folder=folder)
    refused({"prompt": "p", "schema": "zzz"}, "schema_unknown", "known: contact", folder=folder)
    refused({"prompt": "p", "schema": "no/such.json"}, "schema_unknown", "not found", folder=folder)


def test_a_schema_name_that_no_file_could_have_is_refused(folder: Path) -> None:
    schema_text = '{"type": "object", "properties": {"a/b": {}}}'
    for name, code in [
        (schema_text, "schema_unknown"),
        (schema_text.replace("a", "a" * 300), "schema_unreadable"),
        ("x" * 300, "schema_unreadable"),
        ("../" * 2000, "schema_unreadable"),
        ("a\0b", "schema_unknown"),
    ]:
        rejection = refused({"prompt": "p", "schema": name}, code, folder=folder)
        assert len(rejection.problem.message) < 200


def test_an_invalid_schema_is_refused_with_a_pointer() -> None:
    rejection = refused({"prompt": "p", "schema": {"properties": {"a/b": {"type": "strin"}}}}, "schema_invalid")
    assert rejection.problem.path == "/properties/a~1b/type"
    assert "/properties/a~1b/type" in rejection.problem.message


def test_stop_is_refused_beside_a_schema(folder: Path) -> None:
    refused({"prompt": "p", "schema": "contact", "stop": "x"}, "bad_stop", "no meaning", folder=folder)


# -- ids and digests


def test_an_id_used_twice_is_refused_and_the_first_line_named() -> None:
    lines = reader()
    assert isinstance(lines.read(b'{"id":"a","prompt":"p"}', 2), Job)
    again = lines.read(b'{"id":"a","prompt":"q","meta":5}', 9)
    assert isinstance(again, Rejection)
    assert again.problem.code == "duplicate_id"
    assert "stands on line 2 already" in again.problem.message
    assert (again.id, again.index, again.problem.line, again.meta) == ("a", 9, 9, 5)


def test_an_id_may_not_be_the_number_of_a_later_line_that_has_none() -> None:
    lines = reader()
    lines.read(b'{"id":"2","prompt":"p"}', 1)
    assert isinstance(lines.read(b'{"prompt":"p"}', 2), Rejection)


def test_a_line_that_was_refused_does_not_use_its_id_up() -> None:
    lines = reader()
    assert isinstance(lines.read(b'{"id":"a","prompt":""}', 1), Rejection)
    assert isinstance(lines.read(b'{"id":"a","prompt":"p"}', 2), Job)


def test_a_rejection_keeps_id_and_meta_where_they_can_be_read() -> None:
    rejection = refused('{"id":"a","meta":{"k":1},"prompt":5}', "bad_value")
    assert (rejection.id, rejection.meta) == ("a", {"k": 1})
    assert refused('{"id":5,"prompt":"p"}', "bad_value").id == "3"


def test_a_rejection_is_another_once_its_line_or_its_reason_is(folder: Path) -> None:
    line = {"prompt": "p", "document_file": "late.txt"}
    missing = refused(line, "document_unreadable", folder=folder)
    assert refused(line, "document_unreadable", folder=folder).digest == missing.digest
    assert refused(line | {"id": "b"}, "document_unreadable", folder=folder).digest != missing.digest
    (folder / "late.txt").write_bytes(b"\xff")
    assert refused(line, "document_unreadable", folder=folder).digest != missing.digest


# -- whatever comes

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)
RECORDS = st.dictionaries(st.sampled_from(sorted(FIELDS)), JSON | st.just("x"), max_size=5)


@given(st.binary(max_size=60) | st.builds(json.dumps, RECORDS).map(str.encode))
def test_any_bytes_give_a_job_or_a_rejection(line: bytes) -> None:
    found = read(line)
    if isinstance(found, Rejection):
        assert found.problem.message
        assert found.problem.line == 3


@given(RECORDS, st.integers(0, 200), st.integers(0, 255))
def test_a_line_with_one_wrong_byte_gives_a_job_or_a_rejection(record: dict[str, Any], place: int, byte: int) -> None:
    line = bytearray(json.dumps(record | {"prompt": "p"}, ensure_ascii=False).encode(errors="surrogatepass"))
    line[place % len(line)] = byte
    assert isinstance(read(bytes(line)), Job | Rejection)
