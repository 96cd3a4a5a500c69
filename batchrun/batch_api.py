"""Reads lines of OpenAI's batch files as job lines: `custom_id`, `method`, `url`, `body`.

What shapes an answer is taken over or refused, never dropped in silence; what does not (a user's name, a service tier)
is passed over.  The model is the run's own, whatever the body asks for.
Source: OpenAI's reference of the Batch API and of chat completions, as its Python client 3.x types them.
"""

from collections.abc import Mapping
from typing import Any, NoReturn

from batchrun.core import Problem
from batchrun.errors import JobError

CHAT = "/v1/chat/completions"
TAKEN = ("temperature", "top_p", "top_k", "min_p", "stop")  # of the same name and meaning as ours
WITHOUT_EFFECT = frozenset(
    {"model", "user", "metadata", "store", "service_tier", "stream_options", "safety_identifier", "prompt_cache_key"}
    | {"prompt_cache_retention", "parallel_tool_calls"}
)
NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "stream": (False,),
    "logprobs": (False,),
    "top_logprobs": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "logit_bias": ({},),
    "tools": ([],),
    "tool_choice": ("none", "auto"),
    "modalities": (["text"],),
    "functions": ([],),
}
"""Keys of the body that this engine knows one value of only."""

ENVELOPE = ("id", "custom_id", "method", "url", "body")  # `id`: custom_id under our name
READ = {"messages", "max_tokens", "max_completion_tokens", "response_format", "seed", *TAKEN}


def is_batch_line(record: Mapping[str, Any]) -> bool:
    return "custom_id" in record and "body" in record


def as_job_record(record: Mapping[str, Any]) -> dict[str, Any]:
    """The job line that a batch line stands for.  Raises JobError where it asks for what there is not."""
    _check_envelope(record)
    body = {key: value for key, value in record["body"].items() if value is not None}
    for key, value in body.items():
        _check_key(key, value)
    job = {"id": record["custom_id"], "messages": _messages(body.get("messages"))}
    if "max_tokens" in body or "max_completion_tokens" in body:
        job["max_tokens"] = body.get("max_completion_tokens", body.get("max_tokens"))
    job |= {key: body[key] for key in TAKEN if key in body}
    if job.get("stop") == []:
        del job["stop"]
    if "seed" in body:
        job["seed"] = _seed(body["seed"])
    schema = _schema(body.get("response_format", {"type": "text"}))
    return job if schema is None else job | {"schema": schema}


def _check_envelope(record: Mapping[str, Any]) -> None:
    unknown = next((key for key in record if key not in ENVELOPE), None)
    if unknown is not None:
        _refuse("unknown_key", f"unknown key {unknown[:80]!r}; known: custom_id, method, url, body")
    if record.get("method", "POST") != "POST":
        _refuse("bad_value", f"method is {str(record['method'])[:40]!r}; expected POST")
    if record.get("url", CHAT) != CHAT:
        _refuse("bad_value", f"url is {str(record['url'])[:80]!r}; expected {CHAT}")
    if not isinstance(record["body"], dict):
        _refuse("bad_value", "body is no object; expected the body of a chat completion")


def _check_key(key: str, value: Any) -> None:
    if key in READ or key in WITHOUT_EFFECT:
        return
    if key not in NEUTRAL:
        _refuse("unknown_key", f"body has {key[:80]!r}, which this engine cannot follow; leave it out")
    if value not in NEUTRAL[key]:
        known = " or ".join(str(item) for item in NEUTRAL[key])
        _refuse("bad_value", f"body.{key} is {str(value)[:40]}; this engine knows {known} only")


def _messages(messages: Any) -> Any:
    """The turns, with `developer` as `system` and parts of text joined."""
    if not isinstance(messages, list):
        return messages
    return [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]


def _message(message: Any, where: str) -> Any:
    if not isinstance(message, dict):
        return message
    turn = {key: value for key, value in message.items() if value is not None and key != "name"}
    if turn.get("role") == "developer":
        turn["role"] = "system"
    if isinstance(turn.get("content"), list):
        turn["content"] = "".join(_part(part, where) for part in turn["content"])
    return turn


def _part(part: Any, where: str) -> str:
    if not isinstance(part, dict) or part.get("type") != "text" or not isinstance(part.get("text"), str):
        kind = part.get("type") if isinstance(part, dict) else None
        _refuse("bad_prompt", f"{where}.content has a part of type {str(kind)[:40]!r}; expected text only")
    return str(part["text"])


def _seed(seed: Any) -> Any:
    """OpenAI's seeds may be negative, ours are not: they are counted from the other end."""
    return seed % 2**63 if isinstance(seed, int) and not isinstance(seed, bool) else seed


def _schema(form: Any) -> Any:
    """The schema that a response format asks for, or None."""
    kind = form.get("type") if isinstance(form, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return {"type": "object"}
    if kind == "json_schema":
        named = form.get("json_schema")
        if isinstance(named, dict) and isinstance(named.get("schema"), dict | bool):
            return named["schema"]
        _refuse("bad_value", "response_format.json_schema.schema is missing; expected a JSON Schema")
    return _refuse(
        "bad_value", f"response_format is of type {str(kind)[:40]!r}; expected text, json_object or json_schema"
    )


def _refuse(code: str, message: str) -> NoReturn:
    raise JobError(Problem(code, message))
