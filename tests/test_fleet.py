"""The driver of a fleet: whoever joins, dies and is slow, every job gets one result, and nothing is run in vain."""

import json
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import heated
import psutil
import pytest
from fleets import CONTEXT, Kind, PromptFleet, SimulatedFleet, answered, drive, work_of
from heated import documents
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.bench.ends import MemorySink
from batchrun.core import CRASHED_TWICE, Problem, Result, Status
from batchrun.errors import ModelError
from batchrun.fleet.events import Event, Joined, Left, Reported
from batchrun.fleet.orders import Likeness, Order, Report
from batchrun.journal import Journal
from batchrun.line import Line

RECORDS = [{"id": str(number), "prompt": f"job {number}", "max_tokens": 8} for number in range(40)]


class Workers:
    """A fleet in which `fate` says what happens next; workers hold orders until then.

    Orders named `killer` end whoever runs them first.
    """

    hopeless = ""

    def __init__(self, fate: Any, wanted_jobs: int = 4) -> None:
        self.held: dict[str, list[Order]] = {}
        self.lost: dict[str, list[int]] = {}
        self.runs: Counter[str] = Counter()
        self.joined = 0
        self._fate, self._wanted_jobs = fate, wanted_jobs
        self._ended: list[str] = []

    def join(self) -> Event:
        self.joined += 1
        self.held[f"worker-{self.joined}"] = []
        return Joined(f"worker-{self.joined}", CONTEXT, self._wanted_jobs)

    def answer(self, worker: str) -> Event:
        """It has a result of the first that it holds, or dies of it."""
        order = self.held[worker].pop(0)
        self.runs[order.job.id] += 1
        if order.job.id == "killer":
            return self.die(worker, blame=True, why="killed")
        return Reported(worker, Report((answered(order),), wanted_jobs=self._wanted_jobs))

    def die(self, worker: str, *, blame: bool, why: str = "died") -> Event:
        del self.held[worker]
        return Left(worker, why, blame=blame)

    def poll(self, wait_s: float) -> Sequence[Event]:
        if self._ended:
            ended, self._ended = self._ended, []
            return [Reported(worker, Report(ended=True)) for worker in ended]
        return self._fate(self)

    def give(self, worker: str, orders: tuple[Order, ...], lost: tuple[int, ...]) -> None:
        if worker in self.held:
            self.held[worker] = [order for order in [*self.held[worker], *orders] if order.number not in lost]
            self.lost.setdefault(worker, []).extend(lost)

    def refuse(self, worker: str) -> None:
        del self.held[worker]

    def stop(self, *, timed_out: bool) -> None:
        self._ended = list(self.held)


def clock() -> float:
    return 0.0


def at_random(data: st.DataObject) -> Any:
    """Workers join, answer, and die with and without blame."""

    def fate(fleet: Workers) -> Sequence[Event]:
        busy = [worker for worker, held in fleet.held.items() if held]
        what = data.draw(st.sampled_from("jaaaaaadg")) if fleet.joined < 30 else "a"
        if not fleet.held or (what == "j" and len(fleet.held) < 5):
            return [fleet.join()]
        worker = data.draw(st.sampled_from(sorted(busy or fleet.held)))
        if what in "dg" and len(fleet.held) > 1:
            return [fleet.die(worker, blame=what == "d")]
        return [fleet.answer(worker)] if busy else []

    return fate


def by_turns(fleet: Workers) -> Sequence[Event]:
    """Two workers at all times, which answer one after the other."""
    if len(fleet.held) < 2:
        return [fleet.join()]
    busy = [worker for worker, held in fleet.held.items() if held]
    return [fleet.answer(busy[sum(fleet.runs.values()) % len(busy)])] if busy else []


@settings(max_examples=60)
@given(st.data())
def test_every_job_has_one_result_whoever_comes_and_goes(data: st.DataObject) -> None:
    run = drive(Workers(at_random(data)), RECORDS, clock)
    assert sorted(result.id for result in run.results) == sorted(record["id"] for record in RECORDS)
    for result in run.results:
        assert result.index == int(result.id) + 1
        assert result.status is Status.OK or result.errors[0].code == CRASHED_TWICE


@settings(max_examples=60)
@given(st.data(), st.integers(0, len(RECORDS)))
def test_only_the_one_to_blame_is_given_up(data: st.DataObject, place: int) -> None:
    """Copies at the end, workers that come and go: nobody is blamed for having been beside it."""

    def fate(fleet: Workers) -> Sequence[Event]:
        event = at_random(data)(fleet)
        return [Left(each.worker, each.why, blame=False) if by_chance(each) else each for each in event]

    def by_chance(event: Event) -> bool:
        return isinstance(event, Left) and event.why == "died"

    records = [*RECORDS[:place], {"id": "killer", "prompt": "kill", "max_tokens": 8}, *RECORDS[place:]]
    run = drive(Workers(fate), records, clock)
    statuses = {result.id: result.status for result in run.results}
    assert statuses.pop("killer") is Status.ERROR
    assert set(statuses.values()) == {Status.OK}
    assert len(run.results) == len(records)


@settings(max_examples=60)
@given(st.data())
def test_nobody_is_blamed_where_machines_just_go_away(data: st.DataObject) -> None:
    def fate(fleet: Workers) -> Sequence[Event]:
        event = at_random(data)(fleet)
        return [Left(each.worker, each.why, blame=False) if isinstance(each, Left) else each for each in event]

    run = drive(Workers(fate), RECORDS, clock)
    assert {result.status for result in run.results} == {Status.OK}


def test_a_job_that_ends_two_workers_is_given_up_and_its_neighbours_are_not() -> None:
    records = [*RECORDS[:10], {"id": "killer", "prompt": "kill", "max_tokens": 8}, *RECORDS[10:]]
    fleet = Workers(by_turns)
    run = drive(fleet, records, clock)
    statuses = {result.id: result.status for result in run.results}
    assert statuses.pop("killer") is Status.ERROR
    assert set(statuses.values()) == {Status.OK}
    assert len(statuses) == len(RECORDS)
    assert fleet.runs["killer"] == 2


def test_at_the_end_the_slowest_holds_nobody_up() -> None:
    slow = "worker-1"

    def fate(fleet: Workers) -> Sequence[Event]:
        if len(fleet.held) < 2:
            return [fleet.join()]
        busy = [worker for worker, held in fleet.held.items() if held and worker != slow]
        assert busy or not fleet.held[slow], "the other one has been offered all that is left"
        return [fleet.answer(busy[0])] if busy else []

    fleet = Workers(fate)
    run = drive(fleet, RECORDS, clock)
    assert {result.status for result in run.results} == {Status.OK}
    assert len(run.results) == len(RECORDS)
    assert max(fleet.runs.values()) == 1  # the slow one never answered


def test_a_copy_is_offered_once_and_whoever_is_slower_hears_of_it() -> None:
    records = RECORDS[:4]

    def fate(fleet: Workers) -> Sequence[Event]:
        if not fleet.held:
            return [fleet.join()]
        if fleet.joined == 1 and fleet.held["worker-1"]:
            return [fleet.join(), fleet.join()]
        copies = [worker for worker in ("worker-2", "worker-3") if fleet.held[worker]]
        assert len({order.number for worker in copies for order in fleet.held[worker]}) == sum(
            len(fleet.held[worker]) for worker in copies
        ), "nobody has a third copy"
        return [fleet.answer(copies[0])] if copies else []

    fleet = Workers(fate)
    run = drive(fleet, records, clock)
    assert len(run.results) == len(records)
    assert fleet.runs == {record["id"]: 1 for record in records}


def test_a_worker_whose_engine_fails_under_everything_costs_nobody_a_result() -> None:
    sick = "worker-1"

    def fate(fleet: Workers) -> Sequence[Event]:
        event = by_turns(fleet)
        return [
            Reported(each.worker, replace(each.report, results=tuple(map(crashed, each.report.results))))
            if isinstance(each, Reported) and each.worker == sick
            else each
            for each in event
        ]

    fleet = Workers(fate)
    run = drive(fleet, RECORDS, clock)
    assert {result.status for result in run.results} == {Status.OK}
    assert sick not in fleet.held


def crashed(result: Result) -> Result:
    return replace(result, status=Status.ERROR, errors=(Problem(CRASHED_TWICE, "the engine died"),))


def test_a_worker_that_ends_by_itself_is_let_go_and_its_jobs_run_elsewhere() -> None:
    def fate(fleet: Workers) -> Sequence[Event]:
        if fleet.joined == 2 and "worker-1" in fleet.held and len(fleet.runs) == 5:
            del fleet.held["worker-1"]
            return [Reported("worker-1", Report(ended=True, failure="out of memory"))]
        return by_turns(fleet)

    run = drive(Workers(fate), RECORDS, clock)
    assert {result.status for result in run.results} == {Status.OK}
    assert len(run.results) == len(RECORDS)


def test_what_shares_a_beginning_stays_with_one_worker_while_there_is_other_work() -> None:
    records = [
        {"id": f"{page}-{question}", "prompt": f"{page}" * 200 + f" question {question}", "max_tokens": 8}
        for question in range(12)
        for page in range(8)
    ]
    fleet = PromptFleet(2, wanted_jobs=12)
    fleet.keeps_orders = True
    drive(fleet, records, clock)
    homes: dict[str, Counter[str]] = {}
    for worker, order in fleet.given:
        homes.setdefault(order.job.id.partition("-")[0], Counter())[worker] += 1
    assert all(max(found.values()) == 12 for found in homes.values())
    assert {found.most_common(1)[0][0] for found in homes.values()} == {"worker-0", "worker-1"}


def test_jobs_that_all_share_one_beginning_are_spread_all_the_same() -> None:
    records = [{"id": str(n), "prompt": "the same beginning " * 20 + str(n), "max_tokens": 8} for n in range(96)]
    fleet = PromptFleet(4, wanted_jobs=8)
    fleet.keeps_orders = True
    drive(fleet, records, clock)
    assert min(Counter(worker for worker, _ in fleet.given).values()) == 24


def test_what_is_held_of_the_input_is_bounded() -> None:
    read = []

    def records() -> Any:
        for number in range(5000):
            read.append(number)
            yield {"id": str(number), "prompt": f"job {number}", "max_tokens": 8}

    seen = []

    def fate(fleet: Workers) -> Sequence[Event]:
        seen.append(len(read) - sum(fleet.runs.values()))
        return by_turns(fleet)

    class Slowly:
        total = None
        blank = 0
        ended = False

        def __init__(self) -> None:
            self._lines = records()

        def next(self, wait_s: float) -> Line | None:
            record = next(self._lines, None)
            self.ended = record is None
            return None if record is None else Line(int(record["id"]) + 1, json.dumps(record).encode())

    run = drive(Workers(fate), [], clock, source=Slowly())
    assert len(run.results) == 5000
    assert max(seen) <= 256 + 2 * 4


def test_workers_that_hold_less_than_the_first_ones_are_let_go() -> None:
    def fate(fleet: Workers) -> Sequence[Event]:
        if fleet.joined == 1:
            fleet.join()
            return [Joined("worker-2", CONTEXT // 2, 4)]
        return by_turns(fleet)

    fleet = Workers(fate)
    run = drive(fleet, RECORDS, clock)
    assert "worker-2" not in fleet.held
    assert len(run.results) == len(RECORDS)


def test_a_fleet_without_hope_ends_the_run_with_the_reason() -> None:
    fleet = Workers(lambda fleet: [])
    fleet.hopeless = "no worker is left: node-1: model missing"
    with pytest.raises(ModelError, match="node-1: model missing"):
        drive(fleet, RECORDS, clock)


def test_two_machines_that_differ_say_in_what_with_both_values() -> None:
    here, there = Likeness("1.0", "llamacpp", "a" * 64, "t"), Likeness("1.0", "llamacpp", "b" * 64, "t")
    assert here.difference(here) == ""
    assert here.difference(there) == f"model {'b' * 16} there, {'a' * 16} here"


def test_unlike_devices_are_all_kept_busy() -> None:
    kinds = [Kind("desktop", 1, 1.0), Kind("laptop", 2, 2.0), Kind("phone", 3, 3.0), Kind("nominal", 4, 4.0)]
    fleet = SimulatedFleet(kinds)
    run = drive(fleet, documents(400, 60, 24), fleet.clock)
    assert sorted(int(result.id) for result in run.results) == list(range(400))
    assert {result.status for result in run.results} == {Status.OK}
    nodes = {burst.node for burst in run.sink.bursts}
    assert nodes == set(fleet.devices)
    assert len({burst.burst for burst in run.sink.bursts}) == len(run.sink.bursts)
    work_s = sum(device.plant.done_s * kind.speed for device, kind in zip(fleet.devices.values(), kinds, strict=True))
    could_s = fleet.done_s * sum(kind.speed for kind in kinds)
    assert work_s > 0.8 * could_s  # the end weighs much in so short a run


KINDS = ("desktop", "laptop", "phone", "nominal")


@pytest.mark.slow
@pytest.mark.parametrize("workers", [1, 2, 4, 8, 16, 32])
def test_ten_thousand_jobs_come_near_to_the_ideal(workers: int) -> None:
    """Ideal is what the same devices do, each alone, in the time of the run."""
    speeds = [1.0 + 3.0 * (number * 7 % workers) / max(1, workers - 1) for number in range(workers)]
    kinds = [Kind(KINDS[(n // 4 + n) % 4], n + 1, speed) for n, speed in enumerate(speeds)]
    fleet = SimulatedFleet(kinds)
    run = drive(fleet, documents(10_000, 60, 24), fleet.clock)
    assert sorted(int(result.id) for result in run.results) == list(range(10_000))
    ideal = 0.0
    for kind in kinds:
        jobs = documents(9_000 if workers > 1 else 11_000, 60, 24)
        alone = heated.run(jobs, kind.preset, kind.seed, work=work_of(kind), seconds=fleet.done_s)
        ideal += len(alone.results) / alone.plant.time_s * fleet.done_s
    fastest = f"device-{speeds.index(max(speeds))}"
    bursts_s = [burst.seconds["wall"] for burst in run.sink.bursts if burst.node == fastest]
    tail_s, burst_s = fleet.done_s - fleet.last_given_s, sum(bursts_s) / len(bursts_s)
    print(f"\n{workers} workers: {10_000 / ideal:.3f} of ideal in {fleet.done_s:.0f} s, tail {tail_s:.1f} s,", end=" ")
    print(f"a burst of the fastest {burst_s:.1f} s")
    assert 10_000 / ideal >= 0.93
    assert tail_s < 2 * burst_s


@pytest.mark.slow
def test_a_million_jobs_go_through_the_driver(tmp_path: Path) -> None:
    class Lines:
        total, blank, ended, number = None, 0, False, 0

        def next(self, wait_s: float) -> Line | None:
            self.number += 1
            self.ended = self.number > 1_000_000
            job = {"id": str(self.number), "prompt": f"job {self.number} of many, with a text of its own"}
            return None if self.ended else Line(self.number, json.dumps(job).encode())

    class Sink(MemorySink):
        journal = Journal(tmp_path / "results.jsonl", fresh=False, force=False, stopped=lambda: False)

        def claim(self, job_id: str, digest: str, index: int = 0) -> Status | None:
            return self.journal.claim(job_id, digest, index)

        def append(self, entry: Any) -> None:
            if isinstance(entry, Result):
                self.journal.append(entry)

    process = psutil.Process()
    before, began_s = process.memory_info().rss, time.monotonic()
    run = drive(PromptFleet(16, wanted_jobs=512), [], time.monotonic, sink=Sink(), source=Lines())
    grown_mib = (process.memory_info().rss - before) / 2**20
    print(f"\n{run.summary.statuses.total() / (time.monotonic() - began_s):.0f} jobs/s, {grown_mib:.0f} MiB more")
    assert run.summary.statuses.total() == 1_000_000
    assert grown_mib < 200
