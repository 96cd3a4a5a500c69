"""The main property: what a job says does not depend on who runs beside it.

Every workload runs twice on the toy model: all jobs together, with shared prefixes, guided and free rows, portions
that come while others run, cancellations and every odd limit; and each job alone.  The toy model's text is a hash of
all that lies in a slot, and its referee asserts the seam's rules at every move.
"""

import json
from dataclasses import dataclass

import jsonschema
from building import GUIDE, MOST_STEPS, alone, engine, limits, request, schema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.backends.fake import FakeBackend
from batchrun.core import Completion, FinishReason, Limits, Request

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


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
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
        cut=draw(st.booleans()),
        forced_run_tokens=draw(st.integers(2, 10)),
        chain=draw(st.sampled_from([1, 2, 8, 100])),
    )
    return Workload(bounds, rows, portions, cancels)


def run_together(work: Workload) -> tuple[dict[Request, Completion], set[Request]]:
    """All of a workload on one engine.  Gives the completions, and who was cancelled."""
    together = engine(FakeBackend(work.limits), rows=work.rows)
    said: dict[Request, Completion] = {}
    cancelled: set[Request] = set()
    for number in range(MOST_STEPS):
        together.submit(work.portions.get(number, []))
        if together.idle and number > max(work.portions):
            return said, cancelled
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


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(workloads())
def test_every_job_says_what_it_says_alone(work: Workload) -> None:
    said, cancelled = run_together(work)
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
