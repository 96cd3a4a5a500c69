"""Fleets in memory: devices of unlike speed and heat, each a real runner on a plant's time; and one that takes none.

Time is simulated: the device that is furthest behind goes on until it has something to report.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from heated import HeatedModel, Lines, Nobody
from plant import PRESETS, Plant, PlantSensors, Work

from batchrun.assembly import Parts
from batchrun.bench.ends import MemorySink, Unattended
from batchrun.config import Settings
from batchrun.core import FinishReason, Result, Status, Timing, Usage
from batchrun.fleet.driver import Driver
from batchrun.fleet.events import Event, Fleet, Joined, Left, Reported
from batchrun.fleet.orders import Order, Report
from batchrun.fleet.station import Inbox, Outbox
from batchrun.governor import Bounds, HeatGovernor
from batchrun.guide import Guide
from batchrun.intake import intake
from batchrun.jobs import JobReader
from batchrun.pacer import Pacer
from batchrun.prompts import Preparer
from batchrun.runner import Ends, Runner
from batchrun.schema_folders import SchemaFolders
from batchrun.selection import Selection
from batchrun.speed import SpeedSensor
from batchrun.step_fit import StepFit
from batchrun.summary import Summary

CONTEXT = 2048
FOREVER_S = 1e12


@dataclass(frozen=True, slots=True)
class Kind:
    """A device: its plant's preset and seed, and how many times as fast as the slowest it is."""

    preset: str
    seed: int
    speed: float


def work_of(kind: Kind) -> Work:
    slow = Work()
    return Work(slow.prefill_tokens_per_s * kind.speed, slow.step_s / kind.speed, slow.row_s / kind.speed)


def parts_of(model: Any, rows: int = 8) -> Parts:
    settings = Settings(engine="fake", parallel=rows, context=CONTEXT)
    guide = Guide(model.tokenizer.for_guide(), model.tokenizer.vocab)
    return Parts(settings, model, guide, Preparer(model, guide))


class Device:
    """One worker in simulated time."""

    def __init__(self, name: str, kind: Kind) -> None:
        self.name = name
        self.plant = Plant(PRESETS[kind.preset], kind.seed)
        self.orders: set[int] = set()
        self.told: Report | None = None  # on its way, at the device's time
        self.inbox = Inbox(idle_wait_s=0.0)
        self.outbox = Outbox(self.inbox)
        parts = parts_of(HeatedModel(self.plant, work_of(kind)))
        pacer = Pacer(
            HeatGovernor(Bounds()),
            self.plant.clock,
            PlantSensors(self.plant),
            SpeedSensor(StepFit(), confirms=True),
        )
        nobody = Nobody(self.plant, FOREVER_S)
        ends = Ends(self.outbox, self.outbox, nobody, self.outbox, self.plant.clock, share_answers=False, pacer=pacer)
        self.runner = Runner(parts, self.inbox.supplier(parts, self.plant.clock), ends, None)
        self.runner.load()
        self.outbox.wanted_jobs = lambda: self.runner.wanted_jobs

    def report(self) -> Report | None:
        """One token boundary.  What there is to tell, if anything."""
        self.runner.turn()
        report = self.outbox.take(0.0)
        self.orders -= {result.index for result in report.results}
        return report if report.results or report.bursts else None


class SimulatedFleet:
    """Devices of several kinds.  `now_s`: the time of whoever reported last."""

    hopeless = ""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        self.devices = {f"device-{place}": Device(f"device-{place}", kind) for place, kind in enumerate(kinds)}
        self.now_s = 0.0
        self.last_given_s = self.done_s = 0.0
        self._new = list(self.devices.values())
        self._stopped: list[Device] = []

    def clock(self) -> float:
        return self.now_s

    def poll(self, wait_s: float) -> Sequence[Event]:
        if self._new:
            new, self._new = self._new, []
            return [Joined(device.name, CONTEXT, device.runner.wanted_jobs) for device in new]
        while working := [device for device in self.devices.values() if device.orders or device.told]:
            device = min(working, key=lambda each: each.plant.time_s)
            if device.told:  # nobody else can come before it any more
                self.now_s = max(self.now_s, device.plant.time_s)
                report, device.told = device.told, None
                return [Reported(device.name, report)]
            device.told = device.report()
        self.now_s += wait_s
        return self._last_reports()

    def _last_reports(self) -> list[Event]:
        stopped, self._stopped = self._stopped, []
        for device in stopped:
            device.runner.turn()  # ends copies that lost, and the burst
        return [Reported(device.name, replace(device.outbox.take(0.0), ended=True)) for device in stopped]

    def give(self, worker: str, orders: tuple[Order, ...], lost: tuple[int, ...]) -> None:
        device = self.devices[worker]
        behind_s = self.now_s - device.plant.time_s
        if orders and not device.orders and behind_s > 0:
            device.plant.rest(behind_s)
        device.orders |= {order.number for order in orders}
        device.orders -= set(lost)
        device.inbox.put(orders, lost)
        self.last_given_s = self.now_s if orders else self.last_given_s

    def refuse(self, worker: str) -> None:
        raise AssertionError("all devices are alike in what they hold")

    def stop(self, *, timed_out: bool) -> None:
        self.done_s = self.now_s
        self._stopped = list(self.devices.values())
        for device in self._stopped:
            device.orders = set()


@dataclass(frozen=True, slots=True)
class Drive:
    """How a run over a fleet ended."""

    summary: Summary
    results: tuple[Result, ...]
    sink: MemorySink


def drive(
    fleet: Fleet, records: Iterable[dict[str, Any]], clock: Any, *, sink: Any = None, source: Any = None
) -> Drive:
    """A run of the real driver."""
    from batchrun.backends.fake import FakeModel

    parts = parts_of(FakeModel())
    sink = sink or MemorySink()
    ends = Ends(sink, sink, Unattended(), Unattended(), clock)
    reader = JobReader(parts.settings.defaults(), SchemaFolders([], []), Path())
    supplier = intake(parts, reader, source or Lines(list(records)), sink, Selection(), clock)
    summary = Driver(parts, supplier, ends, fleet).run()
    return Drive(summary, tuple(getattr(sink, "results", ())), sink)


class PromptFleet:
    """Workers that answer at once: what is left is the driver."""

    hopeless = ""

    def __init__(self, workers: int, wanted_jobs: int = 256, context: int = CONTEXT) -> None:
        self._wanted_jobs = wanted_jobs
        self._events: list[Event] = [Joined(f"worker-{number}", context, wanted_jobs) for number in range(workers)]
        self.given: list[tuple[str, Order]] = []
        self.keeps_orders = False  # for tests that look at them

    def poll(self, wait_s: float) -> Sequence[Event]:
        events, self._events = self._events, []
        return events

    def give(self, worker: str, orders: tuple[Order, ...], lost: tuple[int, ...]) -> None:
        if self.keeps_orders:
            self.given += [(worker, order) for order in orders]
        results = tuple(answered(order) for order in orders)
        self._events.append(Reported(worker, Report(results, wanted_jobs=self._wanted_jobs)))

    def refuse(self, worker: str) -> None:
        pass

    def stop(self, *, timed_out: bool) -> None:
        self._events += [Reported(f"worker-{number}", Report(ended=True)) for number in range(64)]


def answered(order: Order, status: Status = Status.OK) -> Result:
    """What a worker would say of an order."""
    job = order.job
    return Result(
        id=job.id,
        index=order.number,
        status=status,
        output=f"answer to {job.id}",
        finish_reason=FinishReason.STOP,
        errors=(),
        usage=Usage(8, 0, 4, 0),
        timing=Timing(0.0, 0.0, 0.0, 0.0),
        burst=1,
        attempt=1,
        model="fake",
        digest=order.digest,
        meta=None,
    )


__all__ = ["Device", "Drive", "Kind", "Left", "PromptFleet", "SimulatedFleet", "answered", "drive", "parts_of"]
