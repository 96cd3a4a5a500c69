"""The control law: within bounds always, hotter never means more work, and UNKNOWN is never taken for cool."""

import copy
import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.governor import (
    CRITICAL_REST_S,
    FIRST_BURST_S,
    LEAST_WORK_S,
    Allowance,
    Bounds,
    FixedGovernor,
    HeatGovernor,
    Known,
    capped,
)
from batchrun.heat import Level
from batchrun.heat_model import LEAST_DUTY, MOST_DUTY, HeatModel

LEVELS = st.sampled_from(list(Level))
SECONDS = st.floats(0, 500, allow_subnormal=False)


@st.composite
def bounds(draw: st.DrawFn) -> Bounds:
    """Free ones, fixed ones, and all between."""
    low, high = sorted(draw(st.tuples(st.floats(0.1, 600), st.floats(0.1, 600))))
    least, most = sorted(draw(st.tuples(st.floats(0.1, 600), st.floats(0.1, 600))))
    fixed_burst, fixed_rest = draw(st.booleans()), draw(st.booleans())
    return Bounds(low, low if fixed_burst else high, least, least if fixed_rest else most, draw(st.floats(0.05, 1)))


KNOWN = st.none() | st.builds(Known, st.floats(0.1, 1000), st.floats(0.01, 1))
HISTORY = st.lists(st.tuples(SECONDS, LEVELS, LEVELS), max_size=25)
"""Bursts: seconds worked, heat at their end, and heat after every rest that followed."""


def live(governor: HeatGovernor, history: Sequence[tuple[float, Level, Level]]) -> None:
    for worked_s, level, after in history:
        rest_s = governor.worked(worked_s, level)
        for _ in range(3):
            rest_s = governor.rested(rest_s, after)
            if not rest_s:
                break


def cool_bursts(governor: HeatGovernor, count: int) -> float:
    """Whole bursts that end cool; gives the last rest."""
    rest_s = 0.0
    for _ in range(count):
        rest_s = governor.worked(governor.allowance.seconds, Level.COOL)
        governor.rested(rest_s, Level.COOL)
    return rest_s


# -- bounds


@given(bounds(), KNOWN, HISTORY)
def test_bursts_and_rests_are_always_within_bounds(
    kept: Bounds, known: Known | None, history: list[tuple[float, Level, Level]]
) -> None:
    governor = HeatGovernor(kept, known)
    for worked_s, level, after in history:
        rest_s = governor.worked(worked_s, level)
        assert rest_s == 0 or rest_s >= min(kept.least_rest_s, capped(worked_s, kept.duty) or math.inf)
        assert rest_s <= max(kept.most_rest_s, capped(worked_s, kept.duty))
        assert worked_s == 0 or worked_s / (worked_s + rest_s) <= kept.duty + 1e-9
        assert kept.least_burst_s <= governor.allowance.seconds <= kept.most_burst_s
        resting_s = rest_s
        for _ in range(50):
            rest_s = governor.rested(rest_s, after)
            if not rest_s:
                break
            resting_s += rest_s
        if after < Level.CRITICAL:
            assert resting_s <= max(kept.most_rest_s, capped(worked_s, kept.duty)) + 1e-6
        assert kept.least_burst_s <= governor.allowance.seconds <= kept.most_burst_s


@given(bounds(), HISTORY, st.floats(0, 1000))
def test_a_burst_may_always_do_some_work_and_never_runs_on(
    kept: Bounds, history: list[tuple[float, Level, Level]], worked_s: float
) -> None:
    governor = HeatGovernor(kept)
    live(governor, history)
    over = [governor.over(worked_s, level) for level in Level]
    if worked_s < min(LEAST_WORK_S, kept.least_burst_s):
        assert not any(over)
    if worked_s >= governor.allowance.seconds:
        assert all(over)


def test_equal_bounds_fix_a_number() -> None:
    governor = HeatGovernor(Bounds(least_burst_s=30, most_burst_s=30, least_rest_s=7, most_rest_s=7))
    for level in (Level.COOL, Level.HOT, Level.UNKNOWN, Level.WARM):
        assert governor.worked(30, level) == 7
        assert governor.rested(7, Level.COOL) == 0
        assert governor.allowance.seconds == 30


# -- heat


@given(bounds(), KNOWN, HISTORY, SECONDS, st.lists(LEVELS, min_size=2, max_size=2))
def test_the_hotter_it_is_the_less_work_and_the_more_rest(
    kept: Bounds, known: Known | None, history: list[tuple[float, Level, Level]], worked_s: float, two: list[Level]
) -> None:
    governor = HeatGovernor(kept, known)
    live(governor, history)
    hotter = copy.deepcopy(governor)
    low, high = min(two), max(two)
    if low is Level.UNKNOWN:
        low, high = (high, low) if high < Level.HOT else (low, high)  # among what is not hot, UNKNOWN is the worst
    rest_s, longer_s = governor.worked(worked_s, low), hotter.worked(worked_s, high)
    assert longer_s >= rest_s - 1e-9
    assert hotter.allowance.seconds <= governor.allowance.seconds + 1e-9


@given(bounds(), KNOWN, HISTORY, st.lists(SECONDS, min_size=1, max_size=10))
def test_nothing_grows_while_heat_is_unknown(
    kept: Bounds, known: Known | None, history: list[tuple[float, Level, Level]], bursts: list[float]
) -> None:
    governor = HeatGovernor(kept, known)
    live(governor, history)
    for worked_s in bursts:
        before = governor.allowance
        cool = copy.deepcopy(governor)
        rest_s = governor.worked(worked_s, Level.UNKNOWN)
        assert governor.allowance.seconds <= before.seconds + 1e-9
        assert rest_s >= cool.worked(worked_s, Level.COOL) - 1e-9
        governor.rested(rest_s, Level.UNKNOWN)


def test_a_machine_of_which_nothing_is_known_rests_a_little() -> None:
    governor = HeatGovernor(Bounds())
    assert governor.allowance == Allowance(FIRST_BURST_S, 1.0)
    assert [governor.worked(20, Level.UNKNOWN) for _ in range(5)] == [1.0] * 5


def test_a_hot_burst_ends_at_once_and_the_next_is_half_of_it_at_most() -> None:
    governor = HeatGovernor(Bounds())
    assert not governor.over(5.0, Level.WARM)
    assert governor.over(5.0, Level.HOT)
    assert governor.worked(5.0, Level.HOT) > 1
    assert governor.allowance.seconds <= 2.5


def test_it_rests_until_it_is_back_but_no_longer_than_allowed() -> None:
    governor = HeatGovernor(Bounds(most_rest_s=60))
    rests = [governor.worked(20.0, Level.HOT)]
    while rests[-1]:
        rests.append(governor.rested(rests[-1], Level.HOT))
    assert len(rests) > 3
    assert sum(rests) == pytest.approx(60)
    assert governor.rested(0.0, Level.COOL) == 0


def test_it_waits_as_long_as_it_is_critical() -> None:
    governor = HeatGovernor(Bounds(most_rest_s=60))
    rest_s = governor.worked(20.0, Level.CRITICAL)
    for _ in range(100):
        rest_s = governor.rested(rest_s, Level.CRITICAL)
        assert rest_s >= CRITICAL_REST_S
    assert governor.rested(rest_s, Level.WARM) == 0


def test_heat_that_was_there_before_the_first_burst_teaches_nothing() -> None:
    governor = HeatGovernor(Bounds())
    rests = [governor.rested(0.0, Level.HOT)]
    assert rests[0] > 1
    assert governor.rested(rests[0], Level.COOL) == 0
    assert cool_bursts(governor, 1) == 0.0


def test_heat_that_only_a_sensor_saw_is_obeyed_and_teaches_nothing() -> None:
    governor = HeatGovernor(Bounds())
    assert governor.worked(20.0, Level.HOT, slow=False) > 1
    assert governor.allowance.seconds == 10.0
    assert governor.rested(5.0, Level.HOT, slow=False) > 1
    assert governor.rested(5.0, Level.COOL) == 0
    assert cool_bursts(governor, 1) == 0.0


def test_heat_that_only_the_probe_saw_is_rested_for_too() -> None:
    governor = HeatGovernor(Bounds())
    governor.worked(20.0, Level.COOL)
    assert governor.rested(0.0, Level.HOT) > 1


# -- machines without a limit


def test_a_machine_that_stays_cool_comes_to_no_rest_and_long_bursts() -> None:
    governor = HeatGovernor(Bounds())
    assert cool_bursts(governor, 1) == 0.0
    assert cool_bursts(governor, 100) == 0.0
    assert governor.allowance == Allowance(120.0, 0.0)


@given(st.floats(1, 4000))
def test_a_single_mistake_is_forgotten(worked_s: float) -> None:
    governor = HeatGovernor(Bounds())
    rest_s = governor.worked(worked_s, Level.HOT)
    governor.rested(rest_s, Level.COOL)
    assert cool_bursts(governor, 60) == 0.0
    assert governor.allowance.rest_s == 0.0


def test_what_calibrate_knows_is_used_from_the_first_burst() -> None:
    known = HeatGovernor(Bounds(), Known(budget_s=22, duty=0.3))
    assert known.allowance.seconds < 3
    for _ in range(30):
        rest_s = known.worked(known.allowance.seconds, Level.UNKNOWN)
        known.rested(rest_s, Level.UNKNOWN)
    share = known.allowance.seconds / (known.allowance.seconds + rest_s)
    assert share == pytest.approx(0.3, abs=0.06)
    free = HeatGovernor(Bounds(), Known(budget_s=300, duty=1.0))
    assert free.allowance.seconds == FIRST_BURST_S


# -- the user's own law


def test_a_fixed_governor_says_the_same_whatever_the_heat_but_never_works_when_critical() -> None:
    governor = FixedGovernor(30.0, 5.0)
    assert [governor.worked(30.0, level) for level in Level] == [5.0] * len(Level)
    assert not any(governor.over(1e6, level) for level in Level)
    assert [governor.rested(5.0, level) for level in Level] == [0, 0, 0, 0, CRITICAL_REST_S]
    assert FixedGovernor(30.0, 0.0, duty=0.25).worked(10.0, Level.COOL) == pytest.approx(30.0)


# -- the model of heat


@given(st.floats(0, 1e4), st.floats(0, 2), st.lists(st.tuples(st.booleans(), st.floats(0, 1e4)), max_size=20))
def test_the_model_stays_between_cold_and_working_for_ever(
    budget_s: float, duty: float, spells: list[tuple[bool, float]]
) -> None:
    model = HeatModel(budget_s, duty, heat=0.0)
    for works, seconds in spells:
        (model.worked if works else model.rested)(seconds)
        assert 0 <= model.heat <= 1 / model.duty + 1e-9
        assert LEAST_DUTY <= model.duty <= MOST_DUTY


def test_the_model_reaches_its_limit_after_its_budget() -> None:
    model = HeatModel(budget_s=22, duty=0.3, heat=0.0)
    model.worked(22)
    assert model.heat == pytest.approx(1.0)
    assert HeatModel(22, 0.3, heat=0.2).work_between(0.0, 1.0) == pytest.approx(22)
    model.rested(model.rest_to(0.5))
    assert model.heat == pytest.approx(0.5)
    model.worked(model.work_between(0.5, 0.9))
    assert model.heat == pytest.approx(0.9)
    assert model.heat_before(model.work_between(0.5, 0.9), 0.9) == pytest.approx(0.5)


def test_a_touch_before_its_time_teaches_that_the_machine_stands_less() -> None:
    model = HeatModel(budget_s=22, duty=0.3, heat=0.8)
    model.throttled()
    assert (model.duty, model.heat) == (pytest.approx(0.24), 1.0)
    model.heat = 1.3
    model.throttled()
    assert model.duty == pytest.approx(0.24)
