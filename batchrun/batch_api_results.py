"""Writes results as lines of OpenAI's batch output: what its clients read back.

An answer is `response` with status 200 and a chat completion.  What the API would have refused or failed at is
`response` with the status of that failure and a body that holds `error`.  What never got a response, because it was
cancelled or its time was up, has `response` null and `error` at the top.  One file holds them all, a line a job.
"""

import json
from typing import Any

from batchrun.core import Status
from batchrun.key_table import key_of
from batchrun.results import as_json

OK = 200
FAILURES = {
    Status.REJECTED: (400, "invalid_request_error"),
    Status.INVALID: (422, "invalid_answer"),
    Status.ERROR: (500, "server_error"),
}
UNANSWERED = {Status.CANCELLED: "batch_cancelled", Status.EXPIRED: "batch_expired"}


def as_batch_line(line: bytes, created: int) -> bytes:
    """A line of results in the dialect.  `created`: seconds since 1970, which every completion has to have."""
    record = json.loads(line)
    response, error = _outcome(record, created)
    key = _key(record)
    shown = {"id": f"batch_req_{key}", "custom_id": record["id"], "response": response, "error": error}
    return as_json(shown).encode() + b"\n"


def _key(record: dict[str, Any]) -> str:
    """Names a line: by its job's id and digest, so that a resumed run names it the same."""
    return key_of(record["id"], record["digest"]).hex()[:24]


def _outcome(record: dict[str, Any], created: int) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    status = Status(record["status"])
    problem = record["errors"][0] if record["errors"] else {}
    if status in UNANSWERED:
        return None, {"code": UNANSWERED[status], "message": problem.get("message", status.value)}
    if status in FAILURES:
        code, kind = FAILURES[status]
        said = {"message": _message(record), "type": kind, "param": problem.get("path"), "code": problem.get("code")}
        output = {} if record["output"] is None else {"output": record["output"]}
        return _response(record, code, {"error": said} | output), None
    return _response(record, OK, _completion(record, created)), None


def _response(record: dict[str, Any], status_code: int, body: dict[str, Any]) -> dict[str, Any]:
    return {"status_code": status_code, "request_id": f"req_{record['digest'][:24]}", "body": body}


def _completion(record: dict[str, Any], created: int) -> dict[str, Any]:
    output, usage = record["output"], record["usage"]
    message = {"role": "assistant", "content": output if isinstance(output, str) else as_json(output), "refusal": None}
    return {
        "id": f"chatcmpl-{_key(record)}",
        "object": "chat.completion",
        "created": created,
        "model": record["model"],
        "choices": [{"index": 0, "message": message, "logprobs": None, "finish_reason": record["finish_reason"]}],
        "usage": {
            "prompt_tokens": usage["prompt_tokens"],
            "completion_tokens": usage["completion_tokens"],
            "total_tokens": usage["prompt_tokens"] + usage["completion_tokens"],
            "prompt_tokens_details": {"cached_tokens": usage["cached_tokens"]},
        },
    }


def _message(record: dict[str, Any]) -> str:
    texts = [error.get("message", "") for error in record["errors"]]
    return "; ".join(texts) or str(record["status"])
