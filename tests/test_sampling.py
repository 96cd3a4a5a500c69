"""The reference sampler against naive readings of the same rules.  All seeds are fixed."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from batchrun.core import Sampling
from batchrun.sampling import allow, draw, uniform

quick = settings(deadline=None, max_examples=150)
seeds = st.integers(0, 2**32 - 1)
vocabs = st.integers(1, 200)


def random_logits(seed: int, vocab: int) -> NDArray[np.float32]:
    return (3 * np.random.default_rng(seed).standard_normal(vocab)).astype(np.float32)


def probabilities(logits: NDArray[np.float32], temperature: float) -> NDArray[np.float64]:
    weights = np.exp((logits.astype(np.float64) - float(logits.max())) / temperature)
    result: NDArray[np.float64] = weights / weights.sum()
    return result


def drawn(logits: NDArray[np.float32], sampling: Sampling, draws: int = 40) -> set[int]:
    return {draw(logits, sampling, position)[0] for position in range(draws)}


# -- masks


@quick
@given(seeds, vocabs)
def test_allow_forbids_what_the_mask_does_not_name(seed: int, vocab: int) -> None:
    words = np.random.default_rng(seed).integers(-(2**31), 2**31, (vocab + 31) // 32).astype(np.int32)
    logits = random_logits(seed, vocab)
    before = logits.copy()
    allow(logits, words)
    for token in range(vocab):
        is_allowed = int(words[token // 32]) >> (token % 32) & 1
        assert logits[token] == (before[token] if is_allowed else -np.inf)


def test_a_mask_of_ones_changes_nothing() -> None:
    logits = random_logits(1, 70)
    before = logits.copy()
    allow(logits, np.full(3, -1, np.int32))
    assert np.array_equal(logits, before)


@quick
@given(seeds, vocabs, st.sampled_from([0.0, 0.1, 1.0, 3.0]))
def test_a_forbidden_token_is_never_drawn(seed: int, vocab: int, temperature: float) -> None:
    random = np.random.default_rng(seed)
    words = np.zeros((vocab + 31) // 32, np.int32)
    few = random.choice(vocab, min(3, vocab), replace=False)
    for token in few:
        words[token // 32] |= np.int32(np.uint32(1 << (token % 32)).astype(np.int32))
    logits = random_logits(seed, vocab)
    allow(logits, words)
    assert drawn(logits, Sampling(temperature=temperature, seed=seed), 10) <= set(few.tolist())


# -- greedy


@quick
@given(seeds, vocabs)
def test_greedy_is_the_best_token_and_its_lead_over_the_second(seed: int, vocab: int) -> None:
    logits = random_logits(seed, vocab)
    token, margin, second = draw(logits, Sampling(seed=seed), position=3)
    ordered = np.sort(logits)[::-1]
    assert token == int(logits.argmax())
    assert margin == (float(ordered[0] - ordered[1]) if vocab > 1 else np.inf)
    assert vocab == 1 or (second != token and logits[second] == ordered[1])


def test_among_equals_greedy_takes_the_first_with_no_margin() -> None:
    assert draw(np.array([1, 5, 5, 2], np.float32), Sampling(), 0) == (1, 0.0, 2)


def test_a_lone_allowed_token_has_an_infinite_margin() -> None:
    logits = np.full(40, -np.inf, np.float32)
    logits[7] = -3
    assert draw(logits, Sampling(), 0)[:2] == (7, np.inf)
    assert draw(logits, Sampling(temperature=1.0), 0)[:2] == (7, np.inf)


# -- the sets that a draw is from


@quick
@given(seeds, vocabs, st.integers(1, 50), st.floats(0.2, 3.0))
def test_top_k_draws_from_the_k_best(seed: int, vocab: int, top_k: int, temperature: float) -> None:
    logits = random_logits(seed, vocab)
    best = set(np.argsort(-logits, kind="stable")[:top_k].tolist())
    assert drawn(logits, Sampling(temperature=temperature, top_k=top_k, seed=seed)) <= best


@quick
@given(seeds, vocabs, st.floats(0.01, 0.99), st.floats(0.2, 3.0))
def test_top_p_draws_from_the_smallest_set_that_holds_p(
    seed: int, vocab: int, top_p: float, temperature: float
) -> None:
    logits = random_logits(seed, vocab)
    chances = probabilities(logits, temperature)
    nucleus, held = set(), 0.0
    for token in np.argsort(-logits, kind="stable"):
        nucleus.add(int(token))
        held += chances[token]
        if held >= top_p + 1e-9:
            break
    assert drawn(logits, Sampling(temperature=temperature, top_p=top_p, seed=seed)) <= nucleus


@quick
@given(seeds, vocabs, st.floats(0.01, 1.0), st.floats(0.2, 3.0))
def test_min_p_draws_from_what_is_not_much_worse_than_the_best(
    seed: int, vocab: int, min_p: float, temperature: float
) -> None:
    logits = random_logits(seed, vocab)
    chances = probabilities(logits, temperature)
    close = set(np.flatnonzero(chances >= min_p * chances.max() * (1 - 1e-9)).tolist())
    assert drawn(logits, Sampling(temperature=temperature, min_p=min_p, seed=seed)) <= close


@pytest.mark.parametrize("narrow", [Sampling(1.0, top_k=1), Sampling(1.0, top_p=1e-9), Sampling(1.0, min_p=1.0)])
def test_the_narrowest_set_is_the_best_token(narrow: Sampling) -> None:
    logits = random_logits(5, 90)
    assert drawn(logits, narrow) == {int(logits.argmax())}


def test_the_limits_narrow_each_other() -> None:
    logits = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert drawn(logits, Sampling(1.0, top_k=3), 200) == {0, 1, 2}
    assert drawn(logits, Sampling(1.0, top_k=3, top_p=0.7), 200) == {0, 1}
    assert drawn(logits, Sampling(1.0, top_k=3, top_p=0.7, min_p=0.8), 200) == {0}


def test_a_tiny_temperature_is_greedy() -> None:
    logits = random_logits(6, 90)
    assert drawn(logits, Sampling(temperature=1e-6)) == {int(logits.argmax())}


# -- noise


@quick
@given(st.integers(0, 2**63 - 1), st.integers(0, 2**31))
def test_noise_is_a_share_that_depends_on_seed_and_position_only(seed: int, position: int) -> None:
    first = uniform(seed, position)
    uniform(seed + 1, position)
    assert 0 <= first < 1
    assert uniform(seed, position) == first


def test_another_seed_or_position_is_another_number() -> None:
    assert len({uniform(seed, position) for seed in range(30) for position in range(30)}) == 900


def test_a_draw_does_not_change_with_what_was_drawn_before_it() -> None:
    sampling = Sampling(temperature=1.0, seed=11)
    rows = [random_logits(seed, 60) for seed in range(20)]
    forward = [draw(logits, sampling, position) for position, logits in enumerate(rows)]
    backward = [draw(logits, sampling, position) for position, logits in reversed(list(enumerate(rows)))]
    assert forward == backward[::-1]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_follow_the_probabilities(temperature: float) -> None:
    logits = np.array([2.0, 0.0, 1.0, -1.0, 1.5], np.float32)
    counts = np.zeros(5)
    for position in range(4000):
        counts[draw(logits, Sampling(temperature=temperature, seed=3), position)[0]] += 1
    assert np.abs(counts / 4000 - probabilities(logits, temperature)).max() < 0.03


@quick
@given(seeds, vocabs, st.sampled_from([0.0, 0.7, 2.0]))
def test_a_draw_leaves_the_logits_as_they_were(seed: int, vocab: int, temperature: float) -> None:
    logits = random_logits(seed, vocab)
    before = logits.copy()
    draw(logits, Sampling(temperature, top_p=0.9, top_k=20, min_p=0.01, seed=seed), 5)
    assert np.array_equal(logits, before)
