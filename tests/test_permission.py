"""When a run may go on: by power source, charge, hours of the day and energy; and what a shell sees of it."""

from datetime import datetime, time, timedelta
from pathlib import Path

import pytest
from heated import Nobody, documents, run
from hypothesis import given
from hypothesis import strategies as st
from plant import PRESETS, Plant
from shell import batchrun, read, write_jobs

from batchrun.config import Settings
from batchrun.errors import UsageError
from batchrun.forms import Hours, clock_time, energy_wh, hours, next_time
from batchrun.heat import Energy, Power, Sensed, Supply
from batchrun.permission import Permission, Rules, check_measurable, rules

NOON = datetime(2026, 11, 30, 12, 0)
MAINS, BATTERY = Sensed(supply=Supply(Power.MAINS)), Sensed(supply=Supply(Power.BATTERY, 55.0, draining=True))
UNREADABLE = Sensed()

# -- texts that stand for something


@given(st.times(), st.times(), st.times())
def test_hours_and_the_rest_of_the_day_hold_every_moment_once(begin: time, end: time, moment: time) -> None:
    if begin != end:
        assert Hours(begin, end).hold(moment) != Hours(end, begin).hold(moment)


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("08:00-18:00", "08:00", "18:00"), ("22:00-07:00", "23:30", "12:00"), ("22:00-07:00", "06:59", "07:00")],
)
def test_hours_may_go_over_midnight(text: str, inside: str, outside: str) -> None:
    assert hours(text).hold(clock_time(inside))
    assert not hours(text).hold(clock_time(outside))


@pytest.mark.parametrize(
    "text", ["", "8", "24:00", "06:60", "6.30", "08:00", "08:00-08:00", "08:00-18:00-20:00", "a-b"]
)
def test_what_is_no_hours_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="hours such as 08:00-18:00"):
        hours(text)


@pytest.mark.parametrize(("text", "wh"), [("40Wh", 40), ("0.5 kWh", 500), ("9000 J", 2.5), ("9 kJ", 2.5), ("1wh", 1)])
def test_energy_has_units(text: str, wh: float) -> None:
    assert energy_wh(text) == pytest.approx(wh)


@pytest.mark.parametrize("text", ["", "40", "Wh", "-1Wh", "0Wh", "40 W", "1e3Wh"])
def test_what_is_no_energy_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="energy such as 40Wh"):
        energy_wh(text)


@given(st.datetimes(datetime(2000, 1, 1), datetime(2100, 1, 1)), st.times())
def test_the_next_time_is_within_a_day(now: datetime, wanted: time) -> None:
    wanted = wanted.replace(second=0, microsecond=0)
    found = next_time(wanted, now)
    assert found.time() == wanted
    assert timedelta(0) < found - now <= timedelta(days=1)


# -- rules


@pytest.mark.parametrize(
    ("rule", "sensed", "now", "word"),
    [
        (Rules(only_on_ac=True), BATTERY, NOON, "on battery"),
        (Rules(only_on_ac=True), UNREADABLE, NOON, "cannot be read"),
        (Rules(min_battery_percent=60), BATTERY, NOON, "55 % charge"),
        (Rules(min_battery_percent=60), UNREADABLE, NOON, "cannot be read"),
        (Rules(min_battery_percent=60), Sensed(supply=Supply(Power.MAINS, 20.0, draining=True)), NOON, "20 % charge"),
        (Rules(quiet=hours("08:00-18:00")), MAINS, NOON, "quiet hours until 18:00"),
        (Rules(until=NOON), MAINS, NOON, "--until 12:00"),
        (Rules(max_energy_wh=1), Sensed(energy=Energy(3600.0, "rapl")), NOON, "1.00 Wh spent, by rapl"),
        (Rules(max_energy_wh=1), UNREADABLE, NOON, "cannot be read any more"),
    ],
)
def test_a_rule_that_is_broken_says_why(rule: Rules, sensed: Sensed, now: datetime, word: str) -> None:
    assert word in rule.broken(sensed, now)


@pytest.mark.parametrize(
    ("rule", "sensed", "now"),
    [
        (Rules(), UNREADABLE, NOON),
        (Rules(only_on_ac=True), MAINS, NOON),
        (Rules(min_battery_percent=60), MAINS, NOON),
        (Rules(min_battery_percent=60), Sensed(supply=Supply(Power.MAINS, 20.0)), NOON),
        (Rules(min_battery_percent=50), BATTERY, NOON),
        (Rules(quiet=hours("13:00-18:00")), MAINS, NOON),
        (Rules(until=NOON), MAINS, NOON - timedelta(seconds=1)),
        (Rules(max_energy_wh=1), Sensed(energy=Energy(3599.0, "rapl")), NOON),
    ],
)
def test_a_rule_that_is_kept_says_nothing(rule: Rules, sensed: Sensed, now: datetime) -> None:
    assert rule.broken(sensed, now) == ""


def test_settings_become_rules() -> None:
    assert rules(Settings(), NOON) == Rules()
    settings = Settings(only_on_ac=True, min_battery=40, quiet_hours="08:00-09:00", until="11:00", max_energy="40Wh")
    found = rules(settings, NOON)
    assert found == Rules(True, 40, hours("08:00-09:00"), NOON + timedelta(hours=23), 40.0)


@pytest.mark.parametrize("rule", [Rules(only_on_ac=True), Rules(min_battery_percent=40), Rules(max_energy_wh=1)])
def test_a_rule_that_cannot_be_kept_here_is_refused(rule: Rules) -> None:
    with pytest.raises(UsageError, match="cannot be kept"):
        check_measurable(rule, UNREADABLE)
    check_measurable(Rules(), UNREADABLE)


def test_a_run_without_rules_asks_no_sensor() -> None:
    plant = Plant(PRESETS["phone"], 0)
    asked: list[int] = []

    def sense() -> Sensed:
        asked.append(1)
        return MAINS

    for kept, wanted in ((Rules(), 0), (Rules(only_on_ac=True), 1)):
        permission = Permission(Nobody(plant, 1e9), kept, sense, plant.clock, lambda: NOON)
        assert not permission.stopped
        assert len(asked) == wanted


# -- a run under rules


def test_a_run_stops_at_its_time_and_what_runs_may_finish() -> None:
    plant = Plant(PRESETS["phone"], 0)

    def now() -> datetime:
        return NOON + timedelta(seconds=plant.time_s)

    nobody = Nobody(plant, 1e9)
    stop = Permission(nobody, Rules(until=NOON + timedelta(seconds=100)), Sensed, plant.clock, now)
    line = run(documents(500, 300, 64), "phone", 0, plant=plant, stop=stop)
    assert line.summary.interrupted
    assert "--until 12:01" in stop.reason
    assert 100 <= plant.time_s < 100 + Settings().grace_seconds + 1
    assert 10 < len(line.results) < 500
    assert {result.status for result in line.results} == {"ok"}


def test_a_rule_that_breaks_during_a_rest_lets_nothing_new_begin() -> None:
    plant, seen = Plant(PRESETS["phone"], 0), [MAINS]

    class Unplugged(Nobody):
        def wait(self, seconds: float) -> bool:
            seen.append(BATTERY)
            return super().wait(seconds)

    stop = Permission(Unplugged(plant, 1e9), Rules(only_on_ac=True), lambda: seen[-1], plant.clock, lambda: NOON)
    line = run(documents(500, 300, 64), "phone", 0, plant=plant, stop=stop)
    assert "on battery" in stop.reason
    assert line.summary.interrupted
    assert line.bursts[-1].steps > 0
    assert line.plant.time_s < 60


# -- what a shell sees


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jobs(tmp_path / "jobs.jsonl", [{"prompt": f"say {number}", "max_tokens": 400} for number in range(3)])
    return tmp_path


def test_quiet_hours_end_a_run_with_75_before_it_begins(folder: Path) -> None:
    now = datetime.now()
    begin, end = now - timedelta(hours=2), now + timedelta(hours=2)
    ran = batchrun(folder, "run", "jobs.jsonl", "--quiet-hours", f"{begin:%H:%M}-{end:%H:%M}")
    assert ran.status == 75
    assert f"not started: quiet hours until {end:%H:%M}" in ran.err
    assert not (folder / "jobs.results.jsonl").exists()
    assert batchrun(folder, "run", "jobs.jsonl", "--quiet-hours", f"{end:%H:%M}-{begin:%H:%M}").status == 0
    assert len(read(folder / "jobs.results.jsonl")) == 3


@pytest.mark.parametrize(
    ("flag", "value", "expected"),
    [
        ("--quiet-hours", "8-18", "hours such as 08:00-18:00"),
        ("--until", "25:00", "a time such as 06:30"),
        ("--max-energy", "40", "energy such as 40Wh"),
        ("--min-battery", "140", "from 0 to 100"),
        ("--priority", "high", "expected auto"),
        ("--duty", "0", "from 0.01 to 1"),
    ],
)
def test_a_setting_that_stands_for_nothing_is_one_clear_line(
    folder: Path, flag: str, value: str, expected: str
) -> None:
    ran = batchrun(folder, "run", "jobs.jsonl", flag, value)
    assert ran.status == 2
    assert ran.err.count("\n") == 1
    assert expected in ran.err


def test_seconds_may_be_auto(folder: Path) -> None:
    ran = batchrun(folder, "run", "jobs.jsonl", "--burst-seconds", "auto", "--rest-seconds", "auto")
    assert ran.status == 0
    assert "neither a number nor auto" in batchrun(folder, "run", "jobs.jsonl", "--burst-seconds", "long").err
