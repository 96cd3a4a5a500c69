"""Judges completions and writes results down as lines.

`ok` means: the answer ended by itself, parses, and passes its schema with formats checked.  Nothing else is `ok`.
"""

import json
import re
from collections.abc import Mapping
from typing import Any

from batchrun.core import (
    Closed,
    Completion,
    FinishReason,
    Job,
    Problem,
    Quote,
    Rejection,
    Result,
    Status,
    Timing,
    Usage,
)
from batchrun.schemas import MOST_NESTED, is_too_deep, quotes, validate

OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""C1 controls, line and paragraph separators, and the marks that turn the direction of text around."""

OPTIONAL = ("document", "copy_of", "schema", "slot", "ended_at")
"""Fields that stand in a line only where they say something."""


def judge(completion: Completion, model: str, burst: int) -> Result:
    """The result of a completion.  `model`: its name as results show it."""
    job = completion.request.job
    status, output, errors = _verdict(completion)
    verbatim = quotes(job.schema, output, job.document or "") if status is Status.OK and job.schema else ()
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
        attempt=completion.request.attempt,
        model=model,
        digest=completion.request.digest,
        meta=job.meta,
        closed_by_budget=Closed.BUDGET in completion.closed,
        closed_by_runaway=Closed.RUNAWAY in completion.closed,
        verbatim=verbatim,
        schema=job.schema.name if job.schema else None,
        slot=completion.slot,
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


def from_record(record: Mapping[str, Any], job: Job) -> Result:
    """The result of a line on record, for a job that asks the same: what it says, and nothing of how it ran."""
    return Result(
        id=job.id,
        index=job.index,
        status=Status(record["status"]),
        output=record["output"],
        finish_reason=FinishReason(record["finish_reason"]),
        errors=tuple(Problem(**problem) for problem in record["errors"]),
        usage=Usage(),
        timing=None,
        burst=None,
        attempt=1,
        model=record["model"],
        digest=record["digest"],
        meta=job.meta,
        closed_by_budget=record.get("closed_by_budget", False),
        closed_by_runaway=record.get("closed_by_runaway", False),
        verbatim=tuple(Quote(**quote) for quote in record.get("verbatim", ())),
        document=record.get("document"),
        schema=record.get("schema"),
    )


def as_line(result: Result) -> bytes:
    """One line of the results file: UTF-8, a line feed at its end, characters as they are but those that a terminal
    obeys or that some readers take for the end of a line: these are written as JSON escapes.
    """
    record = {name: getattr(result, name) for name in Result.__dataclass_fields__}
    record["errors"] = [_present(problem) for problem in result.errors]
    record["verbatim"] = [
        {name: getattr(quote, name) for name in Quote.__dataclass_fields__} for quote in result.verbatim
    ]
    record["usage"] = {name: getattr(result.usage, name) for name in Usage.__dataclass_fields__}
    timing = result.timing
    record["timing"] = timing and {name: _rounded(getattr(timing, name)) for name in Timing.__dataclass_fields__}
    for name in OPTIONAL:
        if record[name] is None:
            del record[name]
    return as_json(record).encode() + b"\n"


def as_json(value: Any, indent: int | None = None) -> str:
    """JSON, compact unless it is indented, without a character that a terminal obeys."""
    separators = (",", ":") if indent is None else None
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent, separators=separators)
    if text.isascii() and "\x7f" not in text:
        return text
    return OBEYED.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _present(problem: Problem) -> dict[str, Any]:
    return {name: value for name in Problem.__dataclass_fields__ if (value := getattr(problem, name)) is not None}


def _verdict(completion: Completion) -> tuple[Status, Any, list[Problem]]:
    text, schema = completion.text, completion.request.job.schema
    if completion.finish_reason is FinishReason.ERROR:
        return Status.ERROR, text, [Problem("engine", completion.error or "the engine gave up without a reason")]
    if completion.finish_reason is FinishReason.CANCELLED:
        return Status.CANCELLED, text, [Problem("cancelled", completion.error or "cancelled while it ran")]
    if completion.finish_reason is FinishReason.EXPIRED:
        return Status.EXPIRED, text, [Problem("expired", completion.error or "its time was up while it ran")]
    if completion.finish_reason is FinishReason.LENGTH:
        budget = completion.request.job.max_tokens
        return Status.TRUNCATED, text, [Problem("truncated", f"the answer was cut at max_tokens = {budget}")]
    if schema is None or not schema.is_json:
        return Status.OK, text, []
    try:
        output = json.loads(text)
        if is_too_deep(output):
            raise ValueError(f"nested more than {MOST_NESTED} levels deep")
        json.dumps(output, ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:  # no JSON, half a surrogate pair, or a number beyond all floats
        return Status.INVALID, text, [Problem("not_json", f"the answer is not usable JSON: {_reason(error)}")]
    problems = validate(schema, output, completion.request.job.document)
    return (Status.INVALID if problems else Status.OK), output, problems


def _reason(error: Exception) -> str:
    return "half a surrogate pair" if isinstance(error, UnicodeEncodeError) else str(error)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
