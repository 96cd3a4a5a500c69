"""Chains: rows that nothing guides draw several tokens before anyone looks, and say what they say without."""

import itertools
from collections.abc import Sequence

import pytest
from building import GUIDE, alone, engine, finish, limits, request, schema
from hypothesis import given
from hypothesis import strategies as st

from batchrun.backends.fake import END_OF_TEXT, FakeBackend
from batchrun.core import Feed, FinishReason, Limits, Request, Sampling

WORD = GUIDE.compile(schema({"type": "string", "maxLength": 8}))
RANDOM = Sampling(temperature=1.0)
K = 8


class Recorder(FakeBackend):
    """A referee who keeps the chain of every step, by the rows that it had."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.chains: list[tuple[int, int]] = []

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> list[Feed]:
        self.chains.append((len(feeds), chain))
        return super().forward(feeds, chain)


def lasting(tokens: int, sampling: Sampling | None = None) -> Request:
    """A request whose answer is ended by its budget only."""
    for number in itertools.count():
        wanted = request(f"prompt {number}", tokens, sampling=sampling)
        if alone(wanted).finish_reason is FinishReason.LENGTH:
            return wanted
    raise AssertionError


def chains(*requests: Request, chain: int = K, batch: int = 64) -> list[tuple[int, int]]:
    """The rows and the chain of every step."""
    backend = Recorder(limits(batch=batch, chain=chain))
    running = engine(backend, share_prefixes=False)
    running.submit(requests)
    finish(running)
    return backend.chains


# -- how long a chain is


def test_free_rows_draw_whole_chains() -> None:
    assert chains(lasting(1 + 2 * K)) == [(1, 1), (1, K), (1, K)]


def test_a_chain_ends_with_the_nearest_budget() -> None:
    assert chains(lasting(1 + K + 3), lasting(1 + 2)) == [(2, 1), (2, 2), (1, K), (1, 1)]


def test_a_limit_of_one_knows_no_chains() -> None:
    assert chains(lasting(4), chain=1) == [(1, 1)] * 4


@pytest.mark.parametrize(
    "other", [request("other", 30, grammar=WORD), lasting(30, sampling=RANDOM)], ids=["guided", "random"]
)
def test_one_guided_or_random_row_makes_all_rows_draw_one_by_one(other: Request) -> None:
    assert {chain for rows, chain in chains(lasting(40), other) if rows == 2} == {1}


def test_nobody_chains_while_a_prompt_is_computed() -> None:
    found = chains(lasting(40), request("x" * 30, 1), batch=8)
    assert {chain for rows, chain in found if rows == 2} == {1}
    assert (1, K) in found


# -- what comes of it


def test_tokens_past_an_end_inside_a_chain_are_dropped() -> None:
    wanted = request("prompt", 400)
    reference = alone(wanted)
    assert reference.finish_reason is FinishReason.STOP
    for chain in (2, 7, 100):
        running = engine(FakeBackend(limits(chain=chain)))
        running.submit([wanted])
        completion = finish(running)[0]
        assert completion.tokens == reference.tokens
        assert END_OF_TEXT not in completion.tokens
        assert completion.usage == reference.usage


def test_a_stop_string_inside_a_chain_ends_the_answer_there() -> None:
    text = alone(request("prompt", 40)).text
    stop = text[20:22]
    reference = alone(request("prompt", 40, stop=(stop,)))
    running = engine(FakeBackend(limits(chain=16)))
    running.submit([request("prompt", 40, stop=(stop,))])
    completion = finish(running)[0]
    assert (completion.text, completion.tokens) == (reference.text, reference.tokens)


def test_the_device_is_waited_for_once_a_chain() -> None:
    running = engine(FakeBackend(limits(chain=K)), rows=1)
    running.submit([lasting(1 + 3 * K)])
    finish(running)
    assert running.take_meter().upkeep.synchronisations == 1 + 3


def test_steps_count_the_tokens_that_a_row_could_draw() -> None:
    running = engine(FakeBackend(limits(chain=K)), rows=1)
    running.submit([lasting(1 + K)])
    finish(running)
    meter = running.take_meter()
    assert meter.steps == 1 + K
    assert meter.rows == meter.steps


# -- who listens


@given(chain=st.sampled_from([1, 3, 8]), budgets=st.lists(st.integers(2, 30), min_size=1, max_size=6))
def test_a_listener_hears_every_token_once_and_in_order(chain: int, budgets: list[int]) -> None:
    heard: dict[Request, tuple[int, ...]] = {}

    def hear(wanted: Request, tokens: tuple[int, ...]) -> None:
        assert tokens
        heard[wanted] = heard.get(wanted, ()) + tokens

    running = engine(FakeBackend(limits(chain=chain)), on_tokens=hear)
    running.submit(
        [request(f"job {n}", budget, grammar=WORD if n % 2 else None) for n, budget in enumerate(budgets, 1)]
    )
    for completion in finish(running):
        assert heard.get(completion.request, ()) == completion.tokens


# -- what the referee refuses


def test_a_chain_beyond_the_limit_or_of_a_feed_that_does_not_draw_is_refused() -> None:
    for feed, chain in [
        (Feed(0, 0, [1], Sampling()), K + 1),
        (Feed(0, 0, [1], None), K),
        (Feed(0, 0, [1], RANDOM), K),
    ]:
        with pytest.raises(AssertionError, match="chain"):
            FakeBackend(limits(chain=K)).forward([feed], chain)


def test_a_chain_beyond_the_context_is_refused() -> None:
    with pytest.raises(AssertionError, match="is full"):
        FakeBackend(limits(context=4, chain=K)).forward([Feed(0, 0, [1], Sampling())], 5)
