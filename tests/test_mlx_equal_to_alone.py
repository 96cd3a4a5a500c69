"""On MLX a row says what it says alone, whoever joins and leaves beside it, on every kind of cache.

A hundred random schedules each on full attention, on sliding windows, and on a hybrid of attention and recurrent state:
jobs that come and go, are cancelled, share prefixes, are guided, have budgets and end anywhere, with prompt pieces and
chains of all sizes.  All in 32-bit floats, so what differs at more than a hair's margin is a bug.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Any

import mlx_models
import pytest
from building import GUIDE, MOST_STEPS, request, schema
from mlx_models import VOCAB, MlxBackend, loaded, mlx_engine, plan, write_model

from batchrun.core import Completion, FinishReason, Grammar, Request

SCHEDULES = {"full": 100, "sliding": 100, "hybrid": 100, "gated": 10}
HAIR_LOGITS = 0.01
MOST_TOKENS = 16
SYSTEM = "An instruction that many jobs share, word for word. "
PAGE = SYSTEM + "A page of some document that all of them read, long enough. "
PROMPTS = ["a", "no prefix", "x" * 50, *(SYSTEM + end for end in "ab"), *(PAGE + end for end in ("", "1", "22", "333"))]
GRAMMARS: list[Grammar | None] = [
    None,
    None,
    GUIDE.compile(schema({"type": "string", "maxLength": 12})),
    GUIDE.compile(schema({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 99}, "maxItems": 4})),
]


@dataclass(frozen=True, slots=True)
class Kind:
    """A model, and what each prompt says alone under each grammar and budget."""

    name: str
    model: Any
    said: dict[tuple[str, Grammar | None, int], Completion]


@pytest.fixture(scope="module", params=SCHEDULES)
def kind(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Kind:
    name = str(request.param)
    return Kind(name, loaded(write_model(tmp_path_factory.mktemp("models") / name, name)), {})


def alone(kind: Kind, prompt: str, wanted: Request) -> Completion:
    """What a job says by itself.  A budget shapes a guided answer, and only ends a free one."""
    grammar, budget = wanted.grammar, wanted.job.max_tokens if wanted.grammar else MOST_TOKENS
    key = (prompt, grammar, budget)
    if key not in kind.said:
        kind.said[key] = mlx_models.alone(kind.model, request(prompt, budget, grammar=grammar))
    return kind.said[key]


@dataclass
class Schedule:
    """Jobs by the step at which they come, and those who are cancelled by the step at which that happens."""

    backend: MlxBackend
    rows: int
    share_prefixes: bool
    arrivals: dict[int, list[tuple[Request, str]]]
    cancels: dict[int, list[Request]]


def drawn(kind: Kind, random: Random) -> Schedule:
    rows, prefixes = random.randint(1, 5), random.randint(0, 2)
    batch = rows + prefixes + random.choice([0, 5, 20, 200])
    backend = MlxBackend(
        kind.model, plan(rows, prefixes, batch=batch), VOCAB, chain=random.choice([1, 2, 5, 8]), batched=True
    )
    arrivals: dict[int, list[tuple[Request, str]]] = {}
    cancels: dict[int, list[Request]] = {}
    for _ in range(random.randint(2, 6)):
        prompt, grammar = random.choice(PROMPTS), random.choice(GRAMMARS)
        least = len(grammar.opening) + 1 if grammar else 1
        wanted = request(prompt, random.randint(least, MOST_TOKENS), grammar=grammar)
        when = random.choice([0, 0, 0, 2, 7, 15])
        arrivals.setdefault(when, []).append((wanted, prompt))
        if random.random() < 0.15:
            cancels.setdefault(when + random.randint(1, 15), []).append(wanted)
    return Schedule(backend, rows, random.random() < 0.7, arrivals, cancels)


def ended(schedule: Schedule) -> Iterator[Completion]:
    engine = mlx_engine(schedule.backend, schedule.rows, share_prefixes=schedule.share_prefixes)
    for step in range(MOST_STEPS):
        engine.submit([wanted for wanted, _ in schedule.arrivals.get(step, [])])
        if engine.idle and step > max(schedule.arrivals):
            return
        yield from engine.step()
        for wanted in schedule.cancels.get(step, []):
            cancelled = engine.cancel(wanted)
            if cancelled:
                yield cancelled
    raise AssertionError("the engine makes no progress")


def test_every_row_says_what_it_says_alone(kind: Kind, capsys: pytest.CaptureFixture[str]) -> None:
    rows = near_ties = joins = 0
    for seed in range(SCHEDULES[kind.name]):
        schedule = drawn(kind, Random(seed))
        prompts = {wanted: prompt for portion in schedule.arrivals.values() for wanted, prompt in portion}
        for completion in ended(schedule):
            assert completion.error is None
            wanted = completion.request
            reference = alone(kind, prompts[wanted], wanted)
            rows += 1
            near_ties += parts_at_a_hair(completion, reference, f"schedule {seed}, {wanted.job.id}")
        joins += schedule.backend.take_upkeep().joins
    with capsys.disabled():
        print(f"\n{kind.name}: {rows} rows, {joins} joins, {near_ties} parted at less than {HAIR_LOGITS} logits")
    assert near_ties <= rows / 20


def parts_at_a_hair(completion: Completion, reference: Completion, label: str) -> bool:
    """Whether a row parted from itself alone, where the best two tokens were as good as equal.  Fails for any other."""
    for place, (one, other) in enumerate(zip(completion.tokens, reference.tokens, strict=False)):
        if one != other:
            margins = [margin for c in (completion, reference) for at, margin in c.near_ties if at == place]
            assert margins, f"{label} parts at token {place} with a clear margin"
            assert min(margins) < HAIR_LOGITS, f"{label} parts at token {place} by {min(margins)} logits"
            return True
    said, whole = len(completion.tokens), min(len(reference.tokens), completion.request.job.max_tokens)
    cancelled = completion.finish_reason is FinishReason.CANCELLED
    assert said <= whole if cancelled else said == whole, f"{label} says {said} tokens, and alone {whole}"
    return False
