"""`batchrun tune`: the fastest settings for this model, these jobs and this machine, by measuring them.

One lever after the other, each with the best found before it: the number format of the weights, flash attention, the
number format of the cache, the rows that decode together, the threads.  A sample of the jobs is run with each; answers
that change against the starting point are counted, and a setting that makes fewer of them valid is not taken however
fast it is.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Any

from batchrun.assembly import engine_and_formats, job_reader, open_parts, original_identity
from batchrun.bench.figures import Figures
from batchrun.bench.modes import answered
from batchrun.bench.workloads import Workload
from batchrun.capacity import DEFAULT_ROWS
from batchrun.config import Settings
from batchrun.core import Job, Result
from batchrun.errors import InputError, UsageError
from batchrun.inputs import inputs
from batchrun.machine import this_machine
from batchrun.profile import Profile, machine_name, save
from batchrun.source import all_lines

FORMATS = ("as-is", "q8_0", "q4_0")
ROWS = (4, 8, 16)
GAIN = 1.03  # what a setting must win to be taken: less is noise

Say = Callable[[str], None]
Lever = Callable[[Settings], list[Settings]]


@dataclass(frozen=True, slots=True)
class Trial:
    """One setting tried.  `changed`: answers that differ from those of the starting point."""

    settings: Settings
    figures: Figures
    changed: int

    @property
    def label(self) -> str:
        chosen = self.settings
        attention = "flash attention" if chosen.flash else "plain attention"
        return f"{chosen.weights}, {attention}, {chosen.kv} cache, {chosen.parallel} rows, {chosen.threads} threads"

    @property
    def described(self) -> str:
        run = self.figures
        return f"{self.label}: {run.wall_s:.1f} s, {run.valid} of {run.jobs} valid, {self.changed} answers changed"


@dataclass(frozen=True, slots=True)
class Tuned:
    """All trials, the first being the starting point, the best of them, and where its profile lies."""

    trials: tuple[Trial, ...]
    best: Trial
    path: Path


def tune(settings: Settings, jobs: Path, sample: int, say: Say) -> Tuned:
    """Measures and keeps a profile.  Raises InputError for a file without jobs, UsageError on the fake engine."""
    if settings.engine == "fake":
        raise UsageError("tune measures a real engine; --engine fake has no speed to find")
    records = _sample(settings, jobs, sample)
    workload = Workload("sample", records, (0.0,) * len(records), jobs)
    threads = this_machine().threads
    start = replace(settings, weights="as-is", parallel=DEFAULT_ROWS, threads=threads, flash=True, kv="f16")
    first, answers = _try(start, workload, None)
    say(f"{first.label}: {first.figures.wall_s:.1f} s, the starting point")
    trials, best = [first], first
    for lever in _levers(settings):
        for candidate in lever(best.settings):
            trial, _ = _try(candidate, workload, answers)
            trials.append(trial)
            say(trial.described)
            if best.figures.wall_s / trial.figures.wall_s >= GAIN and trial.figures.valid >= first.figures.valid:
                best = trial
    return Tuned(tuple(trials), best, save(original_identity(settings), _profile(first, best)))


def _levers(settings: Settings) -> list[Lever]:
    """What can be turned: an MLX folder has one format, and attention and cache have choices on llama.cpp alone."""
    engine, formats = engine_and_formats(settings)
    levers: list[Lever] = [_formats] if formats else []
    if engine == "llamacpp":
        levers += [_attention, _caches]
    return [*levers, _widths, _threads]


def _formats(best: Settings) -> list[Settings]:
    return [replace(best, weights=kind) for kind in FORMATS if kind != best.weights]


def _attention(best: Settings) -> list[Settings]:
    return [replace(best, flash=not best.flash)]


def _caches(best: Settings) -> list[Settings]:
    """Half the cache, where llama.cpp can: without flash attention it keeps the values in 16 bits."""
    return [replace(best, kv="q8_0")] if best.flash else []


def _widths(best: Settings) -> list[Settings]:
    return [replace(best, parallel=rows) for rows in ROWS if rows != best.parallel]


def _threads(best: Settings) -> list[Settings]:
    """One thread less leaves a core to everybody else, and can be faster for it."""
    fewer = this_machine().threads - 1
    return [replace(best, threads=fewer)] if fewer else []


def _profile(first: Trial, best: Trial) -> Profile:
    chosen = best.settings
    assert chosen.parallel is not None, "a trial says its width"
    assert chosen.threads is not None, "a trial says its threads"
    assert chosen.flash is not None, "a trial says its attention"
    speedup = round(first.figures.wall_s / best.figures.wall_s, 2)
    today = date.today().isoformat()
    return Profile(
        machine_name(), today, chosen.weights, chosen.parallel, chosen.threads, chosen.flash, chosen.kv, speedup
    )


def _try(settings: Settings, workload: Workload, before: dict[str, Any] | None) -> tuple[Trial, dict[str, Any]]:
    parts = open_parts(settings, profiled=False)
    try:
        results, run = answered(parts, workload)
    finally:
        parts.model.close()
    answers = {result.id: _answer(result) for result in results}
    changed = sum(before.get(job_id) != answer for job_id, answer in answers.items()) if before else 0
    return Trial(settings, run, changed), answers


def _answer(result: Result) -> Any:
    return (result.status, json.dumps(result.output, sort_keys=True))


def _sample(settings: Settings, jobs: Path, count: int) -> tuple[dict[str, Any], ...]:
    """So many job lines, evenly spread over the file; lines that would be rejected are passed over."""
    reader = job_reader(settings, jobs)
    source = inputs((str(jobs),), line_bytes=settings.line_bytes).source()
    good = [line for line in all_lines(source) if isinstance(reader.read_line(line), Job)]
    if not good:
        raise InputError(f"{jobs} holds no jobs to tune with")
    step = max(1, len(good) // count)
    return tuple(json.loads(line.data) for line in good[::step][:count])
