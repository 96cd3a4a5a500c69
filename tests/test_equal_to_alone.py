"""The main property: what a job says does not depend on who runs beside it.

Every workload runs twice on the toy model: all jobs together, with shared prefixes, guided and free rows, portions
that come while others run, cancellations and every odd limit and pace; and each job alone.  The toy model's text is a
hash of all that lies in a slot, and its referee asserts the seam's rules at every move.

The same holds where rows look ahead, whatever they propose: here an oracle does, who knows what a row will say and
now and then says something else.
"""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle

import jsonschema
import pytest
from building import GUIDE, MOST_STEPS, TOKENIZER, alone, engine, finish, limits, request, schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun import engine as engine_module
from batchrun.backends.fake import END_OF_TEXT, VOCAB, FakeBackend
from batchrun.core import Completion, FinishReason, Limits, Pace, Request
from batchrun.cost import Cost
from batchrun.guide import Guide
from batchrun.stats import Meter

PERSON = {
    "type": "object",
    "properties": {"first_name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 150}},
    "required": ["first_name", "age"],
    "additionalProperties": False,
}
VERDICT = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["acceptable", "accepted", "refused"]},
        "reasons": {"type": "array", "items": {"enum": ["price", "quality"]}, "maxItems": 2},
    },
    "required": ["verdict", "reasons"],
    "additionalProperties": False,
}
NUMBERS = {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4}
TEXT = {"type": "string", "maxLength": 20}
SCHEMAS = [TEXT, PERSON, VERDICT, NUMBERS]
GRAMMARS = [GUIDE.compile(schema(content)) for content in SCHEMAS]
CONTENT_OF = dict(zip(GRAMMARS, SCHEMAS, strict=True))

SYSTEM = "An instruction that many jobs share, word for word. "
PAGE = "A page of some document, long enough. " * 2
BEGINNINGS = [
    SYSTEM,
    SYSTEM + PAGE,
    SYSTEM + PAGE + "And a question that some of its readers share. ",
    SYSTEM + "Another page of the same length, under the same instruction. ",
    PAGE,
    PAGE[:20],
    "A beginning that is too short.",
    "",
]


@dataclass
class Workload:
    """Requests in portions, the step at which each portion comes, and who is cancelled at which step."""

    limits: Limits
    rows: int
    paces: list[Pace]  # of the steps, over and over
    portions: dict[int, list[Request]]
    cancels: dict[int, list[Request]]

    @property
    def requests(self) -> list[Request]:
        return [wanted for portion in self.portions.values() for wanted in portion]


@st.composite
def jobs(draw: st.DrawFn) -> Request:
    beginning = draw(st.sampled_from(BEGINNINGS))
    tail = draw(st.text("abc", max_size=4)) or "."
    kind = draw(st.integers(-4, len(GRAMMARS) - 1))
    if kind >= 0:
        grammar = GRAMMARS[kind]
        return request(beginning + tail, len(grammar.opening) + draw(st.integers(1, 50)), grammar=grammar)
    stop = draw(st.lists(st.text("xyz 9", min_size=1, max_size=2), max_size=2))
    return request(beginning + tail, draw(st.integers(1, 30)), stop=tuple(stop))


class Paced(Cost):
    """What steps cost means nothing here: they are filled as it is told."""

    def __init__(self, paces: Sequence[Pace]) -> None:
        super().__init__()
        self._paces = cycle(paces)

    def pace(self, batch: int, rows: int) -> Pace:
        return next(self._paces)


def paces(batch: int, rows: int) -> st.SearchStrategy[list[Pace]]:
    pace = st.builds(Pace, st.integers(1, batch), st.integers(1, rows), st.integers(2, 10), st.integers(0, 10))
    return st.lists(pace, min_size=1, max_size=4)


@st.composite
def workloads(draw: st.DrawFn, *, always_cut: bool = False) -> Workload:
    requests = draw(st.one_of(st.lists(jobs(), min_size=1, max_size=5), st.lists(jobs(), min_size=8, max_size=20)))
    portions: dict[int, list[Request]] = {}
    for wanted in requests:
        portions.setdefault(draw(st.sampled_from([0, 0, 0, 1, 4, 9, 30])), []).append(wanted)
    cancels: dict[int, list[Request]] = {}
    for wanted in draw(st.lists(st.sampled_from(requests), max_size=3)):
        cancels.setdefault(draw(st.integers(0, 40)), []).append(wanted)
    rows = draw(st.integers(1, 12))
    slots = rows + draw(st.integers(0, 4))
    needed = max(wanted.need_tokens for wanted in requests)
    context = needed + draw(st.integers(0, 50))
    bounds = limits(
        slots,
        context,
        cells=draw(st.one_of(st.just(slots * context), st.integers(needed, slots * context))),
        batch=slots + draw(st.sampled_from([0, 1, 7, 40, 500])),
        cut=always_cut or draw(st.booleans()),
        chain=draw(st.sampled_from([1, 2, 8, 100])),
    )
    return Workload(bounds, rows, draw(paces(bounds.batch, rows)), portions, cancels)


def run_together(work: Workload) -> tuple[dict[Request, Completion], set[Request], Meter]:
    """All of a workload on one engine.  Gives the completions, who was cancelled, and the meter."""
    together = engine(FakeBackend(work.limits), rows=work.rows, cost=Paced(work.paces))
    said: dict[Request, Completion] = {}
    cancelled: set[Request] = set()
    for number in range(MOST_STEPS):
        together.submit(work.portions.get(number, []))
        if together.idle and number > max(work.portions):
            return said, cancelled, together.take_meter()
        for completion in together.step():
            assert completion.request not in said, "a request ended twice"
            said[completion.request] = completion
        for wanted in work.cancels.get(number, ()):
            if number >= arrival(work, wanted) and wanted not in said:
                cancelled.add(wanted)
                completion_or_none = together.cancel(wanted)
                if completion_or_none:
                    said[wanted] = completion_or_none
    raise AssertionError("the engine makes no progress")


def arrival(work: Workload, wanted: Request) -> int:
    return next(number for number, portion in work.portions.items() if wanted in portion)


def without_stop(wanted: Request) -> Request:
    return request(wanted.tokens, wanted.job.max_tokens, grammar=wanted.grammar)


def check_said(work: Workload, said: dict[Request, Completion], cancelled: set[Request]) -> None:
    """Every job said what it says alone; one that was cancelled had said the beginning of it."""
    for wanted in work.requests:
        if wanted not in said:
            assert wanted in cancelled
            continue
        completion = said[wanted]
        if wanted in cancelled:
            assert completion.finish_reason is FinishReason.CANCELLED
            assert alone(without_stop(wanted)).text.startswith(completion.text)
            continue
        reference = alone(wanted)
        assert completion.text == reference.text
        assert completion.finish_reason is reference.finish_reason
        assert completion.usage.completion_tokens == reference.usage.completion_tokens <= wanted.job.max_tokens
        assert completion.usage.forced_tokens == reference.usage.forced_tokens
        if wanted.grammar and completion.finish_reason is FinishReason.STOP:
            jsonschema.validate(json.loads(completion.text), CONTENT_OF[wanted.grammar])


patient = [HealthCheck.too_slow, HealthCheck.data_too_large]


@settings(max_examples=300, deadline=None, suppress_health_check=patient)
@given(workloads())
def test_every_job_says_what_it_says_alone(work: Workload) -> None:
    said, cancelled, _ = run_together(work)
    check_said(work, said, cancelled)


# -- with lookahead


@dataclass
class Guess:
    """How rows propose: so many tokens, of which those at some places are wrong; over and over."""

    lengths: list[int]  # of the steps
    wrong: list[int]  # what is added to each token of a proposal, by its place in the sequence

    def proposals(self, stories: Sequence[tuple[int, ...]]) -> type:
        """A `Trail` that knows how each of these sequences goes on."""
        wrong = self.wrong

        class Oracle:
            found, run = True, 5

            def __init__(self, tokens: list[int]) -> None:
                self._tokens = tokens

            def follow(self) -> None:
                pass

            def says(self, token: int) -> bool:
                return self.ahead(1) == (token,)

            def ahead(self, count: int) -> tuple[int, ...]:
                length = len(self._tokens)
                now = tuple(self._tokens)
                story = next((story for story in stories if len(story) > length and story[:length] == now), now)
                places = enumerate(story[length : length + count], length)
                return tuple((token + wrong[place % len(wrong)]) % (END_OF_TEXT + 1) for place, token in places)

        return Oracle


guesses = st.builds(
    Guess,
    st.lists(st.integers(0, 20), min_size=1, max_size=4),
    st.lists(st.sampled_from([0, 0, 0, 0, 0, 1, 3, 128]), min_size=1, max_size=12),
)


def whole_stories(requests: Sequence[Request]) -> list[tuple[int, ...]]:
    """What each request's slot would hold in the end, had it no stop strings; and ends behind that."""
    return [wanted.tokens + alone(without_stop(wanted)).tokens + (END_OF_TEXT,) * 9 for wanted in requests]


@contextmanager
def guessing(requests: Sequence[Request], guess: Guess) -> Iterator[None]:
    """Inside, every row of an engine that looks ahead proposes what the guess says."""
    lengths = cycle(guess.lengths)

    def chosen(runs: Sequence[tuple[int, int]], *_: object) -> tuple[set[int], int]:
        return {slot for slot, _ in runs}, next(lengths)

    oracle = guess.proposals(whole_stories(requests))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine_module, "chosen", chosen)
        patch.setattr(engine_module, "Trail", oracle)
        yield


def run_guessing(work: Workload, guess: Guess) -> tuple[dict[Request, Completion], set[Request], Meter]:
    with guessing(work.requests, guess):
        return run_together(work)


def test_every_job_says_what_it_says_alone_whatever_it_proposes() -> None:
    proposed, accepted = [], []

    @settings(max_examples=200, deadline=None, suppress_health_check=patient)
    @given(workloads(always_cut=True), guesses)
    def holds(work: Workload, guess: Guess) -> None:
        said, cancelled, meter = run_guessing(work, guess)
        check_said(work, said, cancelled)
        assert meter.accepted_tokens <= meter.proposed_tokens
        proposed.append(meter.proposed_tokens)
        accepted.append(meter.accepted_tokens)

    holds()
    assert 0 < sum(accepted) < sum(proposed)


def a_few_jobs() -> Iterator[Request]:
    for number in range(6):
        grammar = GRAMMARS[number % len(GRAMMARS)]
        yield request(f"{SYSTEM}Question {number}", 30, stop=("x ", "z"))
        yield request(f"{SYSTEM}Guided question {number}", len(grammar.opening) + 30, grammar=grammar)


def a_workload() -> Workload:
    requests = list(a_few_jobs())
    bounds = limits(slots=5, context=max(wanted.need_tokens for wanted in requests), batch=256)
    return Workload(bounds, 4, [Pace(256, 4)], {0: requests}, {})


def test_what_is_proposed_rightly_is_accepted_and_saves_steps() -> None:
    work = a_workload()
    plain, _, slow = run_guessing(work, Guess([0], [0]))
    said, cancelled, meter = run_guessing(work, Guess([8], [0]))
    check_said(work, said, cancelled)
    assert (slow.proposed_tokens, slow.accepted_tokens) == (0, 0)
    assert meter.accepted_tokens > 0.6 * meter.proposed_tokens  # not what lies behind a stop
    assert meter.steps < slow.steps / 2
    assert said.keys() == plain.keys()


def test_what_is_proposed_wrongly_is_refused_and_costs_no_step_more() -> None:
    work = a_workload()
    _, _, plain = run_guessing(work, Guess([0], [0]))
    said, cancelled, meter = run_guessing(work, Guess([8], [128]))
    check_said(work, said, cancelled)
    assert meter.proposed_tokens > 0
    assert meter.accepted_tokens == 0
    assert meter.steps == plain.steps
    assert meter.drawn_tokens == plain.drawn_tokens


def test_a_backend_that_cannot_cut_is_given_no_proposals() -> None:
    work = a_workload()
    work.limits = limits(slots=5, context=work.limits.context, batch=256, cut=False)
    said, cancelled, meter = run_guessing(work, Guess([8], [0]))
    check_said(work, said, cancelled)
    assert meter.proposed_tokens == 0


ANSWERS = {"type": "array", "items": {"enum": ["yes", "no"]}, "minItems": 2, "maxItems": 3}


def test_a_proposal_may_go_on_behind_the_end_of_a_guided_answer() -> None:
    """As a trail does that follows a document, in JSON, to the end of its turn."""
    guide = Guide(TOKENIZER.for_guide(), VOCAB)
    grammar = guide.compile(schema(ANSWERS))
    requests = [request("p" * number, len(grammar.opening) + 30, grammar=grammar) for number in range(1, 9)]
    with guessing(requests, Guess([16], [0])):
        running = engine(FakeBackend(limits(slots=3)), rows=2, guide=guide)
        running.submit(requests)
        said = {completion.request: completion.text for completion in finish(running)}
    assert said == {wanted: alone(wanted).text for wanted in requests}
    assert running.meter.accepted_tokens > 0


def test_cells_that_prefill_attended_to_are_the_same_with_proposals() -> None:
    work = a_workload()
    _, _, plain = run_guessing(work, Guess([0], [0]))
    _, _, meter = run_guessing(work, Guess([8], [0]))
    assert meter.computed_tokens == plain.computed_tokens
    assert meter.prefill_kcells == pytest.approx(plain.prefill_kcells)
