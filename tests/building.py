"""Small builders that several tests share: requests, limits, engines over the toy model, and a scheduler's walk."""

import itertools
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from batchrun.backends.fake import END_OF_TEXT, VOCAB, FakeBackend, FakeTokenizer
from batchrun.core import (
    Completion,
    Drawn,
    Feed,
    Grammar,
    Job,
    Limits,
    Outcome,
    Pace,
    Request,
    Sampling,
    Schema,
    Step,
)
from batchrun.cost import Cost
from batchrun.engine import Engine, OnTokens
from batchrun.guide import Guide
from batchrun.lookup import matching
from batchrun.prefix import Planned
from batchrun.scheduler import Scheduler
from batchrun.sequence import Sequence as Row
from batchrun.width import Width

TOKENIZER = FakeTokenizer()
GUIDE = Guide(TOKENIZER.for_guide(), VOCAB)
MOST_STEPS = 3000
"""Far beyond what any workload here needs: a walk that is not over by then never ends."""

_ids = itertools.count(1)


def schema(content: Any, name: str = "schema") -> Schema:
    return Schema(name, json.dumps(content, separators=(",", ":")), content)


def request(
    prompt: str | Sequence[int] = "prompt",
    max_tokens: int = 8,
    *,
    grammar: Grammar | None = None,
    stop: tuple[str, ...] = (),
    sampling: Sampling | None = None,
) -> Request:
    number = next(_ids)
    tokens = tuple(prompt.encode()) if isinstance(prompt, str) else tuple(prompt)
    job = Job(number, f"job-{number}", (), None, None, max_tokens, sampling or Sampling(), stop, None)
    return Request(job, f"digest-{number}", tokens, grammar)


def limits(
    slots: int = 4,
    context: int = 512,
    *,
    cells: int | None = None,
    batch: int = 64,
    cut: bool = True,
    chain: int = 1,
) -> Limits:
    cells = slots * context if cells is None else cells
    return Limits(slots, context, cells, batch, VOCAB, cut=cut, ahead=cut, chain=chain)


def ticking() -> Callable[[], float]:
    """A clock that moves one second whenever it is read."""
    seconds = itertools.count()
    return lambda: float(next(seconds))


def engine(
    backend: FakeBackend | None = None,
    *,
    rows: int = 2,
    guide: Guide = GUIDE,
    share_prefixes: bool = True,
    look_ahead: bool = True,
    clock: Callable[[], float] | None = None,
    cost: Cost | None = None,
    on_tokens: OnTokens | None = None,
) -> Engine:
    return Engine(
        backend or FakeBackend(limits()),
        TOKENIZER,
        guide,
        cost or Cost(),
        clock or ticking(),
        width=Width(rows, rows, fixed=True),
        share_prefixes=share_prefixes,
        look_ahead=look_ahead,
        on_tokens=on_tokens,
    )


def finish(running: Engine) -> list[Completion]:
    """Steps until nothing is left to do."""
    completions = []
    for _ in range(MOST_STEPS):
        if running.idle:
            return completions
        completions += running.step()
    raise AssertionError("the engine makes no progress")


def alone(wanted: Request) -> Completion:
    """The same job with the machine to itself: one slot, nothing shared, nothing cut short, a step for each draw."""
    backend = FakeBackend(limits(slots=1, context=wanted.need_tokens, batch=wanted.need_tokens))
    by_itself = engine(backend, rows=1, share_prefixes=False, look_ahead=False)
    by_itself.submit([wanted])
    return finish(by_itself)[0]


class ScriptedBackend(FakeBackend):
    """A referee like any other, but its rows say what `says` gives for each draw, by a feed that ends before it."""

    def __init__(self, limits: Limits, says: Callable[[Feed], int], margin: float = 1.0) -> None:
        super().__init__(limits)
        self._says = says
        self._margin = margin

    def sample(self, pending: list[Feed], masks: Any) -> list[Drawn]:
        super().sample(pending, masks)
        return [Drawn(feed.slot, self._says(upto), self._margin) for feed in pending for upto in single_draws(feed)]


def single_draws(feed: Feed) -> list[Feed]:
    """A feed as it would have been for each of its draws, had that been the last."""
    first = len(feed.tokens) - feed.proposed
    return [feed._replace(tokens=feed.tokens[: first + place], proposed=0) for place in range(feed.draws)]


def saying(prompt: str, answer: Sequence[int]) -> Callable[[Feed], int]:
    """For a row with this prompt: the tokens of an answer, one after the other, and ends behind them."""
    told = [*answer, *[END_OF_TEXT] * 50]
    return lambda feed: told[feed.start + len(feed.tokens) - len(prompt.encode())]


Answer = Callable[[Row, int], Outcome]


def one_token(row: Row, slot: int) -> Outcome:
    """A row that says one token a step until its budget is spent."""
    return Outcome(slot, (65,), None)


class Walk:
    """A scheduler, and the referee of `fake` who obeys it; `answer` says what a draw comes to.

    `pace`: of every step, unless a test says another.
    """

    def __init__(
        self,
        limits: Limits,
        rows: int,
        answer: Answer = one_token,
        requests: Sequence[Request] = (),
        *,
        pace: Pace | None = None,
    ) -> None:
        self.scheduler = Scheduler(limits, rows)
        self.backend = FakeBackend(limits)
        self.answer = answer
        self.pace = pace or Pace(limits.batch, rows)
        self.steps: list[Step] = []
        self.admitted: list[Row] = []
        self.ended: list[Row] = []
        self.submit(requests)

    def submit(self, requests: Sequence[Request]) -> None:
        """Queues requests that share nothing."""
        self.scheduler.submit(Planned(wanted, None) for wanted in requests)

    @property
    def prefill_tokens(self) -> int:
        return sum(step.prefill_tokens for step in self.steps)

    def row_of(self, wanted: Request) -> Row:
        return next(row for row in self.admitted if row.request is wanted)

    def plan(self, pace: Pace | None = None) -> Step:
        step = self.scheduler.plan(pace or self.pace)
        self.admitted += self.scheduler.admitted
        self.steps.append(step)
        return step

    def obey(self, step: Step) -> list[Row]:
        for slot in step.frees:
            self.backend.free(slot)
        for cut in step.cuts:
            self.backend.cut(cut)
        for copy in step.copies:
            self.backend.copy(copy)
        if step.feeds:
            self.backend.sample(self.backend.forward(step.feeds, step.chain), None)
        ended = self.scheduler.commit(step, [self._outcome(feed) for feed in step.feeds if feed.sampling])
        self.ended += ended
        return ended

    def _outcome(self, feed: Feed) -> Outcome:
        """A draw counts as long as all that was said before it in this step had been proposed."""
        row = self.scheduler.at(feed.slot)
        outcome = self.answer(row, feed.slot)
        said, drawn, finish = outcome.tokens, outcome.drawn, outcome.finish
        while not finish and matching(feed.proposal, said) == len(said):
            outcome = self.answer(replace(row, tokens=[*row.tokens, *said]), feed.slot)
            said, drawn, finish = said + outcome.tokens, drawn + outcome.drawn, outcome.finish
        return Outcome(feed.slot, said, finish, drawn)

    def step(self, pace: Pace | None = None) -> list[Row]:
        return self.obey(self.plan(pace))

    def run(self) -> list[Row]:
        for _ in range(MOST_STEPS):
            if self.scheduler.idle:
                return self.ended
            self.step()
        raise AssertionError("the scheduler makes no progress")
