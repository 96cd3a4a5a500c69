"""SmolLM2 from the same GGUF on MLX and on llama.cpp: the same prompts, nearly the same logits, the same answers.

On a Linux processor this takes OpenBLAS; without it these tests are skipped, for MLX is too slow then.
"""

import importlib.util
import json
import sys
import time
from collections.abc import Iterator
from typing import Any

import jsonschema
import numpy as np
import pytest

from batchrun.assembly import Parts, job_reader, open_parts
from batchrun.backends.base import Backend, LoadPlan
from batchrun.backends.mlx_blas import openblas
from batchrun.config import Settings
from batchrun.core import Completion, Feed, Job, Request, Sampling
from batchrun.cost import Cost
from batchrun.engine import NEAR_TIE_LOGITS, Engine
from batchrun.width import Width

pytestmark = [
    pytest.mark.skipif(not importlib.util.find_spec("mlx_lm"), reason="needs the mlx extra"),
    pytest.mark.skipif(
        sys.platform == "linux" and openblas() is None, reason="needs OpenBLAS: apt install libopenblas0-pthread"
    ),
]

PROMPTS = [
    "What is the capital of France? Answer in one sentence.",
    "Name three colours of the rainbow.",
    "Write one sentence about a harbour at night.",
    "What do bees make? Answer briefly.",
]
MOST_TOKENS = 14
PLAN = LoadPlan(4, 6, 512, 512, threads=1)  # more would wait for each other on a machine that others use too
MOST_LOGITS, MEAN_LOGITS = 1.0, 0.2
"""How far the engines' logits may lie apart, at most and as root mean square about their mean (which softmax does not
see); the logits themselves deviate by 3.5.  The weights are the same numbers (`test_mlx_gguf.py`), but llama.cpp rounds
the activations in front of a quantised matrix to 8 bits, 30 layers in a row; MLX computes in 32-bit floats.  Measured:
0.78 and 0.14."""
LABEL = {
    "type": "object",
    "properties": {"label": {"enum": ["food", "place", "colour", "other"]}},
    "required": ["label"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def engines() -> Iterator[dict[str, Parts]]:
    """The embedded file as it is, opened for each engine."""
    opened = {name: open_parts(Settings(engine=name, weights="as-is"), profiled=False) for name in ("llamacpp", "mlx")}
    yield opened
    for parts in opened.values():
        parts.model.close()


@pytest.fixture(scope="module")
def backends(engines: dict[str, Parts]) -> Iterator[dict[str, Backend]]:
    loaded = {name: parts.model.load(PLAN, lambda: False) for name, parts in engines.items()}
    yield loaded
    for backend in loaded.values():
        backend.close()


def requests(parts: Parts, schema: Any = None) -> list[Request]:
    reader = job_reader(parts.settings, None)
    more = {"schema": schema} if schema else {}
    lines = [{"prompt": prompt, "max_tokens": MOST_TOKENS} | more for prompt in PROMPTS]
    jobs = [reader.read(json.dumps(line).encode(), number) for number, line in enumerate(lines, 1)]
    return [parts.preparer.prepare(job, "", 0.0) for job in jobs if isinstance(job, Job)]


def answers(parts: Parts, backend: Backend, wanted: list[Request], rows: int = 4) -> dict[str, Completion]:
    engine = Engine(
        backend, parts.model.tokenizer, parts.guide, Cost(), time.monotonic, width=Width(rows, rows, fixed=True)
    )
    engine.submit(wanted)
    ended: dict[str, Completion] = {}
    while not engine.idle:
        ended |= {completion.request.job.id: completion for completion in engine.step()}
    return ended


def parting(one: Completion, other: Completion) -> int | None:
    pairs = zip(one.tokens, other.tokens, strict=False)
    return next((place for place, (a, b) in enumerate(pairs) if a != b), None)


def near_tie(one: Completion, other: Completion, place: int) -> bool:
    return any(tie.place == place and tie.margin < NEAR_TIE_LOGITS for c in (one, other) for tie in c.near_ties)


def test_both_engines_see_the_same_model_and_the_same_prompts(engines: dict[str, Parts]) -> None:
    one, other = engines["llamacpp"], engines["mlx"]
    for name in ("identity", "name", "context_train", "weights_bytes", "cell_bytes"):
        assert getattr(one.model.card, name) == getattr(other.model.card, name)
    assert one.model.template.text == other.model.template.text
    assert [wanted.tokens for wanted in requests(one)] == [wanted.tokens for wanted in requests(other)]
    assert one.model.tokenizer.stop_tokens == other.model.tokenizer.stop_tokens
    job = requests(one)[0].job
    assert one.preparer.digest(job) == other.preparer.digest(job)


def test_the_logits_of_a_prompt_agree(
    engines: dict[str, Parts], backends: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    import llama_cpp

    from batchrun.backends.mlx_device import mx
    from batchrun.backends.mlx_library import make_prompt_cache

    tokens = list(requests(engines["mlx"])[0].tokens)
    llama, mlx = backends["llamacpp"], backends["mlx"]
    llama.sample(llama.forward([Feed(0, 0, tokens, Sampling())]), None)
    one = np.ctypeslib.as_array(llama_cpp.llama_get_logits(llama._context), (1, llama.limits.vocab))[0].copy()
    llama.free(0)
    other = np.array(mlx._model(mx.array([tokens]), cache=make_prompt_cache(mlx._model))[0, -1])
    apart = one - other
    most, mean = float(np.abs(apart).max()), float(apart.std())
    with capsys.disabled():
        print(f"\nlogits apart by {most:.2f} at most, {mean:.2f} on the mean; they deviate by {other.std():.2f}")
    assert most < MOST_LOGITS
    assert mean < MEAN_LOGITS
    assert len(set(np.argsort(one)[-10:]) & set(np.argsort(other)[-10:])) >= 8


def test_greedy_answers_agree_up_to_near_ties(
    engines: dict[str, Parts], backends: dict[str, Backend], capsys: pytest.CaptureFixture[str]
) -> None:
    one, other = (answers(engines[name], backends[name], requests(engines[name])) for name in ("llamacpp", "mlx"))
    places = {job_id: parting(one[job_id], other[job_id]) for job_id in one}
    with capsys.disabled():
        print(f"\n{sum(place is None for place in places.values())} of {len(places)} answers the same on both engines")
    for job_id, place in places.items():
        assert place is None or near_tie(one[job_id], other[job_id], place), f"{job_id} parts at token {place}"
    assert "Paris" in one["1"].text
    assert "Paris" in other["1"].text


def test_a_row_says_the_same_alone_and_among_others(engines: dict[str, Parts], backends: dict[str, Backend]) -> None:
    """In 32-bit floats there is nothing to round up: partings are near-ties of a hundredth of a logit."""
    parts, backend = engines["mlx"], backends["mlx"]
    together = answers(parts, backend, requests(parts))
    for job_id, completion in answers(parts, backend, requests(parts), rows=1).items():
        place = parting(completion, together[job_id])
        assert place is None or near_tie(completion, together[job_id], place)


def test_guided_answers_validate_beside_free_ones(engines: dict[str, Parts], backends: dict[str, Backend]) -> None:
    parts, backend = engines["mlx"], backends["mlx"]
    free, guided = requests(parts)[:1], requests(parts, LABEL)[2:]
    said = answers(parts, backend, [*free, *guided])
    for wanted in guided:
        jsonschema.validate(json.loads(said[wanted.job.id].text), LABEL)
    alone = answers(parts, backend, free)
    for wanted in free:
        place = parting(said[wanted.job.id], alone[wanted.job.id])
        assert place is None or near_tie(said[wanted.job.id], alone[wanted.job.id], place)
