"""What the pacer does at the edges of its law: whom it believes, what a probe costs, and when a machine may sleep."""

import pytest
from building import GUIDE, TOKENIZER, request
from heated import documents, run
from plant import done

from batchrun.backends.base import LoadPlan
from batchrun.backends.fake import VOCAB, FakeBackend
from batchrun.core import Completion, Feed, Limits
from batchrun.errors import BackendError
from batchrun.governor import Bounds, FixedGovernor, Governor, HeatGovernor
from batchrun.heat import Contention, Level
from batchrun.pacer import PROBE_SHARE, Blind, Pacer
from batchrun.prefix import Planned
from batchrun.probe import Probe
from batchrun.speed import SpeedSensor
from batchrun.step_fit import StepFit
from batchrun.worker import Worker

STEP_S = 0.02

# -- slow that does not go away


class Machine:
    """One that is as fast as a test says.  `time_s` is its clock."""

    def __init__(self) -> None:
        self.time_s, self.speed, self.probes = 0.0, 1.0, 0

    def clock(self) -> float:
        return self.time_s

    def probe(self) -> Probe:
        self.probes += 1
        self.time_s += 16 * STEP_S / self.speed
        return Probe(STEP_S / self.speed, 16 * STEP_S / self.speed)

    def cycle(self, pacer: Pacer, speed: float) -> Level:
        """A burst at this speed and the rest before it; gives the level that it ended with."""
        self.speed = speed
        while left_s := pacer.rest_left(self.probe):
            self.time_s += left_s
        pacer.open()
        began_s = self.time_s
        while True:
            self.time_s += STEP_S / speed
            pacer.saw_step(done(0, 8), STEP_S / speed)
            if pacer.over(self.probe) or self.time_s - began_s >= 20.0:  # what a fixed burst takes ends it
                break
        level = pacer.level
        pacer.close(more=True)
        return level


def pacer_of(machine: Machine, law: Governor) -> Pacer:
    return Pacer(law, machine.clock, Blind(), SpeedSensor(StepFit(), confirms=law.probes))


@pytest.mark.parametrize("rest_s", [0.0, 1.0, 30.0])
def test_throttled_under_a_users_own_law_never_becomes_cool(rest_s: float) -> None:
    machine = Machine()
    pacer = pacer_of(machine, FixedGovernor(20.0, rest_s))
    assert [machine.cycle(pacer, 1.0) for _ in range(3)][-1] is Level.COOL
    assert {machine.cycle(pacer, 0.6) for _ in range(30)} == {Level.HOT}


def test_what_no_rest_cures_is_not_heat() -> None:
    machine = Machine()
    pacer = pacer_of(machine, HeatGovernor(Bounds()))
    assert [machine.cycle(pacer, 1.0) for _ in range(3)][-1] is Level.COOL
    assert machine.cycle(pacer, 0.6) is Level.HOT
    assert [machine.cycle(pacer, 0.6) for _ in range(10)][-1] is Level.COOL


# -- what probes cost


def test_a_run_of_seconds_takes_no_probe_and_the_first_comes_while_the_machine_is_cool() -> None:
    machine = Machine()
    pacer = pacer_of(machine, HeatGovernor(Bounds(most_burst_s=2.0)))
    machine.cycle(pacer, 1.0)
    assert machine.probes == 0
    machine.cycle(pacer, 1.0)
    assert machine.probes == 1


def test_probes_stay_within_their_share_while_slowness_is_explained() -> None:
    """Neighbours slow the machine: it is neither hot nor cool, for as long as they like."""
    machine = Machine()

    def contention() -> Contention:
        return Contention(quota_s=machine.time_s)

    speed = SpeedSensor(StepFit(), contention, confirms=True)
    pacer = Pacer(HeatGovernor(Bounds(most_burst_s=4.0)), machine.clock, Blind(), speed)
    for _ in range(3):
        machine.cycle(pacer, 1.0)
    machine.probes = 0
    assert {machine.cycle(pacer, 0.5) for _ in range(20)} == {Level.UNKNOWN}
    probe_s = 16 * STEP_S / 0.5
    assert machine.probes * probe_s <= 2 * PROBE_SHARE * 20 * 4.0 + probe_s


# -- a probe that fails


class Fragile(FakeBackend):
    """It fails under whatever runs in its last slot."""

    def __init__(self, limits: Limits) -> None:
        super().__init__(limits)
        self.failed = 0

    def forward(self, feeds: list[Feed], chain: int = 1) -> list[Feed]:  # type: ignore[override]
        if feeds[0].slot == self.limits.slots - 1:
            self.failed += 1
            raise BackendError("no memory for one more")
        return super().forward(feeds, chain)


def test_a_probe_that_fails_is_the_last_and_the_rows_beside_it_run_again() -> None:
    said: list[str] = []
    backend = Fragile(Limits(3, 512, 3 * 512, 64, VOCAB))
    load = LoadPlan(2, 3, 512, 64, threads=1, probe_slots=1)
    worker = Worker(
        backend,
        TOKENIZER,
        GUIDE,
        load,
        lambda: 0.0,
        share_prefixes=False,
        look_ahead=False,
        fixed_width=True,
        say=said.append,
    )
    rows = [request("one", 8), request("two", 8)]
    worker.take([Planned(row, None) for row in rows])
    worker.step()
    assert worker.probe() is None
    assert worker.probe() is None
    assert backend.failed == 1
    assert len(said) == 1
    assert "no memory for one more" in said[0]
    assert not worker.idle
    lost = worker.step()
    assert {completion.request for completion in lost} == set(rows)
    assert all(completion.engine_failed for completion in lost)
    worker.take([Planned(row, None) for row in rows])
    again: list[Completion] = []
    while not worker.idle:
        again += worker.step()
    assert {completion.request for completion in again} == set(rows)
    assert not any(completion.engine_failed for completion in again)


# -- sleep, and time that a job is not to blame for


class Lamp:
    """Whether the machine is kept awake."""

    def __init__(self) -> None:
        self.on = False

    def hold(self) -> None:
        self.on = True

    def release(self) -> None:
        self.on = False


@pytest.mark.parametrize("ready", [True, False])
def test_a_machine_that_waits_for_input_may_sleep(ready: bool) -> None:
    machine, lamp = Machine(), Lamp()
    pacer = Pacer(FixedGovernor(20.0, 0.0), machine.clock, Blind(), awake=lamp)
    pacer.open()
    assert lamp.on
    pacer.close(more=True, ready=ready)
    assert lamp.on is ready
    pacer.open()
    assert lamp.on


def test_a_jobs_time_limit_does_not_run_on_over_rests() -> None:
    """Rows are held over rests of many times their limit."""
    records = [record | {"timeout_s": 60.0} for record in documents(8, 300, 64)]
    line = run(records, "desktop", 0, HeatGovernor(Bounds(1.0, 1.0, 100.0, 100.0)))
    assert line.summary.rest_s >= 200
    assert [result.status.value for result in line.results] == ["ok"] * 8
