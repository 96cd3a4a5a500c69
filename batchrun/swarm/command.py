"""The `swarm` command: asks, shows, and says what it took."""

import json
import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from rich.console import Console

from batchrun.assembly import Parts, open_parts
from batchrun.config import Settings
from batchrun.core import Result
from batchrun.printable import printable, printable_lines
from batchrun.swarm.cards import CardGrid
from batchrun.swarm.fan_out import SYNTHESIS, Answer, Answers, Question, View, fan_out, synthesis
from batchrun.swarm.roles import Role


class NobodyLooks:
    """Where standard output is no terminal."""

    def said(self, place: int, text: str) -> None:
        pass

    def ended(self, place: int, result: Result) -> None:
        pass


def ask(settings: Settings, question: Question, roles: Sequence[Role], *, synthesize: bool, as_json: bool) -> None:
    """Runs the swarm and prints its answers to standard output, what it took to standard error.

    Raises UsageError, ModelError, BackendError.
    """
    parts = open_parts(replace(settings, parallel=settings.parallel or len(roles), max_tokens=question.max_tokens))
    try:
        found = _asked(parts, question, roles, as_json=as_json)
        last = _asked(parts, synthesis(question, found.answers), [SYNTHESIS], as_json=as_json) if synthesize else None
    finally:
        parts.model.close()
    answers = found.answers + (last.answers if last else ())
    if as_json:
        print(json.dumps(_record(question, found, answers), indent=2))
    else:
        print("\n\n".join(map(_section, answers)))
    print(f"batchrun: {_took(found, last)}", file=sys.stderr)


def _asked(parts: Parts, question: Question, roles: Sequence[Role], *, as_json: bool) -> Answers:
    looks: AbstractContextManager[View] = (
        CardGrid(roles, Console(highlight=False)) if sys.stdout.isatty() and not as_json else nullcontext(NobodyLooks())
    )
    with looks as view:
        return fan_out(parts, question, roles, view)


def _section(answer: Answer) -> str:
    status = "" if answer.result.status == "ok" else f" ({answer.result.status.value})"
    return f"## {printable(answer.role.name)}{status}\n\n{printable_lines(answer.text.strip())}"


def _took(found: Answers, last: Answers | None) -> str:
    seconds = found.seconds + (last.seconds if last else 0.0)
    tokens = found.completion_tokens + (last.completion_tokens if last else 0)
    saved = found.prompt_tokens - found.computed_tokens
    thrown = f", {found.thrown_away} ended early" if found.thrown_away else ""
    return (
        f"{len(found.answers)} agents{thrown}, {tokens} tokens in {seconds:.1f} s, "
        f"{tokens / max(seconds, 1e-9):.0f} tokens/s; the shared prompt saved {max(0, saved)} of "
        f"{found.prompt_tokens} prompt tokens"
    )


def _record(question: Question, found: Answers, answers: Sequence[Answer]) -> dict[str, Any]:
    return {
        "question": question.text,
        "answers": [
            {
                "role": answer.role.name,
                "status": answer.result.status.value,
                "output": answer.result.output,
                "completion_tokens": answer.result.usage.completion_tokens,
            }
            for answer in answers
        ],
        "seconds": round(found.seconds, 3),
        "prompt_tokens": found.prompt_tokens,
        "computed_tokens": found.computed_tokens,
        "completion_tokens": found.completion_tokens,
        "ended_early": found.thrown_away,
    }
