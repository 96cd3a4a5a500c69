"""Runs one question for all roles in one batch, and tells a view what each agent says as it says it.

The document and the question stand before the role's task, so all agents share them and they are computed once.
"""

import codecs
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from batchrun.assembly import Parts, job_reader, slot_plan, too_long
from batchrun.backends.base import Interrupted
from batchrun.core import Completion, Job, Request, Result, Status
from batchrun.cost import Cost
from batchrun.engine import Engine
from batchrun.errors import UsageError
from batchrun.results import judge
from batchrun.swarm.roles import Role
from batchrun.width import Width

SYNTHESIS = Role("Synthesis", "Read what the agents said, and give the one answer that they support together.")


@dataclass(frozen=True, slots=True)
class Question:
    """What all agents are given.  `keep`: how many of the first good answers end the rest, or None for all."""

    text: str
    document: str | None = None
    schema: str | None = None
    max_tokens: int = 128
    keep: int | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What an agent said, judged like any result of a run."""

    role: Role
    text: str
    result: Result


@dataclass(frozen=True, slots=True)
class Answers:
    """All answers in the order of their roles, and what they took.  `computed_tokens`: prompt tokens that went through
    the model, the shared ones once.
    """

    answers: tuple[Answer, ...]
    seconds: float
    computed_tokens: int
    thrown_away: int

    @property
    def prompt_tokens(self) -> int:
        return sum(answer.result.usage.prompt_tokens for answer in self.answers)

    @property
    def completion_tokens(self) -> int:
        return sum(answer.result.usage.completion_tokens for answer in self.answers)


class View(Protocol):
    """Whoever looks on.  `place`: the role's place among the roles."""

    def said(self, place: int, text: str) -> None:
        """More of an answer has come; `text` is what is new."""
        ...

    def ended(self, place: int, result: Result) -> None:
        """An agent has finished, or was ended."""
        ...


@dataclass(slots=True)
class _Agent:
    """One branch while it runs."""

    place: int
    role: Role
    request: Request
    answer: Answer | None = None
    decoder: codecs.IncrementalDecoder = field(default_factory=codecs.getincrementaldecoder("utf-8"))

    def __post_init__(self) -> None:
        self.decoder.errors = "replace"


def fan_out(
    parts: Parts, question: Question, roles: Sequence[Role], view: View, stopped: Callable[[], bool] = lambda: False
) -> Answers:
    """Runs all roles.  Once `stopped()` is true, those that run end as they are, and the answers are what there is.

    Raises UsageError where a job cannot run, BackendError where the engine fails.
    """
    agents = [_Agent(place, role, _request(parts, question, role, place)) for place, role in enumerate(roles)]
    load = slot_plan(parts, max(agent.request.need_tokens for agent in agents))
    for agent in agents:
        if agent.request.need_tokens > load.context:
            problem = too_long(agent.request, load.context, parts.model.card.context_train)
            raise UsageError(f"agent {agent.role.name}: {problem.message}; expected a shorter --document")
    try:
        backend = parts.model.load(load, stopped)
    except Interrupted:
        return Answers((), 0.0, 0, 0)
    by_request = {agent.request: agent for agent in agents}

    def hear(request: Request, tokens: tuple[int, ...]) -> None:
        agent = by_request[request]
        view.said(agent.place, agent.decoder.decode(parts.model.tokenizer.decode(tokens)))

    width = Width(load.rows, load.rows, fixed=True)
    engine = Engine(backend, parts.model.tokenizer, parts.guide, Cost(), time.perf_counter, width=width, on_tokens=hear)
    began_s = time.perf_counter()
    try:
        engine.submit([agent.request for agent in agents])
        thrown_away = _run(parts, engine, by_request, question.keep, view, stopped)
        computed_tokens = engine.take_meter().computed_tokens
    finally:
        backend.close()
    answers = tuple(agent.answer for agent in agents if agent.answer)
    return Answers(answers, time.perf_counter() - began_s, computed_tokens, thrown_away)


def _run(
    parts: Parts,
    engine: Engine,
    agents: dict[Request, _Agent],
    keep: int | None,
    view: View,
    stopped: Callable[[], bool],
) -> int:
    """Steps until all have ended.  Gives how many were ended early: enough others had answered, or it was stopped."""

    def end(completion: Completion) -> Result:
        agent, result = agents[completion.request], judge(completion, parts.model.card.name, 1)
        agent.answer = Answer(agent.role, completion.text, result)
        view.ended(agent.place, result)
        return result

    good = 0
    while not engine.idle:
        good += sum(end(completion).status is Status.OK for completion in engine.step())
        if stopped() or (keep is not None and good >= keep):
            engine.drop_waiting()
            lost = [agent.request for agent in agents.values() if agent.answer is None]
            for completion in map(engine.cancel, lost):
                if completion:
                    end(completion)
            return len(lost)
    return 0


def synthesis(question: Question, answers: Sequence[Answer]) -> Question:
    """The last step's question: the same, over what the agents said."""
    said = "\n\n".join(f"{answer.role.name}:\n{answer.text.strip()}" for answer in answers)
    return Question(question.text, said, None, question.max_tokens)


def _request(parts: Parts, question: Question, role: Role, place: int) -> Request:
    lead = f"{question.document}\n\n" if question.document else ""
    record = {
        "id": role.name,
        "prompt": f"{lead}Question: {question.text}\n\n{role.task}",
        "max_tokens": question.max_tokens,
    }
    if question.schema:
        record["schema"] = question.schema
    job = job_reader(parts.settings, None).read(json.dumps(record).encode(), place + 1)
    if not isinstance(job, Job):
        raise UsageError(f"agent {role.name} cannot run: {job.problem.message}")
    return parts.preparer.prepare(job, "", time.perf_counter())
