"""Places jobs on lanes of a timeline: a lane for each slot, a bar for each phase of a job.

Of a run on several machines, a lane is a slot of one of them: the stats say on which a burst ran.  Where a line does
not say its slot (older results, merged files), the job gets the first lane that is free when it starts: as many lanes
as there were rows, though not the same ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from batchrun.report.figures import Job
from batchrun.report.lines import Record, moment

PREFILL, DECODE, FORCED = PHASES = ("prefill", "decode", "forced")


@dataclass(frozen=True, slots=True)
class Bar:
    """A phase of a job on a lane; seconds since the first moment that is drawn."""

    lane: str
    phase: str
    start_s: float
    seconds: float
    job: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """What is drawn: bars of jobs, and the moments at which bursts began, with their numbers."""

    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    borders: tuple[tuple[float, int], ...]
    rests: tuple[tuple[float, float], ...]  # start and length


def timeline(jobs: Iterable[Job], bursts: Sequence[Record]) -> Timeline:
    """The bars of all jobs that say when they ended."""
    timed = sorted((job for job in jobs if job.ended is not None), key=_slot_start)
    starts = [(at, burst) for burst in bursts if (at := moment(burst.get("started_at"))) is not None]
    first = min(map(_slot_start, timed), default=0.0)
    starts = [(at, burst) for at, burst in starts if at + _seconds(burst, "wall") + _seconds(burst, "rest") >= first]
    placed = _placed(timed, {burst["burst"]: burst.get("node") or "" for burst in bursts})
    lanes = sorted({lane for lane, _ in placed}, key=_lane_order)
    return Timeline(
        tuple(lanes),
        tuple(bar for lane, job in placed for bar in _bars(lane, job, first)),
        tuple((at - first, burst["burst"]) for at, burst in starts),
        tuple(
            (at - first + _seconds(burst, "wall"), rest_s)
            for at, burst in starts
            if (rest_s := _seconds(burst, "rest")) > 0
        ),
    )


def _placed(jobs: Sequence[Job], nodes: Mapping[int, str]) -> list[tuple[str, Job]]:
    """Each job with its lane.  `jobs`: by start; `nodes`: the machine of each burst."""
    made_up: dict[str, list[float]] = {}  # of a machine: when each lane that was made up is free
    placed = []
    for job in jobs:
        node = nodes.get(job.burst or 0, "")
        if job.slot is not None:
            slot = job.slot
        else:
            ends = made_up.setdefault(node, [])
            slot = next((place for place, end in enumerate(ends) if end <= _slot_start(job) + 1e-6), len(ends))
            ends[slot : slot + 1] = [job.ended or 0.0]
        placed.append((f"{node} {slot}".strip(), job))
    return placed


def _lane_order(lane: str) -> tuple[str, int]:
    node, _, slot = lane.rpartition(" ")
    return node, int(slot)


def _bars(lane: str, job: Job, first: float) -> Iterable[Bar]:
    start = _slot_start(job)
    assert job.ended is not None, "only timed jobs are drawn"
    drawn = start if job.ttft_s is None else min(job.ended, job.ended - job.total_s + job.ttft_s)
    forced_s = min(job.forced_s, job.ended - drawn)
    bar = Bar(lane, PREFILL, start - first, (job.ended if job.ttft_s is None else drawn) - start, job.id)
    yield bar
    if job.ttft_s is not None:
        yield replace(bar, phase=DECODE, start_s=drawn - first, seconds=job.ended - drawn - forced_s)
        if forced_s > 0:
            yield replace(bar, phase=FORCED, start_s=job.ended - forced_s - first, seconds=forced_s)


def _slot_start(job: Job) -> float:
    """When it got its slot."""
    assert job.ended is not None, "only timed jobs are drawn"
    return job.ended - job.total_s + job.queued_s


def _seconds(burst: Record, name: str) -> float:
    value = burst["seconds"].get(name)
    return float(value) if isinstance(value, int | float) else 0.0
