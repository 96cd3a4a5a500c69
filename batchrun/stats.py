"""Counts what a burst did, and turns the counts into one line of statistics.

A burst's figures are of its own time: a job counts in the burst in which it ended, tokens and seconds in the burst in
which they were spent, so the lines of a run add up to the run.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from batchrun.backends.base import Upkeep
from batchrun.conditions import Conditions
from batchrun.core import Completion, Result, Status


@dataclass(slots=True)
class Meter:
    """Counters of the engine for one burst; the engine adds, `burst_stats` reads."""

    steps: int = 0  # tokens that a row could draw; a chain counts each
    rows: int = 0  # summed over steps
    rows_peak: int = 0
    computed_tokens: int = 0  # prefill that went through the model: prompts, prefixes, forced openings
    drawn_tokens: int = 0
    proposed_tokens: int = 0  # tried in one forward, where the prompt says how an answer goes on
    accepted_tokens: int = 0  # of those, what was said
    cells_peak: int = 0
    prefill_kcells: float = 0.0  # thousands of cells that prefill attended to
    model_s: float = 0.0
    masks_s: float = 0.0
    guide_s: float = 0.0  # taking drawn tokens: grammar states, ways home
    host_s: float = 0.0
    near_ties: int = 0
    upkeep: Upkeep = field(default_factory=Upkeep)


@dataclass(slots=True)
class Tally:
    """What the jobs that ended in one burst came to."""

    statuses: Counter[str] = field(default_factory=Counter)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    forced_tokens: int = 0
    ttft_s: list[float] = field(default_factory=list)
    total_s: list[float] = field(default_factory=list)
    closed_by_budget: int = 0
    closed_by_runaway: int = 0
    spared_tokens: int = 0  # of the budgets of answers that ran away
    tried_again: int = 0

    def add(self, result: Result, spared_tokens: int = 0, *, stands: bool = True) -> None:
        """Counts a result; one that does not stand is tried again, and counts by what it cost only."""
        self.statuses[result.status.value] += stands
        self.tried_again += not stands
        self.closed_by_budget += result.closed_by_budget and stands
        self.closed_by_runaway += result.closed_by_runaway and stands
        self.spared_tokens += spared_tokens if result.closed_by_runaway else 0
        self.prompt_tokens += result.usage.prompt_tokens
        self.cached_tokens += result.usage.cached_tokens
        self.completion_tokens += result.usage.completion_tokens
        self.forced_tokens += result.usage.forced_tokens
        if result.timing and stands:
            self.total_s.append(result.timing.total_s)
            if result.timing.ttft_s is not None:
                self.ttft_s.append(result.timing.ttft_s)


@dataclass(frozen=True, slots=True)
class BurstStats:
    """One line of the stats file."""

    burst: int
    started_at: str  # ISO 8601, UTC
    jobs: dict[str, int]  # by status
    tokens: dict[str, int]
    steps: int
    rows: dict[str, float]
    seconds: dict[str, float]
    cells: dict[str, float]
    upkeep: dict[str, float]  # rows that joined and left the backend's batch, seconds for that, waits for the device
    ttft_s: dict[str, float | None]
    total_s: dict[str, float | None]
    tokens_per_s: float
    validated_per_min: float
    near_ties: int
    guide: dict[str, int]
    predicted_s: float
    slots: dict[str, int]
    width: dict[str, Any]
    heat: dict[str, Any]
    speed: dict[str, Any]
    pace: dict[str, Any]
    energy: dict[str, Any]
    node: str | None = None  # the machine that it ran on, where there are several


def percentile(values: Sequence[float], share: float) -> float | None:
    """The nearest-rank percentile, or None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def spread(values: Sequence[float]) -> dict[str, float | None]:
    """p50 and p95."""
    return {"p50": _rounded(percentile(values, 0.50)), "p95": _rounded(percentile(values, 0.95))}


def burst_stats(
    burst: int,
    started_at: str,
    meter: Meter,
    tally: Tally,
    *,
    wall_s: float,
    rest_s: float,
    predicted_s: float,
    slots: dict[str, int],
    width: dict[str, Any],
    conditions: Conditions | None = None,
) -> BurstStats:
    """The figures of one burst.  `wall_s` counts its work, without the rest after it."""
    under = conditions or Conditions({}, {}, {}, {})
    wall = max(wall_s, 1e-9)
    return BurstStats(
        burst=burst,
        started_at=started_at,
        jobs=dict(sorted((+tally.statuses).items())),
        tokens={
            "prompt": tally.prompt_tokens,
            "cached": tally.cached_tokens,
            "computed": meter.computed_tokens,
            "decoded": tally.completion_tokens - tally.forced_tokens,
            "forced": tally.forced_tokens,
            "proposed": meter.proposed_tokens,
            "accepted": meter.accepted_tokens,
        },
        steps=meter.steps,
        rows={"mean": round(meter.rows / max(meter.steps, 1), 2), "peak": meter.rows_peak},
        seconds={
            "wall": round(wall_s, 4),
            "model": round(meter.model_s, 4),
            "masks": round(meter.masks_s, 4),
            "guide": round(meter.guide_s, 4),
            "host": round(meter.host_s, 4),
            "rest": round(rest_s, 4),
        },
        cells={"peak": meter.cells_peak, "prefill_k": round(meter.prefill_kcells, 1)},
        upkeep=meter.upkeep._asdict() | {"seconds": round(meter.upkeep.seconds, 4)},
        ttft_s=spread(tally.ttft_s),
        total_s=spread(tally.total_s),
        tokens_per_s=round(tally.completion_tokens / wall, 2),
        validated_per_min=round(60 * tally.statuses[Status.OK.value] / wall, 2),
        near_ties=meter.near_ties,
        guide={
            "closed_by_budget": tally.closed_by_budget,
            "closed_by_runaway": tally.closed_by_runaway,
            "spared_tokens": tally.spared_tokens,
            "tried_again": tally.tried_again,
        },
        predicted_s=round(predicted_s, 2),
        slots=slots,
        width=width,
        heat=under.heat,
        speed=under.speed,
        pace=under.pace,
        energy=under.energy,
    )


def answer_share(completion: Completion) -> float:
    """How much of its budget an answer used, 0 to 1."""
    return completion.usage.completion_tokens / completion.request.job.max_tokens


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)


def as_line(stats: BurstStats) -> dict[str, Any]:
    """The stats as a JSON object, fields in the order they are declared."""
    line = {name: getattr(stats, name) for name in BurstStats.__dataclass_fields__}
    return line if stats.node is not None else {name: value for name, value in line.items() if name != "node"}
