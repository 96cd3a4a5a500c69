"""The whole line on a machine that heats up: the fake backend, whose steps take a plant's time."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from plant import PRESETS, Plant, PlantSensors, Work

from batchrun.assembly import Parts
from batchrun.backends.base import LoadPlan
from batchrun.backends.fake import FakeBackend, FakeModel
from batchrun.bench.ends import MemorySink, MemorySource, Unattended
from batchrun.bench.workloads import Workload
from batchrun.config import Settings
from batchrun.core import Drawn, Feed, Limits, Result, Status
from batchrun.governor import Bounds, FixedGovernor, Governor, HeatGovernor
from batchrun.guide import Guide
from batchrun.intake import intake
from batchrun.jobs import JobReader
from batchrun.pacer import Pacer
from batchrun.permission import Stop
from batchrun.prompts import Preparer
from batchrun.runner import Ends, Runner
from batchrun.schema_folders import SchemaFolders
from batchrun.selection import Selection
from batchrun.speed import SpeedSensor
from batchrun.stats import BurstStats
from batchrun.step_fit import StepFit
from batchrun.summary import Summary


class HeatedBackend(FakeBackend):
    """The referee, on silicon that takes its time and gets hot."""

    def __init__(self, limits: Limits, plant: Plant, work: Work) -> None:
        super().__init__(limits)
        self._plant, self._work = plant, work

    def sample(self, pending: list[Feed], masks: Any) -> list[Drawn]:
        single = sum(len(feed.tokens) == 1 for feed in pending)
        prefill = sum(len(feed.tokens) for feed in pending if len(feed.tokens) > 1)
        self._plant.work(self._work.seconds(prefill, single))
        return super().sample(pending, masks)


class HeatedModel(FakeModel):
    def __init__(self, plant: Plant, work: Work) -> None:
        super().__init__()
        self._plant, self._work = plant, work

    def load(self, plan: LoadPlan, stopped: Callable[[], bool]) -> HeatedBackend:
        limits = Limits(plan.slots, plan.context, cells=plan.slots * plan.context, batch=plan.batch, vocab=262)
        return HeatedBackend(limits, self._plant, self._work)


class Nobody(Unattended):
    """Nobody stops the run; its waits are the plant's rests."""

    def __init__(self, plant: Plant, until_s: float) -> None:
        self._plant, self._until_s = plant, until_s

    @property
    def stopped(self) -> bool:  # type: ignore[override]
        return self._plant.time_s >= self._until_s

    def wait(self, seconds: float) -> bool:
        self._plant.rest(seconds)
        return False


class Lines(MemorySource):
    """Job lines that are all there at once."""

    def __init__(self, records: Sequence[dict[str, Any]]) -> None:
        super().__init__(Workload("test", tuple(records), (0.0,) * len(records)))

    def next(self, wait_s: float) -> Any:
        return super().next(0.0)


@dataclass(frozen=True, slots=True)
class Line:
    """How a run ended.  `throttled_s`: of each burst."""

    summary: Summary
    results: tuple[Result, ...]
    bursts: tuple[BurstStats, ...]
    plant: Plant

    @property
    def per_hour(self) -> float:
        """Validated results."""
        return 3600 * sum(result.status is Status.OK for result in self.results) / self.plant.time_s


def documents(count: int, tokens: int, max_tokens: int) -> Iterable[dict[str, Any]]:
    """Jobs of so many tokens (a byte is one) that share nothing; an answer ends where its budget does."""
    schema = {"type": "string", "minLength": max_tokens - 4, "maxLength": max_tokens - 4, "pattern": "^[a-z]*$"}
    for number in range(count):
        prompt = f"{number:06d}" * (tokens // 6)
        yield {"id": str(number), "prompt": prompt, "schema": schema, "max_tokens": max_tokens}


def run(
    records: Iterable[dict[str, Any]],
    preset: str,
    seed: int,
    law: Governor | None = None,
    *,
    rows: int = 8,
    seconds: float = 1e9,
    work: Work | None = None,
    watched: bool = True,
    plant: Plant | None = None,
    stop: Stop | None = None,
) -> Line:
    """A run of the real runner under a law; None is the governor."""
    plant, work = plant or Plant(PRESETS[preset], seed), work or Work()
    settings = Settings(engine="fake", parallel=rows, context=2048, prefix=False)
    model = HeatedModel(plant, work)
    guide = Guide(model.tokenizer.for_guide(), model.tokenizer.vocab)
    parts = Parts(settings, model, guide, Preparer(model, guide))
    sink, nobody = MemorySink(), Nobody(plant, seconds)
    speed = SpeedSensor(StepFit(), confirms=True) if watched else None
    pacer = Pacer(law or HeatGovernor(Bounds()), plant.clock, PlantSensors(plant), speed)
    ends = Ends(sink, sink, stop or nobody, nobody, plant.clock, pacer=pacer)
    reader = JobReader(settings.defaults(), SchemaFolders([], []), Path())
    supplier = intake(parts, reader, Lines(list(records)), sink, Selection(), plant.clock)  # type: ignore[arg-type]
    summary = Runner(parts, supplier, ends, None).run()  # type: ignore[arg-type]
    return Line(summary, tuple(sink.results), tuple(sink.bursts), plant)


def without_rest() -> FixedGovernor:
    return FixedGovernor(20.0, 0.0)
