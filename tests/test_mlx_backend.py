"""What the MLX backend promises beside equal rows: few waits, prefixes once, no mixed-up rows, and a word where it
cannot."""

import json
import time
from collections.abc import Iterator
from typing import Any

import jsonschema
import mlx_models
import pytest
from building import GUIDE, TOKENIZER, finish, request, schema
from mlx_models import VOCAB, MlxBackend, loaded, mlx_engine, plan, write_model

from batchrun.backends.mlx_device import MlxOptions, set_limits
from batchrun.backends.mlx_library import KVCache
from batchrun.backends.mlx_load import load_backend, why_one_by_one
from batchrun.core import Completion, FinishReason, Request, Sampling
from batchrun.engine import Engine
from batchrun.probe import run_probe

K = 8
CHOICE = {
    "type": "object",
    "properties": {
        "verdict": {"enum": ["accepted", "refused"]},
        "grade": {"type": "integer", "minimum": 1, "maximum": 9},
    },
    "required": ["verdict", "grade"],
    "additionalProperties": False,
}
GRAMMAR = GUIDE.compile(schema(CHOICE))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return loaded(write_model(tmp_path_factory.mktemp("mlx") / "full", "full"))


def engine(model: Any, rows: int, *, chain: int = K, prefixes: int = 2, **options: Any) -> Engine:
    return mlx_engine(MlxBackend(model, plan(rows, prefixes), VOCAB, chain=chain), rows, **options)


def lasting(model: Any, tokens: int, count: int) -> Iterator[Request]:
    """Requests whose answers are ended by their budget only."""
    number = 0
    while count:
        number += 1
        wanted = request(f"prompt number {number}", tokens)
        if mlx_models.alone(model, wanted, chain=K).finish_reason is FinishReason.LENGTH:
            count -= 1
            yield wanted


# -- waits


@pytest.mark.parametrize("rows", [1, 4])
def test_the_device_is_waited_for_once_a_chain(model: Any, rows: int, capsys: pytest.CaptureFixture[str]) -> None:
    """Counted over whole answers, prefill included; a prompt that joins a running batch takes two more waits."""
    running = engine(model, rows)
    running.submit(list(lasting(model, 160, rows)))
    tokens = sum(completion.usage.completion_tokens for completion in finish(running))
    waits = running.take_meter().upkeep.synchronisations
    with capsys.disabled():
        print(f"\n{rows} rows: {waits} waits for {tokens} tokens: {waits / tokens:.3f} (1/K + 5 %: {1.05 / K:.3f})")
    assert waits / tokens <= 1.05 / K
    assert waits <= 1.05 / K * tokens / rows + 2 * (rows - 1)


def test_a_guided_row_is_looked_at_after_every_token(model: Any) -> None:
    running = engine(model, 1)
    running.submit([request("prompt", 40, grammar=GRAMMAR)])
    completion = finish(running)[0]
    drawn = completion.usage.completion_tokens - completion.usage.forced_tokens
    assert running.take_meter().upkeep.synchronisations >= drawn


# -- prefixes


@pytest.mark.parametrize("readers", [2, 7])
def test_a_prefix_is_computed_once_for_all_its_readers(model: Any, readers: int) -> None:
    prefix = "A beginning that all of them share, word for word, and that is long enough to be worth it. "
    running = engine(model, 4)
    running.submit([request(f"{prefix}{place}", 3) for place in range(readers)])
    completions = finish(running)
    meter = running.take_meter()
    shared = len(prefix)
    assert meter.computed_tokens == shared + readers
    assert sum(completion.usage.cached_tokens for completion in completions) == shared * readers


# -- rows that come and go


def test_free_rows_stay_untouched_where_a_guided_row_joins_and_others_leave(model: Any) -> None:
    """Free rows first, then guided ones among them; rows end, are sliced out, and new ones are spliced in."""
    free = [request(f"free {place}", budget) for place, budget in enumerate((6, 40, 25, 40, 12, 30))]
    guided = [request(f"guided {place}", 60, grammar=GRAMMAR) for place in range(6)]
    running = engine(model, 4, prefixes=0, share_prefixes=False)
    said: dict[Request, Completion] = {}
    running.submit(free[:3])
    for _ in range(3):
        said |= {completion.request: completion for completion in running.step()}
    for one, other in zip(guided, [*free[3:], None, None, None], strict=True):
        running.submit([one] + ([other] if other else []))
        for _ in range(4):
            said |= {completion.request: completion for completion in running.step()}
    said |= {completion.request: completion for completion in finish(running)}
    for wanted in free:
        assert said[wanted].tokens == mlx_models.alone(model, wanted).tokens
    for wanted in guided:
        assert said[wanted].finish_reason is FinishReason.STOP
        jsonschema.validate(json.loads(said[wanted].text), CHOICE)
        assert said[wanted].tokens == mlx_models.alone(model, wanted).tokens
    upkeep = running.take_meter().upkeep
    assert upkeep.joins >= len(free) + len(guided) - 3, "most rows joined others"
    assert upkeep.leaves >= upkeep.joins - 1
    assert upkeep.seconds > 0


@pytest.mark.parametrize("rows", [1, 3])
def test_a_probe_between_steps_leaves_the_rows_that_run_where_they_are(model: Any, rows: int) -> None:
    backend = MlxBackend(model, plan(rows, 1), VOCAB, chain=1)
    running = mlx_engine(backend, rows, share_prefixes=False)
    running.submit([request(f"prompt {place}", 12) for place in range(rows)])
    said = [completion for _ in range(3) for completion in running.step()]
    running.take_meter()
    run_probe(backend, TOKENIZER, rows, time.monotonic)
    said += running.step()
    upkeep = running.take_meter().upkeep
    assert (upkeep.joins, upkeep.leaves) == (0, 0)
    for completion in [*said, *finish(running)]:
        assert completion.tokens == mlx_models.alone(model, completion.request).tokens


def test_random_rows_draw_the_same_beside_greedy_ones(model: Any) -> None:
    hot = [request("hot", 20, sampling=Sampling(temperature=1.0, seed=seed)) for seed in range(3)]
    running = engine(model, 4)
    running.submit([*hot, request("greedy", 20)])
    for completion in finish(running):
        assert completion.tokens == mlx_models.alone(model, completion.request).tokens


def test_a_listener_hears_chains_as_they_come(model: Any) -> None:
    heard: list[int] = []
    running = engine(model, 1, on_tokens=lambda _request, tokens: heard.append(len(tokens)))
    running.submit(list(lasting(model, 1 + 2 * K, 1)))
    finish(running)
    assert heard == [1, K, K]


# -- limits of the process


class Recorder:
    """In place of MLX: what it is told."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}

    def __getattr__(self, name: str) -> Any:
        return lambda value: self.told.update({name: value})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (MlxOptions(cache_bytes=1 << 20), {"set_cache_limit": 1 << 20}),
        (MlxOptions(cache_bytes=0, wired_bytes=5), {"set_cache_limit": 0, "set_wired_limit": 5}),
    ],
)
def test_the_wired_limit_is_touched_on_request_only(
    options: MlxOptions, told: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder()
    monkeypatch.setattr("batchrun.backends.mlx_device.mx", recorder)
    set_limits(options, 1)
    assert recorder.told == told


# -- models that mlx-lm cannot put side by side


class Uneven:
    """A model that does not do side by side what it does alone."""

    def __init__(self, model: Any, cache: Any = KVCache, deaf: bool = False) -> None:
        self._model, self._cache, self._deaf = model, cache, deaf
        self.layers = model.layers

    def make_cache(self) -> list[Any]:
        return [self._cache() for _ in self.layers]

    def __call__(self, tokens: Any, cache: Any) -> Any:
        if self._deaf and len(tokens) > 1:
            for layer in cache:
                layer.left_padding = layer.left_padding * 0  # so padding is attended to
        return self._model(tokens, cache=cache)


class Unmerged(KVCache):  # type: ignore[misc]
    """A cache that mlx-lm would not know how to put together with others."""

    @property
    def merge(self) -> Any:
        raise AttributeError


def test_a_model_that_is_computed_alike_shares_passes(model: Any) -> None:
    assert why_one_by_one(model, VOCAB) is None
    assert why_one_by_one(Uneven(model), VOCAB) is None


def test_a_model_that_attends_to_padding_does_not_share_passes(model: Any) -> None:
    assert "computes something else" in str(why_one_by_one(Uneven(model, deaf=True), VOCAB))


def test_a_kind_of_cache_without_a_batch_does_not_share_passes(model: Any) -> None:
    assert why_one_by_one(Uneven(model, Unmerged), VOCAB) == "mlx-lm has no batch of Unmerged"


def test_rows_of_such_a_model_run_one_at_a_time_and_say_the_same(model: Any) -> None:
    backend = MlxBackend(Uneven(model, Unmerged), plan(3), VOCAB, chain=4, batched=False)
    running = mlx_engine(backend, 3)
    running.submit([request(f"job {place}", 20, grammar=GRAMMAR if place == 1 else None) for place in range(5)])
    for completion in finish(running):
        assert completion.tokens == mlx_models.alone(model, completion.request).tokens
    assert running.take_meter().upkeep.joins == 0


def test_a_run_is_told_of_it_in_one_line(model: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchrun.backends.mlx_load.why_one_by_one", lambda *_: "mlx-lm has no batch of it")
    folder = write_model(tmp_path / "model", "full")
    backend = load_backend(folder, plan(2), VOCAB, MlxOptions(), lambda: False)
    assert backend.notices == ("this model's rows run one at a time: mlx-lm has no batch of it",)
