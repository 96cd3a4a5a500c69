"""Lines of OpenAI's batch files run unchanged, and what comes back is what its clients read."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import ErrorObject
from openai.types.chat import ChatCompletion
from shell import Ran, read, statuses, write_jobs
from shell import here as batchrun

from batchrun.batch_api import as_job_record
from batchrun.batch_api_results import as_batch_line
from batchrun.core import GROUP_WON, Defaults, FinishReason, Job, Message, Problem, Rejection, Result, Status, Usage
from batchrun.errors import JobError
from batchrun.jobs import JobReader
from batchrun.results import as_line
from batchrun.schema_folders import SchemaFolders

NAME = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
HI = [{"role": "user", "content": "hi"}]


def batch(body: dict[str, Any], custom_id: str = "r-1") -> dict[str, Any]:
    return {"custom_id": custom_id, "method": "POST", "url": "/v1/chat/completions", "body": {"model": "gpt"} | body}


def job(body: dict[str, Any]) -> Job | Rejection:
    reader = JobReader(Defaults(max_tokens=99), SchemaFolders([], []), Path())
    return reader.read(json.dumps(batch(body)).encode(), 1)


def refused(body: dict[str, Any]) -> Problem:
    found = job(body)
    assert isinstance(found, Rejection), found
    assert found.id == "r-1"
    return found.problem


# -- in


def test_a_batch_line_is_a_job() -> None:
    found = job(
        {
            "messages": [
                {"role": "developer", "content": "be brief", "name": "dev"},
                {"role": "user", "content": [{"type": "text", "text": "two "}, {"type": "text", "text": "parts"}]},
            ],
            "max_completion_tokens": 7,
            "max_tokens": 5,
            "temperature": 0.5,
            "top_p": 0.9,
            "seed": -1,
            "stop": ["a", "b"],
            "n": 1,
            "stream": False,
            "user": "someone",
            "metadata": {"k": "v"},
            "logprobs": None,
        }
    )
    assert isinstance(found, Job), found
    assert found.id == "r-1"
    assert found.messages == (Message("system", "be brief"), Message("user", "two parts"))
    assert (found.max_tokens, found.stop) == (7, ("a", "b"))
    assert (found.sampling.temperature, found.sampling.top_p, found.sampling.seed) == (0.5, 0.9, 2**63 - 1)


def test_what_a_body_does_not_say_is_the_runs_default() -> None:
    found = job({"messages": HI})
    assert isinstance(found, Job)
    assert (found.max_tokens, found.schema, found.sampling.temperature) == (99, None, 0.0)


@pytest.mark.parametrize(
    ("form", "schema"),
    [
        ({"type": "text"}, None),
        ({"type": "json_object"}, {"type": "object"}),
        ({"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": NAME}}, NAME),
    ],
)
def test_a_response_format_is_a_schema(form: dict[str, Any], schema: Any) -> None:
    found = job({"messages": HI, "response_format": form})
    assert isinstance(found, Job)
    assert (found.schema and found.schema.content) == schema


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"messages": HI, "n": 2}, "bad_value", "body.n is 2; this engine knows 1 only"),
        ({"messages": HI, "tools": [{"type": "function"}]}, "bad_value", "body.tools is"),
        ({"messages": HI, "presence_penalty": 0.5}, "bad_value", "body.presence_penalty is 0.5"),
        ({"messages": HI, "reasoning_effort": "high"}, "unknown_key", "'reasoning_effort', which this engine cannot"),
        ({"messages": HI, "response_format": {"type": "xml"}}, "bad_value", "expected text, json_object or"),
        ({"messages": HI, "response_format": {"type": "json_schema"}}, "bad_value", "json_schema.schema is missing"),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]},
            "bad_prompt",
            "part of type 'image_url'",
        ),
        ({}, "bad_prompt", "prompt is missing"),
        ({"messages": HI, "max_tokens": 0}, "bad_value", "max_tokens is 0"),
    ],
)
def test_what_this_engine_cannot_follow_is_refused_and_not_dropped(body: dict[str, Any], code: str, words: str) -> None:
    problem = refused(body)
    assert problem.code == code
    assert words in problem.message


@pytest.mark.parametrize(
    "change",
    [{"url": "/v1/embeddings"}, {"method": "GET"}, {"body": []}, {"body": None}, {"extra": 1}, {"custom_id": 5}],
)
def test_an_envelope_that_is_none_is_refused(change: dict[str, Any]) -> None:
    reader = JobReader(Defaults(), SchemaFolders([], []), Path())
    assert isinstance(reader.read(json.dumps(batch({"messages": HI}) | change).encode(), 1), Rejection)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["type", "text", "role"]), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(["messages", "max_tokens", "response_format", "seed", "stop", "n", "tools", "model", "x"])


@given(st.dictionaries(KEYS, VALUES), st.sampled_from(["custom_id", "url", "method", "body", "y"]), VALUES)
def test_any_body_gives_a_job_record_or_a_problem(body: dict[str, Any], key: str, value: Any) -> None:
    try:
        record = as_job_record(batch(body) | {key: value})
    except JobError:
        return
    assert record["id"] is not None or key == "custom_id"


# -- out


def result(status: Status, output: Any = "said", problem: Problem | None = None) -> Result:
    finish = FinishReason.LENGTH if status is Status.TRUNCATED else FinishReason.STOP
    errors = (problem,) if problem else ()
    return Result("r-1", 1, status, output, finish, errors, Usage(9, 4, 5), None, 1, 1, "model", "d" * 64, None)


def line(status: Status, output: Any = "said", problem: Problem | None = None) -> dict[str, Any]:
    shown: dict[str, Any] = json.loads(as_batch_line(as_line(result(status, output, problem)), 1_700_000_000))
    assert shown.keys() == {"id", "custom_id", "response", "error"}
    assert shown["custom_id"] == "r-1"
    return shown


@pytest.mark.parametrize("output", ["said", {"n": 5}, [1], "é\u2028"])
@pytest.mark.parametrize(("status", "finish"), [(Status.OK, "stop"), (Status.TRUNCATED, "length")])
def test_an_answer_is_a_chat_completion_with_status_200(output: Any, status: Status, finish: str) -> None:
    shown = line(status, output, Problem("truncated", "cut") if status is Status.TRUNCATED else None)
    assert shown["error"] is None
    assert shown["response"]["status_code"] == 200
    completion = ChatCompletion.model_validate(shown["response"]["body"], strict=True)
    (choice,) = completion.choices
    assert choice.finish_reason == finish
    assert choice.message.content
    assert (choice.message.content if isinstance(output, str) else json.loads(choice.message.content)) == output
    assert completion.usage
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (9, 14)


@pytest.mark.parametrize(("status", "code"), [(Status.REJECTED, 400), (Status.INVALID, 422), (Status.ERROR, 500)])
def test_a_failure_has_its_status_code_and_an_error_in_its_body(status: Status, code: int) -> None:
    shown = line(status, None, Problem("too_long", "the prompt is too long", path="/a"))
    assert shown["error"] is None
    assert shown["response"]["status_code"] == code
    error = ErrorObject.model_validate(shown["response"]["body"]["error"], strict=True)
    assert (error.code, error.message, error.param) == ("too_long", "the prompt is too long", "/a")


@pytest.mark.parametrize(("status", "code"), [(Status.CANCELLED, "batch_cancelled"), (Status.EXPIRED, "batch_expired")])
def test_what_never_got_a_response_has_its_error_at_the_top(status: Status, code: str) -> None:
    shown = line(status, "half", Problem(GROUP_WON, "why"))
    assert shown["response"] is None
    assert shown["error"] == {"code": code, "message": "why"}


# -- through the command


def lines() -> list[dict[str, Any] | str]:
    schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": NAME}}
    return [
        batch({"messages": HI, "max_tokens": 300}, "free"),
        batch({"messages": HI, "max_tokens": 300, "response_format": schema}, "guided"),
        batch({"messages": HI, "max_tokens": 1}, "cut"),
        batch({"messages": HI, "tools": [1]}, "refused"),
        "no JSON",
    ]


def run(folder: Path, *arguments: str) -> Ran:
    return batchrun(folder, "run", "batch.jsonl", "--format", "openai", *arguments)


def test_a_batch_file_gives_a_batch_output_and_resumes(tmp_path: Path) -> None:
    write_jobs(tmp_path / "batch.jsonl", lines())
    assert run(tmp_path).status == 3
    shown = {record["custom_id"]: record for record in read(tmp_path / "batch.results.jsonl")}
    codes = {custom_id: record["response"]["status_code"] for custom_id, record in shown.items()}
    assert codes == {"free": 200, "guided": 200, "cut": 200, "refused": 400, "5": 400}
    journal = statuses(read(tmp_path / "batch.results.journal.jsonl"))
    assert journal == {"free": "ok", "guided": "ok", "cut": "truncated", "refused": "rejected", "5": "rejected"}
    again = run(tmp_path)
    assert "nothing to do; 5 done before -> batch.results.jsonl" in again.err
    assert len(read(tmp_path / "batch.results.jsonl")) == 5


def test_a_batch_goes_through_a_pipe(tmp_path: Path) -> None:
    data = "".join(json.dumps(entry) + "\n" for entry in lines()[:3])
    ran = batchrun(tmp_path, "run", "-", "--format", "openai", stdin=data)
    assert {record["custom_id"] for record in ran.records} == {"free", "guided", "cut"}
    assert ran.status == 3
