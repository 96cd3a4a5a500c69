"""Speed as a sensor: it sees a slow machine within seconds, names what waiting explains, and learns only while cool."""

import random
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.cost import Work
from batchrun.heat import Contention, Level, Reading
from batchrun.speed import AVERAGED_S, BACK, HARD, SOFT, SOFT_S, Speed, SpeedSensor, waits
from batchrun.step_fit import StepFit
from batchrun.trust import ALARMS, LONG_REST_S, Trust

STEP_S = 0.05


class Flat:
    """A step model to which all steps are alike."""

    def __init__(self, step_s: float = STEP_S) -> None:
        self.learned, self._step_s = 0, step_s

    def saw_step(self, done: Work, seconds: float) -> None:
        self.learned += 1

    def step_seconds(self, planned: Work) -> float:
        return self._step_s


class Counters:
    """Counters of waiting that a test moves; None is an answer that is late."""

    def __init__(self) -> None:
        self.now: Contention | None = Contention(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
        self.asked = 0

    def __call__(self) -> Contention | None:
        self.asked += 1
        return self.now


def run(sensor: SpeedSensor, speed: float, seconds: float) -> float | None:
    """Steps at a share of full speed; gives the seconds after which it was found slow, if it was."""
    passed_s = 0.0
    while passed_s < seconds:
        passed_s += STEP_S / speed
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S / speed)
        if sensor.verdict.cause:
            return passed_s
    return None


def warmed() -> SpeedSensor:
    sensor = SpeedSensor(Flat())
    run(sensor, 1.0, 2.0)
    assert sensor.verdict == Speed(Level.COOL, pytest.approx(1.0), "")
    return sensor


# -- what steps say


def test_nothing_seen_is_unknown() -> None:
    sensor = SpeedSensor(Flat())
    assert sensor.verdict == Speed(Level.UNKNOWN, None, "")
    sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S)
    assert sensor.verdict == Speed(Level.UNKNOWN, None, "")


@pytest.mark.parametrize("speed", [0.2, 0.4, 0.5, 0.6, 0.65])
def test_a_hard_fall_is_found_within_a_second_and_a_half(speed: float) -> None:
    found_s = run(warmed(), speed, 3.0)
    assert found_s
    assert found_s < 1.5


@pytest.mark.parametrize("speed", [0.70, 0.76, 0.80, 0.85])
def test_a_soft_fall_is_found_within_three_seconds(speed: float) -> None:
    found_s = run(warmed(), speed, 4.0)
    assert found_s
    assert found_s < 3.0


@pytest.mark.parametrize("speed", [0.91, 0.93, 0.97, 1.0, 1.2])
def test_a_small_fall_is_none(speed: float) -> None:
    assert run(warmed(), speed, 60.0) is None


def test_it_is_slow_until_it_is_back() -> None:
    sensor = warmed()
    run(sensor, 0.5, 3.0)
    for _ in range(200):
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S / 0.93)
    assert sensor.verdict.level is Level.HOT
    for _ in range(200):
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S / 0.98)
    assert sensor.verdict.level is Level.COOL


@given(st.floats(0.05, 100))
def test_one_step_that_stood_still_is_not_heat(stall_s: float) -> None:
    sensor = warmed()
    sensor.saw_step(Work(1, 8, 0, 0, 0), stall_s)
    for _ in range(3):
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S)
    assert sensor.verdict.level is not Level.HOT


@pytest.mark.parametrize("noise", [0.05, 0.1, 0.2])
def test_noise_is_not_heat(noise: float) -> None:
    noisy = random.Random(7)
    sensor = warmed()
    for _ in range(20_000):
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S * noisy.lognormvariate(0, noise))
        assert sensor.verdict.level is not Level.HOT


def test_kinds_of_steps_that_are_predicted_badly_say_little() -> None:
    sensor = warmed()
    wild = random.Random(3)
    for _ in range(2000):
        sensor.saw_step(Work(1, 0, 512, 0, 0), STEP_S * wild.choice([0.5, 2.0]))
        for _ in range(5):
            sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S)
        assert sensor.verdict.level is not Level.HOT


def test_thresholds_are_in_order() -> None:
    assert HARD < SOFT < BACK < 1
    assert AVERAGED_S < SOFT_S


# -- learning


def test_it_learns_while_cool_and_not_while_slow() -> None:
    model = Flat()
    sensor = SpeedSensor(model)
    run(sensor, 1.0, 2.0)
    learned = model.learned
    assert learned > 30
    run(sensor, 0.5, 5.0)
    slow = model.learned
    for _ in range(500):
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S / 0.6)
    assert model.learned == slow


def test_a_machine_that_throttles_for_hours_is_not_taken_for_normal() -> None:
    sensor = SpeedSensor(StepFit())
    for place in range(300):
        sensor.saw_step(Work(1, 1 + place % 8, 0, (100 * place) / 1000, 0), 0.02 + 0.004 * (1 + place % 8))
    for place in range(20_000):
        sensor.saw_step(Work(1, 1 + place % 8, 0, (100) / 1000, 0), (0.02 + 0.004 * (1 + place % 8)) / 0.6)
    assert sensor.verdict.level is Level.HOT
    assert sensor.verdict.ratio == pytest.approx(0.6, abs=0.05)


def test_rebased_it_begins_anew() -> None:
    sensor = SpeedSensor(StepFit())
    for _ in range(100):
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S)
    run(sensor, 0.5, 5.0)
    sensor.rebase()
    assert sensor.verdict.level is Level.UNKNOWN
    for _ in range(100):
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
    assert sensor.verdict.level is Level.COOL


# -- probes


def test_the_first_probe_is_what_later_ones_are_compared_with() -> None:
    sensor = SpeedSensor(Flat())
    sensor.saw_probe(0.01, 0.2)
    assert sensor.verdict.level is Level.UNKNOWN
    sensor.saw_probe(0.01, 0.2)
    assert sensor.verdict.level is Level.COOL
    sensor.saw_probe(0.016, 0.3)
    assert sensor.verdict == Speed(Level.HOT, pytest.approx(0.625), "heat")
    sensor.saw_probe(0.0108, 0.2)
    assert sensor.verdict.level is Level.HOT  # not back yet
    sensor.saw_probe(0.0104, 0.2)
    assert sensor.verdict.level is Level.COOL


def test_a_known_device_is_judged_from_the_first_probe() -> None:
    sensor = SpeedSensor(Flat(), probe_s=0.01)
    sensor.saw_probe(0.02, 0.3)
    assert sensor.verdict.level is Level.HOT


# -- what is not heat


WAITS: dict[str, Callable[[float], Contention]] = {
    "quota": lambda waited_s: Contention(waited_s, 0.0, 0.0, 0.0, 0.0, 0.0),
    "neighbours": lambda waited_s: Contention(0.0, waited_s, waited_s, 0.0, 0.0, 0.0),
    "host": lambda waited_s: Contention(0.0, 0.0, 0.0, waited_s, 0.0, 0.0),
    "memory": lambda waited_s: Contention(0.0, 0.0, 0.0, 0.0, waited_s, 0.0),
    "power": lambda waited_s: Contention(0.0, 0.0, 0.0, 0.0, 0.0, waited_s),
}


@pytest.mark.parametrize("cause", sorted(WAITS))
def test_time_that_was_waited_is_not_heat_and_not_cool(cause: str) -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters)
    run(sensor, 1.0, 2.0)
    waited_s = 0.0
    for _ in range(200):
        waited_s += STEP_S
        counters.now = WAITS[cause](waited_s)
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
        assert sensor.verdict.level is not Level.HOT
    assert sensor.verdict == Speed(Level.UNKNOWN, pytest.approx(0.5, abs=0.02), cause)


@pytest.mark.parametrize("speed", [0.5, 0.7, 0.85])
def test_waiting_is_found_sooner_than_heat(speed: float) -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters)
    run(sensor, 1.0, 2.0)
    passed_s = 0.0
    while not sensor.verdict.cause:
        passed_s += STEP_S / speed
        counters.now = WAITS["quota"](passed_s * (1 - speed))
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S / speed)
    assert sensor.verdict.cause == "quota"
    assert passed_s < 1.0


def test_waiting_that_explains_a_part_only_leaves_heat() -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters)
    run(sensor, 1.0, 2.0)
    for place in range(100):
        counters.now = WAITS["neighbours"](0.3 * STEP_S * place)
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
    assert sensor.verdict.cause == "heat"


def test_heat_that_follows_on_waiting_is_found() -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters)
    run(sensor, 1.0, 2.0)
    for place in range(100):
        counters.now = WAITS["quota"](STEP_S * place)
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
    assert sensor.verdict.cause == "quota"
    for _ in range(100):
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
    assert sensor.verdict.cause == "heat"


def test_counters_that_cannot_be_read_excuse_nothing() -> None:
    assert waits(Contention(), Contention(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)) == []
    assert waits(Contention(1.0), Contention()) == []


def test_nobody_waits_for_neighbours_longer_than_those_ran() -> None:
    ours = waits(Contention(pressure_s=0.0, others_s=0.0), Contention(pressure_s=5.0, others_s=0.1, processors=4))
    assert ours == [("neighbours", pytest.approx(0.4))]
    theirs = waits(Contention(pressure_s=0.0, others_s=0.0), Contention(pressure_s=5.0, others_s=2.0, processors=4))
    assert theirs == [("neighbours", pytest.approx(5.0))]
    assert waits(Contention(pressure_s=0.0), Contention(pressure_s=5.0)) == [("neighbours", 5.0)]


def test_threads_of_our_own_that_wait_for_each_other_excuse_no_heat() -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters)
    run(sensor, 1.0, 2.0)
    for place in range(100):
        counters.now = Contention(pressure_s=2 * STEP_S * place, others_s=0.0, processors=2)
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
    assert sensor.verdict.cause == "heat"


def test_counters_that_answer_late_say_nothing_and_the_next_answer_explains_all_the_time() -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters)
    run(sensor, 1.0, 2.0)
    counters.now = None
    for _ in range(40):
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
        assert sensor.verdict.level < Level.HOT
    counters.now = WAITS["neighbours"](40 * STEP_S)
    for _ in range(2):
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
    assert sensor.verdict.cause == "neighbours"


@pytest.mark.parametrize("answers", [True, False])
def test_counters_are_not_asked_with_every_step(answers: bool) -> None:
    counters, step_s = Counters(), 0.002
    sensor = SpeedSensor(Flat(step_s), counters)
    for _ in range(500):
        sensor.saw_step(Work(1, 8, 0, 0, 0), step_s)
    counters.asked, counters.now = 0, counters.now if answers else None
    for _ in range(500):
        sensor.saw_step(Work(1, 8, 0, 0, 0), step_s / 0.85)
    assert counters.asked <= 15  # in 1.2 seconds


# -- which sensors are believed

HOT, COOL = Reading("a", Level.HOT), Speed(Level.COOL, 1.0)


def test_a_sensor_that_cries_hot_at_full_speed_is_set_aside() -> None:
    trust = Trust()
    for _ in range(ALARMS):
        assert trust.worst([HOT]).level is Level.HOT
        trust.judge([HOT], COOL)
    assert trust.worst([HOT]).level is Level.UNKNOWN
    assert trust.worst([HOT, Reading("b", Level.WARM)]).source == "b"


def test_one_that_was_right_as_often_is_believed_again() -> None:
    trust, slow = Trust(), Speed(Level.HOT, 0.6, "heat")
    for _ in range(ALARMS):
        trust.judge([HOT], COOL)
    for _ in range(ALARMS):
        assert trust.worst([HOT]).level is Level.UNKNOWN
        trust.judge([HOT], slow)
    assert trust.worst([HOT]).level is Level.HOT


def test_one_whose_speed_is_unknown_is_believed() -> None:
    trust = Trust()
    for _ in range(100):
        trust.judge([HOT], Speed())
    assert trust.worst([HOT]).level is Level.HOT


def test_a_critical_reading_must_outlast_a_long_rest() -> None:
    trust, critical = Trust(), Reading("a", Level.CRITICAL)
    for _ in range(100):
        trust.judge([critical], COOL)
    assert trust.worst([critical]).level is Level.CRITICAL
    for _ in range(ALARMS):
        trust.judge([critical], COOL, LONG_REST_S)
    assert trust.worst([critical]).level is Level.UNKNOWN


def test_a_critical_reading_stands_though_its_source_cried_hot_too_often() -> None:
    trust = Trust()
    for _ in range(ALARMS):
        trust.judge([HOT], COOL)
    assert trust.worst([HOT]).level is Level.UNKNOWN
    assert trust.worst([Reading("a", Level.CRITICAL)]).level is Level.CRITICAL


def test_no_readings_are_unknown() -> None:
    assert Trust().worst([]).level is Level.UNKNOWN


# -- suspicions that a probe decides


def suspecting() -> tuple[SpeedSensor, Flat]:
    model = Flat()
    sensor = SpeedSensor(model, confirms=True)
    sensor.saw_probe(0.01, 0.2)
    run(sensor, 1.0, 2.0)
    return sensor, model


@pytest.mark.parametrize("speed", [0.4, 0.7, 0.85])
def test_slow_steps_alone_are_suspicious_and_not_hot(speed: float) -> None:
    sensor, _ = suspecting()
    passed_s = 0.0
    while not sensor.suspicious:
        passed_s += STEP_S / speed
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S / speed)
        assert sensor.verdict.level is not Level.HOT
    assert passed_s < 1.5
    sensor.confirm(0.01 / speed, 0.2)
    assert sensor.verdict == Speed(Level.HOT, pytest.approx(speed, abs=0.13), "heat")
    assert not sensor.suspicious


def test_heat_that_seems_to_follow_on_waiting_is_a_suspicion_too() -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters, confirms=True)
    sensor.saw_probe(0.01, 0.2)
    run(sensor, 1.0, 2.0)
    for place in range(40):
        counters.now = WAITS["neighbours"](STEP_S * place)
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
    assert sensor.verdict.cause == "neighbours"
    while not sensor.suspicious:
        sensor.saw_step(Work(1, 8, 0, 0, 0), 2 * STEP_S)
        assert sensor.verdict.level is not Level.HOT
    sensor.confirm(0.01, 0.2)
    assert sensor.verdict.level is Level.COOL


def test_a_probe_at_full_speed_clears_the_machine_and_the_model_of_steps_learns() -> None:
    sensor, model = suspecting()
    run(sensor, 0.85, 1.4)
    assert sensor.suspicious
    sensor.confirm(0.01, 0.2)
    assert sensor.verdict.level is Level.COOL
    learned = model.learned
    run(sensor, 0.85, 2.9)
    assert model.learned > learned + 40
    assert not sensor.suspicious


def test_a_hard_fall_is_believed_where_the_probe_is_a_little_slow_and_a_soft_one_is_not() -> None:
    for speed, wanted in ((0.6, Level.HOT), (0.85, Level.WARM)):
        sensor, _ = suspecting()
        run(sensor, speed, 1.4)
        sensor.confirm(0.0107, 0.2)
        assert sensor.verdict.level is wanted


def test_where_no_probe_can_be_run_steps_are_believed() -> None:
    sensor, _ = suspecting()
    run(sensor, 0.6, 1.4)
    sensor.confirm()
    assert sensor.verdict == Speed(Level.HOT, pytest.approx(0.65, abs=0.1), "heat")


def test_false_suspicions_come_ever_more_seldom() -> None:
    sensor, suspicions, passed_s = suspecting()[0], [], 0.0
    while passed_s < 200:
        passed_s += STEP_S / 0.8
        sensor.saw_step(Work(1, 8, 0, 0, 0), STEP_S / 0.8)
        if sensor.suspicious:
            suspicions.append(passed_s)
            sensor.confirm(0.01, 0.2)
    assert len(suspicions) <= 8
    assert all(b - a > 0.9 for a, b in pairwise(suspicions))


def test_ample_waiting_explains_what_it_does_to_threads_that_wait_for_each_other() -> None:
    counters = Counters()
    sensor = SpeedSensor(Flat(), counters)
    run(sensor, 1.0, 2.0)
    for place in range(1, 20):
        counters.now = WAITS["neighbours"](0.4 * 20 * STEP_S * place)
        sensor.saw_step(Work(1, 8, 0, 0, 0), 20 * STEP_S)
    assert sensor.verdict.cause == "neighbours"
