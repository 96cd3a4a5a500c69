"""A CPU quota on the real model: found within three seconds, and told from heat.  By hand: pytest -m slow -s.

Needs root and a control group that may be made here.
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from batchrun.assembly import open_parts, open_worker, slot_plan
from batchrun.calibrate import Rig, sample_requests
from batchrun.config import Settings
from batchrun.cost import Work
from batchrun.heat import Level
from batchrun.speed import SpeedSensor
from batchrun.step_fit import StepFit
from batchrun.thermal import open_sensors

LEARN_S, LIMITED_S = 25.0, 8.0
PERIOD_US = 100_000
JOBS = Path(__file__).parents[1] / "jobs" / "notes.jsonl"


class Group:
    """A control group of version 1 or 2, with this process in it."""

    def __init__(self) -> None:
        one, two = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")
        self._top = one if (one / "cpu.cfs_quota_us").exists() or (one / "cgroup.procs").exists() else two
        self._first_version = self._top is one
        self.path = self._top / f"batchrun-test-{os.getpid()}"
        self.path.mkdir()
        (self.path / "cgroup.procs").write_text(str(os.getpid()))

    def allow(self, processors: float | None) -> None:
        quota_us = None if processors is None else round(processors * PERIOD_US)
        if self._first_version:
            (self.path / "cpu.cfs_quota_us").write_text(str(-1 if quota_us is None else quota_us))
        else:
            (self.path / "cpu.max").write_text(f"{'max' if quota_us is None else quota_us} {PERIOD_US}")

    def close(self) -> None:
        (self._top / "cgroup.procs").write_text(str(os.getpid()))
        self.path.rmdir()


@pytest.fixture
def group() -> Iterator[Group]:
    try:
        made = Group()
    except OSError as error:
        pytest.skip(f"no control group can be made here: {error}")
    try:
        yield made
    finally:
        made.close()


@pytest.mark.slow
@pytest.mark.parametrize("processors", [0.5, 1.0])
def test_a_quota_is_found_within_three_seconds_and_is_not_heat(group: Group, processors: float) -> None:
    settings = Settings(threads=2)
    parts = open_parts(settings, profiled=False)
    requests = sample_requests(parts, [JOBS], 16)
    load = slot_plan(parts, max(request.need_tokens for request in requests), probes=True)
    sensors = open_sensors()
    speed = SpeedSensor(StepFit(), sensors.contention)
    blind = SpeedSensor(StepFit())  # sees the same steps and no counters: to it a quota is heat

    def saw_step(done: Work, seconds: float) -> None:
        speed.saw_step(done, seconds)
        blind.saw_step(done, seconds)

    worker = open_worker(parts, load, time.monotonic, lambda: False, lambda: False, saw_step, print)
    rig = Rig(worker, speed, requests, time.monotonic, time.sleep)
    try:
        rig.work(LEARN_S, until_slow=False)
        before = speed.verdict
        group.allow(processors)
        began_s, found_s, verdicts = time.monotonic(), None, []
        while time.monotonic() - began_s < LIMITED_S:
            rig.work(0.01, until_slow=False)  # a step
            verdicts.append(speed.verdict)
            if found_s is None and speed.verdict.cause:
                found_s = time.monotonic() - began_s
        group.allow(None)
    finally:
        worker.close()
        parts.model.close()
    print(
        f"\n{processors:g} of 2 processors: before {before.level.word} at {before.ratio:.2f}; found after "
        f"{found_s or -1:.2f} s as {verdicts[-1].cause!r}, level {verdicts[-1].level.word}, "
        f"speed {verdicts[-1].ratio:.2f}; ever called heat: {any(seen.level >= Level.HOT for seen in verdicts)}"
    )
    assert found_s is not None
    assert found_s < 3.0
    assert {seen.cause for seen in verdicts if seen.cause} == {"quota"}
    assert all(seen.level < Level.HOT for seen in verdicts)
    assert blind.verdict.level is Level.HOT
