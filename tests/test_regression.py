"""Weights are found from noisy observations, stay where nothing speaks for another value, and never become negative."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.regression import Regression

quick = settings(deadline=None, max_examples=100)
FIRST = (0.01, 0.005, 0.002)
weights = st.tuples(st.floats(0.001, 0.1), st.floats(0.001, 0.1), st.floats(0.0005, 0.1))


def features(chance: random.Random) -> tuple[float, float, float]:
    """As steps have them: a pass or two, some rows, now and then a piece of a prompt."""
    return chance.randint(1, 2), chance.randint(0, 8), chance.choice([0, 0, 16, 100, 300])


def taught(
    true: tuple[float, ...], seed: int, noise: float = 0.0, steps: int = 400, outliers: float = 0.0
) -> Regression:
    """A fit to steps that cost what the true weights say, more or less; some of them ten times as much."""
    chance = random.Random(seed)
    fit = Regression(FIRST)
    for number in range(steps):
        seen = features(chance)
        value = sum(weight * feature for weight, feature in zip(true, seen, strict=True))
        value *= 1 + noise * chance.uniform(-1, 1)
        fit.saw(seen, 10 * value if chance.random() < outliers else value)
        if number % 8 == 0:
            fit.solve()
    fit.solve()
    return fit


def error(fit: Regression, true: tuple[float, ...], seed: int = 99) -> float:
    """The worst error of a prediction, as a share of the true value."""
    chance = random.Random(seed)
    worst = 0.0
    for _ in range(50):
        seen = features(chance)
        value = sum(weight * feature for weight, feature in zip(true, seen, strict=True))
        worst = max(worst, abs(fit.predict(seen) / value - 1))
    return worst


@quick
@given(weights, st.integers(0, 1000))
def test_weights_are_recovered_from_exact_steps(true: tuple[float, float, float], seed: int) -> None:
    assert error(taught(true, seed), true) < 0.1


@pytest.mark.parametrize("true", [(0.03, 0.004, 0.002), (0.002, 0.02, 0.001), (0.05, 0.05, 0.0005)])
def test_noise_is_averaged_out(true: tuple[float, ...]) -> None:
    fit = taught(true, seed=1, noise=0.2)
    assert error(fit, true) < 0.2
    assert all(weight == pytest.approx(wanted, rel=0.5) for weight, wanted in zip(fit.weights, true, strict=True))


def test_a_weight_that_is_zero_is_found_to_be_next_to_nothing() -> None:
    assert taught((0.03, 0.004, 0.0), seed=1, noise=0.1).weights[2] < 1e-4


def test_a_step_that_took_ten_times_as_long_hardly_moves_the_weights() -> None:
    true = (0.03, 0.004, 0.002)
    fit = taught(true, seed=2)
    before = fit.predict((1, 4, 0))
    fit.saw((1, 4, 0), 10 * before)
    fit.solve()
    assert fit.predict((1, 4, 0)) == pytest.approx(before, rel=0.05)


def test_a_twentieth_of_steps_that_took_ten_times_as_long_does_not_spoil_the_predictions() -> None:
    true = (0.03, 0.004, 0.002)
    assert error(taught(true, seed=3, outliers=0.05), true) < 0.25


@quick
@given(
    st.lists(
        st.tuples(st.floats(0, 100), st.floats(0, 100), st.floats(0, 100), st.floats(1e-6, 1e3)),
        min_size=1,
        max_size=60,
    )
)
def test_weights_are_never_negative_whatever_is_observed(seen: list[tuple[float, float, float, float]]) -> None:
    fit = Regression(FIRST)
    for *values, seconds in seen:
        fit.saw(values, seconds)
        fit.solve()
        assert all(0 <= weight < float("inf") for weight in fit.weights)
        assert fit.predict(values) >= 0


def test_a_feature_that_was_not_seen_keeps_its_weight() -> None:
    fit = Regression(FIRST)
    for rows in range(1, 100):
        fit.saw((1, rows % 8, 0), 0.5 + 0.1 * (rows % 8))
        fit.solve()
    assert fit.weights[2] == FIRST[2]
    assert fit.weights[:2] == pytest.approx([0.5, 0.1], rel=0.05)


def test_a_feature_that_was_not_seen_for_very_long_keeps_its_weight() -> None:
    fit = Regression(FIRST)
    for _ in range(100):
        fit.saw((1, 1, 20), 0.03 + 0.004 + 20 * 0.002)
        fit.saw((1, 5, 0), 0.03 + 5 * 0.004)
        fit.solve()
    before = fit.weights[2]
    for number in range(40_000):
        fit.saw((1, number % 8, 0), 0.03 + 0.004 * (number % 8))
        if number % 8 == 0:
            fit.solve()
    assert fit.weights[2] == pytest.approx(before, rel=0.2)


def test_before_anything_was_seen_the_first_weights_hold() -> None:
    fit = Regression(FIRST)
    fit.solve()
    assert fit.weights == list(FIRST)
    assert fit.predict((2, 3, 10)) == pytest.approx(2 * 0.01 + 3 * 0.005 + 10 * 0.002)


def test_features_that_always_move_together_share_what_they_cost() -> None:
    fit = Regression((0.01, 0.03))
    for number in range(100):
        fit.saw((1 + number % 3, 1 + number % 3), 0.08 * (1 + number % 3))
        fit.solve()
    assert fit.predict((2, 2)) == pytest.approx(0.16, rel=0.02)
    assert all(weight > 0 for weight in fit.weights)


def test_a_machine_that_slows_down_is_followed() -> None:
    fit = Regression(FIRST)
    for slow in (1, 1, 3, 3):
        for number in range(100):
            rows = number % 8
            fit.saw((1, rows, 0), slow * (0.03 + 0.004 * rows))
            fit.solve()
    assert fit.predict((1, 4, 0)) == pytest.approx(3 * 0.046, rel=0.1)
