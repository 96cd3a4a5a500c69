"""The `swarm` command: asks, shows, and says what it took."""

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from rich.console import Console

from batchrun.assembly import Parts, open_parts
from batchrun.config import Settings
from batchrun.core import Result, Status
from batchrun.printable import printable, printable_lines
from batchrun.swarm.cards import CardGrid
from batchrun.swarm.fan_out import SYNTHESIS, Answer, Answers, Question, View, fan_out, synthesis
from batchrun.swarm.roles import Role
from batchrun.swarm.stopping import CtrlC

STOPPED = 130


class NobodyLooks:
    """Where standard output is no terminal."""

    def said(self, place: int, text: str) -> None:
        pass

    def ended(self, place: int, result: Result) -> None:
        pass


def ask(settings: Settings, question: Question, roles: Sequence[Role], *, synthesize: bool, as_json: bool) -> int:
    """Runs the swarm and prints its answers to standard output, what it took to standard error.  Gives the status to
    exit with: 3 where some are not good, as of a run; 130 where it was stopped, which prints what there is.

    Raises UsageError, ModelError, BackendError; KeyboardInterrupt where it was stopped before anybody spoke.
    """
    parts = open_parts(replace(settings, parallel=settings.parallel or len(roles), max_tokens=question.max_tokens))
    try:
        with CtrlC() as ctrl_c:

            def asked(question: Question, roles: Sequence[Role]) -> Answers:
                return _asked(parts, question, roles, lambda: ctrl_c.pressed, as_json=as_json)

            found = asked(question, roles)
            goes_on = synthesize and not ctrl_c.pressed
            last = asked(synthesis(question, found.answers), [SYNTHESIS]) if goes_on else None
    finally:
        parts.model.close()
    answers = found.answers + (last.answers if last else ())
    if ctrl_c.pressed:
        answers = tuple(answer for answer in answers if answer.text or answer.result.status is not Status.CANCELLED)
        if not answers:
            raise KeyboardInterrupt
    if as_json:
        print(json.dumps(_record(question, found, answers), indent=2))
    else:
        print("\n\n".join(map(_section, answers)))
    if ctrl_c.pressed:
        print(f"batchrun: {_stopped(answers, len(roles) + goes_on)}", file=sys.stderr)
        return STOPPED
    print(f"batchrun: {_took(found, last)}", file=sys.stderr)
    return _exit_status(answers, question.keep)


def _exit_status(answers: Sequence[Answer], keep: int | None) -> int:
    """Enough good ones are all that `keep` asks for."""
    statuses = [answer.result.status for answer in answers]
    if keep is not None and statuses.count(Status.OK) >= keep:
        return 0
    return 0 if set(statuses) == {Status.OK} else 3


def _stopped(answers: Sequence[Answer], agents: int) -> str:
    begun = sum(answer.result.status is Status.CANCELLED for answer in answers)
    rest = f"; what {begun} others had begun to say is marked (cancelled)" if begun else ""
    return f"stopped; {len(answers) - begun} of {agents} agents had finished{rest}"


def _asked(
    parts: Parts, question: Question, roles: Sequence[Role], stopped: Callable[[], bool], *, as_json: bool
) -> Answers:
    looks: AbstractContextManager[View] = (
        CardGrid(roles, Console(highlight=False)) if sys.stdout.isatty() and not as_json else nullcontext(NobodyLooks())
    )
    with looks as view:
        return fan_out(parts, question, roles, view, stopped)


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
