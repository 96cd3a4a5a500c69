"""Judges completions and writes results down as lines.

`ok` means: the answer ended by itself, parses, and passes its schema with formats checked.  Nothing else is `ok`.
"""

import json
from dataclasses import asdict
from typing import Any

from batchrun.core import Completion, FinishReason, Problem, Rejection, Result, Status, Usage
from batchrun.schemas import MOST_NESTED, is_too_deep, validate


def judge(completion: Completion, model: str, burst: int) -> Result:
    """The result of a completion.  `model`: its name as results show it."""
    job = completion.request.job
    status, output, errors = _verdict(completion)
    return Result(
        id=job.id,
        index=job.index,
        status=status,
        output=output,
        finish_reason=completion.finish_reason,
        errors=tuple(errors),
        usage=completion.usage,
        timing=completion.timing,
        burst=burst,
        attempt=1,
        model=model,
        digest=completion.request.digest,
        meta=job.meta,
    )


def reject(rejection: Rejection, model: str) -> Result:
    """The result of a line that cannot run."""
    return Result(
        id=rejection.id,
        index=rejection.index,
        status=Status.REJECTED,
        output=None,
        finish_reason=None,
        errors=(rejection.problem,),
        usage=Usage(),
        timing=None,
        burst=None,
        attempt=0,
        model=model,
        digest=rejection.digest,
        meta=rejection.meta,
    )


def as_line(result: Result) -> bytes:
    """One line of the results file: UTF-8, characters as they are, a line feed at its end."""
    record = {name: getattr(result, name) for name in Result.__dataclass_fields__}
    record["errors"] = [{k: v for k, v in asdict(problem).items() if v is not None} for problem in result.errors]
    record["usage"] = asdict(result.usage)
    record["timing"] = {k: _rounded(v) for k, v in asdict(result.timing).items()} if result.timing else None
    return json.dumps(record, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode() + b"\n"


def _verdict(completion: Completion) -> tuple[Status, Any, list[Problem]]:
    text, schema = completion.text, completion.request.job.schema
    if completion.finish_reason is FinishReason.ERROR:
        return Status.ERROR, text, [Problem("engine", completion.error or "the engine gave up without a reason")]
    if completion.finish_reason is FinishReason.CANCELLED:
        return Status.CANCELLED, text, [Problem("cancelled", "cancelled while it ran")]
    if completion.finish_reason is FinishReason.LENGTH:
        budget = completion.request.job.max_tokens
        return Status.TRUNCATED, text, [Problem("truncated", f"the answer was cut at max_tokens = {budget}")]
    if schema is None:
        return Status.OK, text, []
    try:
        output = json.loads(text)
        if is_too_deep(output):
            raise ValueError(f"nested more than {MOST_NESTED} levels deep")
        json.dumps(output, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # no JSON, half a surrogate pair, or a number beyond all floats
        return Status.INVALID, text, [Problem("not_json", f"the answer is not usable JSON: {_reason(error)}")]
    problems = validate(schema, output)
    return (Status.INVALID if problems else Status.OK), output, problems


def _reason(error: Exception) -> str:
    return "half a surrogate pair" if isinstance(error, UnicodeEncodeError) else str(error)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
