"""The governor on simulated machines: never throttled for long, more work done than any fixed burst and rest.

`pytest -m slow tests/test_plant.py -s` does the same for 500 seeds of each machine and prints what it came to.
"""

import threading
from collections.abc import Callable
from itertools import pairwise
from random import Random

import numpy as np
import pytest
from numpy.typing import NDArray
from plant import CALM_C, PRESETS, Driven, Exact, Plant, PlantSensors, drive
from plant_grid import PAIRS, fixed_pairs

from batchrun.governor import Bounds, HeatGovernor
from batchrun.heat import Contention, Level, Reading, Sensed, Supply
from batchrun.pacer import Pacer, Sensors
from batchrun.speed import SpeedSensor
from batchrun.thermal import MachineSensors

MOST_THROTTLED_S = 2.0
SEEDS, ALL_SEEDS, LIAR_SEEDS = 3, 500, 20
SHOWN_S = {"desktop": 1200.0}  # nothing ever changes there; elsewhere an hour
HOUR_S = 3600.0

Eyes = Callable[[Plant], Sensors]
Figures = NDArray[np.float64]


def sighted(plant: Plant) -> Sensors:
    return PlantSensors(plant)


def gone(plant: Plant) -> Sensors:
    return PlantSensors(plant, gone=True)


def governed(preset: str, seed: int, eyes: Eyes = sighted, seconds: float = HOUR_S) -> Driven:
    plant = Plant(PRESETS[preset], seed)
    pacer = Pacer(HeatGovernor(Bounds()), plant.clock, eyes(plant), SpeedSensor(Exact(), confirms=True))
    return drive(pacer, plant, seconds)


def sweep(preset: str, seeds: range, eyes: Eyes) -> tuple[Figures, Figures, float]:
    """Work done by the governor for each seed, by all fixed pairs, and the longest throttled time in a late burst."""
    seconds = SHOWN_S.get(preset, HOUR_S)
    runs = [governed(preset, seed, eyes, seconds) for seed in seeds]
    worst_s = max(run.worst_throttled_s for run in runs)
    return np.array([run.done for run in runs]), fixed_pairs(PRESETS[preset], seeds, seconds), worst_s


# -- the machine itself


def test_the_phone_throttles_after_20_to_25_seconds_and_gives_15_to_20_a_minute() -> None:
    preset = PRESETS["phone"]
    heat = (preset.limit_c - preset.ambient_c) / preset.rise_c
    assert 20 <= -preset.time_constant_s * np.log(1 - heat) <= 25
    assert 15 <= 60 * heat <= 20


def test_the_arrays_of_machines_do_what_one_machine_does() -> None:
    preset = PRESETS["phone"]
    found = fixed_pairs(preset, range(2), 1200.0)
    for seed in range(2):
        for column, (burst_s, rest_s) in ((7, PAIRS[7]), (-1, (1e9, 0.0))):
            plant = Plant(preset, seed)
            while plant.time_s < 1200:
                until_s = plant.time_s + burst_s
                while plant.time_s < min(until_s, 1200):
                    plant.work(0.1 * plant.speed)
                plant.rest(rest_s)
            assert plant.done_s / plant.time_s == pytest.approx(found[seed, column], rel=0.03)


# -- bounds


@pytest.mark.parametrize("eyes", [sighted, gone])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_no_burst_after_the_third_is_throttled_for_long(preset: str, eyes: Eyes) -> None:
    for seed in range(SEEDS):
        assert governed(preset, seed, eyes, 1800).worst_throttled_s <= MOST_THROTTLED_S


@pytest.mark.parametrize("eyes", [sighted, gone])
def test_on_the_phone_it_does_more_than_without_rest_and_more_than_any_fixed_burst_and_rest(eyes: Eyes) -> None:
    done, fixed, _ = sweep("phone", range(SEEDS), eyes)
    assert (done[:, None] > fixed).all()


@pytest.mark.parametrize("eyes", [sighted, gone])
def test_on_the_desktop_it_costs_less_than_a_hundredth(eyes: Eyes) -> None:
    done, fixed, _ = sweep("desktop", range(2), eyes)
    assert (done > 0.99 * fixed[:, -1]).all()


def test_on_the_desktop_it_comes_to_no_rest() -> None:
    assert all(burst.rest_s == 0 for burst in governed("desktop", 0, gone, 600).bursts)


# -- sensors that are not to be trusted


class Lying:
    """A sensor that says what `lie` makes of its reading."""

    def __init__(self, plant: Plant, lie: Callable[[float], Reading]) -> None:
        self._plant, self._lie = plant, lie

    def sense(self) -> Sensed:
        return Sensed((self._lie(self._plant.read_c()),))

    def contention(self) -> Contention:
        return Contention()

    def supply(self) -> Supply:
        return Supply()


def says(level: Level) -> Eyes:
    return lambda plant: Lying(plant, lambda celsius: Reading("liar", level, celsius))


def wild(plant: Plant) -> Sensors:
    dice = Random(1)
    return Lying(plant, lambda celsius: Reading("liar", dice.choice(list(Level)[:4])))


def frozen(plant: Plant) -> Sensors:
    return Lying(plant, lambda celsius: Reading("liar", Level.COOL, CALM_C))


def asked(read: Callable[[float], tuple[Reading, ...]]) -> Eyes:
    """The real askers over a driver that misbehaves."""
    return lambda plant: MachineSensors({"driver": read}, Contention, lambda: None, {}, clock=plant.clock)


def hangs(elapsed_s: float) -> tuple[Reading, ...]:
    threading.Event().wait(60)
    return (Reading("driver", Level.COOL),)


def raises(elapsed_s: float) -> tuple[Reading, ...]:
    raise RuntimeError("the driver is gone")


LIARS = {
    "always cool": says(Level.COOL),
    "always warm": says(Level.WARM),
    "always hot": says(Level.HOT),
    "always critical": says(Level.CRITICAL),
    "always unknown": says(Level.UNKNOWN),
    "wild": wild,
    "frozen": frozen,
    "hanging": asked(hangs),
    "raising": asked(raises),
}


@pytest.mark.parametrize("liar", sorted(LIARS))
@pytest.mark.parametrize("preset", ["phone", "nominal"])
def test_with_any_liar_the_bounds_hold_by_speed_alone(preset: str, liar: str) -> None:
    assert governed(preset, 3, LIARS[liar], 1800).worst_throttled_s <= MOST_THROTTLED_S


@pytest.mark.parametrize("liar", sorted(LIARS))
def test_with_any_liar_the_phone_does_more_than_without_rest_and_any_fixed_burst(liar: str) -> None:
    fixed = fixed_pairs(PRESETS["phone"], range(1))[0]
    assert governed("phone", 0, LIARS[liar]).done > fixed.max()


@pytest.mark.parametrize("liar", ["hanging", "raising"])
def test_a_driver_that_fails_is_unknown(liar: str) -> None:
    plant = Plant(PRESETS["phone"], 0)
    sensors = LIARS[liar](plant)
    assert [reading.level for reading in sensors.sense().readings] == [Level.UNKNOWN]


# -- by hand


@pytest.mark.slow
@pytest.mark.parametrize("eyes", [sighted, gone])
@pytest.mark.parametrize("preset", sorted(PRESETS))
def test_all_seeds(preset: str, eyes: Eyes) -> None:
    done, fixed, worst_s = sweep(preset, range(ALL_SEEDS), eyes)
    pairs, never = fixed[:, :-1], fixed[:, -1]
    best = PAIRS[int(pairs.mean(axis=0).argmax())]
    own = done / pairs.max(axis=1)
    print(
        f"\n{preset}, {'sensors' if eyes is sighted else 'speed alone'}, {ALL_SEEDS} seeds: "
        f"most throttled in a burst {worst_s:.2f} s; work done {done.mean():.4f}, without rest {never.mean():.4f} "
        f"(least ratio {(done / never).min():.4f}), best fixed pair {best} {pairs.mean(axis=0).max():.4f}; "
        f"against each seed's own best pair: mean {own.mean():.4f}, least {own.min():.4f}, won {(own > 1).mean():.1%}"
    )
    assert worst_s <= MOST_THROTTLED_S
    if preset == "phone":
        assert (done[:, None] > fixed).all()
    if preset == "desktop":
        assert (done > 0.99 * never).all()


@pytest.mark.slow
@pytest.mark.parametrize("liar", sorted(LIARS))
def test_all_liars(liar: str) -> None:
    done, fixed, worst_s = sweep("phone", range(LIAR_SEEDS), LIARS[liar])
    print(
        f"\nphone, a sensor that is {liar}, {LIAR_SEEDS} seeds: most throttled in a burst {worst_s:.2f} s; work done "
        f"{done.mean():.4f}, without rest {fixed[:, -1].mean():.4f}, least against its own best pair "
        f"{(done / fixed[:, :-1].max(axis=1)).min():.4f}"
    )
    assert worst_s <= MOST_THROTTLED_S
    assert (done[:, None] > fixed).all()


def test_bursts_are_what_the_plant_felt() -> None:
    found = governed("phone", 0, seconds=300).bursts
    assert found[0].throttled_s + found[1].throttled_s > 0
    assert all(burst.throttled_s <= burst.worked_s + 1e-6 for burst in found)
    for before, after in pairwise(found):
        assert after.began_s >= before.began_s + before.worked_s + before.rest_s - 0.01
    assert {burst.fired is not None for burst in found if burst.level == "hot"} == {True}
