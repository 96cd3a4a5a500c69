"""A completion is judged once; `ok` means ended, parsed and valid, and a line says it in UTF-8."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core import (
    Completion,
    FinishReason,
    Job,
    Message,
    Problem,
    Rejection,
    Request,
    Result,
    Sampling,
    Schema,
    Status,
    Timing,
    Usage,
)
from batchrun.results import OPTIONAL, as_line, judge, reject

NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def completion(
    text: str, content: Any = None, finish: FinishReason = FinishReason.STOP, error: str | None = None
) -> Completion:
    schema = Schema("s", json.dumps(content), content) if content is not None else None
    job = Job(4, "ä", (Message("user", "hi"),), None, schema, 50, Sampling(), (), {"k": "ü"})
    request = Request(job, "d" * 64, (1, 2))
    return Completion(request, text, finish, Usage(2, 1, 5, 3), Timing(0.1, 0.22222222, 0.3, 0.4), error=error)


def judged(
    text: str, content: Any = None, finish: FinishReason = FinishReason.STOP, error: str | None = None
) -> Result:
    return judge(completion(text, content, finish, error), "model", burst=2)


# -- statuses


def test_free_text_that_ended_is_ok_whatever_it_says() -> None:
    for text in ("", "hello", '{"name":', "🎈"):
        result = judged(text)
        assert (result.status, result.output, result.errors) == (Status.OK, text, ())


def test_json_that_passes_its_schema_is_ok_and_parsed() -> None:
    result = judged('{"name":"Ada"}', NAME)
    assert (result.status, result.output) == (Status.OK, {"name": "Ada"})


def test_json_that_fails_its_schema_is_invalid_and_says_where() -> None:
    result = judged('{"name":5}', NAME)
    assert (result.status, result.output) == (Status.INVALID, {"name": 5})
    assert (result.errors[0].code, result.errors[0].path) == ("schema", "/name")


def test_an_impossible_date_is_invalid() -> None:
    assert judged('"2023-02-29"', {"format": "date"}).status is Status.INVALID
    assert judged('"2024-02-29"', {"format": "date"}).status is Status.OK


@pytest.mark.parametrize("text", ["", "hello", '{"name":', '{"name":"a"} x', "{'name':1}"])
def test_an_answer_that_is_no_json_is_invalid_and_kept_as_text(text: str) -> None:
    result = judged(text, NAME)
    assert (result.status, result.output, result.errors[0].code) == (Status.INVALID, text, "not_json")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (r'"\ud800"', "half a surrogate pair"),
        ("1e999", "Out of range"),
        ("NaN", "Out of range"),
        ("-Infinity", "Out of range"),
        ("1" * 5000, "digits"),
        ("[" * 101 + "]" * 101, "100 levels"),
        ("[" * 100_000 + "]" * 100_000, "recursion"),
    ],
)
def test_an_answer_that_no_line_could_hold_is_invalid(text: str, reason: str) -> None:
    result = judged(text, True)
    assert (result.status, result.errors[0].code) == (Status.INVALID, "not_json")
    assert reason in result.errors[0].message
    assert json.loads(as_line(result))["output"] == text


def test_an_answer_cut_by_its_budget_is_truncated_even_if_it_parses() -> None:
    result = judged('{"name":"Ada"}', NAME, FinishReason.LENGTH)
    assert (result.status, result.output) == (Status.TRUNCATED, '{"name":"Ada"}')
    assert "max_tokens = 50" in result.errors[0].message


def test_a_row_that_the_engine_gave_up_is_an_error_with_its_reason() -> None:
    assert judged("half", None, FinishReason.ERROR, "out of memory").errors == (Problem("engine", "out of memory"),)
    assert judged("half", None, FinishReason.ERROR).errors[0].message
    assert judged("half", None, FinishReason.ERROR).status is Status.ERROR


def test_a_cancelled_row_is_cancelled() -> None:
    assert judged("half", NAME, FinishReason.CANCELLED).status is Status.CANCELLED


def test_a_rejection_is_a_result_like_any_other() -> None:
    problem = Problem("bad_json", "broken", 4, 7)
    result = reject(Rejection(4, "4", problem, "d", {"k": 1}), "model")
    assert (result.status, result.output, result.errors, result.meta) == (Status.REJECTED, None, (problem,), {"k": 1})
    assert (result.attempt, result.burst, result.finish_reason, result.timing) == (0, None, None, None)


# -- lines


def test_a_line_is_utf8_as_it_is_and_ends_once() -> None:
    line = as_line(judged("é🎈\n"))
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert "é🎈\\n".encode() in line
    assert b"\\u" not in line


def test_nothing_that_a_terminal_obeys_or_a_reader_splits_at_stands_in_a_line() -> None:
    text = "".join(map(chr, [*range(32), 0x7F, *range(0x80, 0xA0), 0x61C, 0x200F, 0x2028, 0x2029, 0x202E, 0x2066]))
    line = as_line(judged(text)).decode()
    assert line[:-1].isprintable()
    assert len(line.splitlines()) == 1
    assert json.loads(line)["output"] == text


def test_fields_stand_in_the_order_they_are_declared() -> None:
    record = json.loads(as_line(judged("hi")))
    assert list(record) == [name for name in Result.__dataclass_fields__ if name not in OPTIONAL]
    assert list(record)[:4] == ["id", "index", "status", "output"]
    assert list(record["usage"]) == list(Usage.__dataclass_fields__)
    assert list(record["timing"]) == list(Timing.__dataclass_fields__)


def test_a_line_begins_as_the_journal_expects_it() -> None:
    assert as_line(judged("hi")).startswith(b'{"id":"')


def test_a_line_holds_all_of_a_result() -> None:
    record = json.loads(as_line(judged('{"name":5}', NAME)))
    assert record == {
        "id": "ä",
        "index": 4,
        "status": "invalid",
        "output": {"name": 5},
        "finish_reason": "stop",
        "errors": [{"code": "schema", "message": "5 is not of type 'string'", "path": "/name"}],
        "usage": {"prompt_tokens": 2, "cached_tokens": 1, "completion_tokens": 5, "forced_tokens": 3},
        "timing": {"queued_s": 0.1, "ttft_s": 0.2222, "decode_s": 0.3, "total_s": 0.4, "forced_s": 0.0},
        "burst": 2,
        "attempt": 1,
        "model": "model",
        "digest": "d" * 64,
        "meta": {"k": "ü"},
        "closed_by_budget": False,
        "closed_by_runaway": False,
        "verbatim": [],
        "schema": "s",
    }


def test_an_error_shows_only_what_is_known() -> None:
    line = as_line(reject(Rejection(4, "4", Problem("bad_json", "broken", 4, 7), "d"), "model"))
    assert json.loads(line)["errors"] == [{"code": "bad_json", "message": "broken", "line": 4, "column": 7}]


@given(st.text())
def test_any_text_makes_the_round_trip(text: str) -> None:
    assert json.loads(as_line(judged(text)))["output"] == text


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)


@given(VALUES, st.booleans())
def test_any_json_makes_the_round_trip(value: Any, ascii_only: bool) -> None:
    result = judged(json.dumps(value, ensure_ascii=ascii_only), True)
    assert result.status is Status.OK
    assert json.loads(as_line(result))["output"] == value


@given(st.text())
def test_any_text_for_a_schema_is_judged_and_can_be_written(text: str) -> None:
    result = judged(text, NAME)
    assert result.status in (Status.OK, Status.INVALID)
    assert json.loads(as_line(result))["id"] == "ä"
