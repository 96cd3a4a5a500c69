"""Bursts and rests of the whole line on a machine that heats up, with the real runner and the fake backend."""

from collections import Counter

import pytest
from heated import documents, run, without_rest
from plant import PRESETS, Plant, PlantSensors

from batchrun.core import Status
from batchrun.governor import FixedGovernor
from batchrun.heat import Level, Reading, Sensed

JOB = {"tokens": 300, "max_tokens": 64}


def budget(preset: str, seed: int) -> float:
    """Seconds of full work from cold until this machine throttles."""
    plant = Plant(PRESETS[preset], seed)
    while not plant.throttled:
        plant.work(0.1)
    return plant.done_s


def test_sixteen_documents_in_one_burst_fit_one_thermal_budget_and_one_by_one_they_need_more(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A phone gives 20 to 25 seconds of full speed from cold."""
    budget_s = budget("phone", 0)
    batched = run(documents(16, 900, 100), "phone", 0, without_rest(), rows=16, watched=False)
    one_by_one = run(documents(16, 900, 100), "phone", 0, without_rest(), rows=1, watched=False)
    for line in (batched, one_by_one):
        assert Counter(result.status for result in line.results) == {Status.OK: 16}
    with capsys.disabled():
        for name, line in (("one burst of 16 rows", batched), ("one after another", one_by_one)):
            plant = line.plant
            print(
                f"\n16 requests of ~1,000 tokens on the phone, {name}: {plant.done_s:.1f} s of work at full speed, "
                f"{plant.done_s / budget_s:.1f} thermal budgets of {budget_s:.1f} s; {plant.time_s:.1f} s, "
                f"{plant.throttled_s:.1f} s of them throttled",
                end="",
            )
    assert batched.plant.done_s < budget_s
    assert batched.plant.throttled_s == 0
    assert one_by_one.plant.done_s > 1.5 * budget_s
    assert one_by_one.plant.throttled_s > 0


def test_the_line_under_the_governor_does_more_than_without_rest_and_than_a_fixed_burst_and_rest() -> None:
    jobs = list(documents(1000, **JOB))
    governed = run(jobs, "phone", 1, seconds=900)
    for other in (without_rest(), FixedGovernor(10.0, 20.0), FixedGovernor(20.0, 45.0)):
        assert governed.per_hour > run(jobs, "phone", 1, other, seconds=900).per_hour


def test_the_batch_stays_full_over_rests() -> None:
    line = run(documents(2000, **JOB), "phone", 2, seconds=600)
    late = line.bursts[5:-1]
    assert len(late) > 20
    assert sum(burst.rows["mean"] for burst in late) / len(late) > 7.5
    assert sum(burst.seconds["rest"] > 0 for burst in late) > 20


def test_no_job_is_lost_or_doubled_by_rests() -> None:
    line = run(documents(60, **JOB), "phone", 3)
    assert Counter(result.id for result in line.results) == Counter(str(number) for number in range(60))
    assert sum(sum(burst.jobs.values()) for burst in line.bursts) == 60
    assert not line.summary.interrupted
    assert line.summary.rest_s > 0


def test_on_a_machine_that_stays_cool_no_time_is_lost() -> None:
    jobs = list(documents(300, **JOB))
    governed, free = run(jobs, "desktop", 0), run(jobs, "desktop", 0, without_rest())
    assert governed.plant.time_s < 1.01 * free.plant.time_s
    assert governed.summary.rest_s == 0


def test_what_a_burst_ran_under_stands_in_its_stats() -> None:
    line = run(documents(200, **JOB), "phone", 4)
    hot = next(burst for burst in line.bursts if burst.heat["level"] == "hot")
    limit_c = PRESETS["phone"].limit_c
    assert hot.heat["before"]["limit_celsius"] == hot.heat["after"]["limit_celsius"] == limit_c
    fired = {"plant": hot.heat["after"]["level"], "speed": hot.speed["level"]}
    assert fired[hot.heat["fired"]] == "hot"
    assert 0 < hot.speed["ratio"] <= 1
    assert hot.pace["why"].startswith("hot: ")
    assert hot.pace["duty"] == pytest.approx(
        hot.seconds["wall"] / (hot.seconds["wall"] + hot.seconds["rest"]), abs=0.01
    )
    assert hot.energy["wh"] is None
    assert hot.energy["method"] == "none"
    later = line.bursts[line.bursts.index(hot) + 1]
    assert later.pace["rested_s"] >= hot.pace["rest_s"]
    assert {"hot", "cool"} <= {burst.heat["level"] for burst in line.bursts} <= {level.word for level in Level}


def test_a_machine_that_is_critical_takes_nothing_new_and_finishes_what_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its limit is where the kernel would shut it down: rows that run end, the rest waits until it has cooled."""

    def sense(sensors: PlantSensors) -> Sensed:
        plant = sensors._plant
        level = Level.CRITICAL if 15 < plant.time_s < 60 else Level.COOL
        return Sensed((Reading("plant", level, plant.temperature_c),))

    monkeypatch.setattr(PlantSensors, "sense", sense)
    line = run(documents(60, **JOB), "desktop", 0)
    critical = next(burst for burst in line.bursts if burst.heat["level"] == "critical")
    assert critical.heat["fired"] == "plant"
    assert critical.seconds["rest"] > 0
    assert critical.seconds["wall"] < 20
    assert len(line.results) == 60
    assert line.plant.time_s > 60
