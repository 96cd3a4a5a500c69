"""The scoreboard: ways to run one workload, in turn, over and over, on the same weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from batchrun.assembly import Parts, open_parts
from batchrun.bench import ceiling
from batchrun.bench.ceiling import Kernels
from batchrun.bench.figures import Figures
from batchrun.bench.modes import MODES, Mode, longest_tokens
from batchrun.bench.peers import peer
from batchrun.bench.workloads import Workload, build
from batchrun.capacity import DEFAULT_ROWS
from batchrun.config import WEIGHTS, Settings
from batchrun.errors import UsageError

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Board:
    """Runs by label, in the order to show them; the last is batchrun.  `notes`: lines under the table."""

    rows: tuple[tuple[str, tuple[Figures, ...]], ...]
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What to measure: modes by name, a peer (see `peers.py`), rows and weights to sweep over (empty: as settings
    say)."""

    workload: str
    jobs: int | None
    repeat: int
    modes: tuple[str, ...]
    peer: str | None
    streams: tuple[int, ...]
    weights: tuple[str, ...]


def measure(settings: Settings, plan: Plan, say: Say) -> Board:
    """Runs all modes in turn, `repeat` times, for each width and each weight format.  Raises UsageError."""
    unknown = [name for name in plan.modes if name not in MODES]
    if unknown:
        raise UsageError(f"mode {unknown[0]!r} is unknown; expected one of {', '.join(MODES)}")
    modes = [(name, MODES[name]) for name in MODES if name in plan.modes]
    if plan.peer:
        modes.insert(0, peer(plan.peer))
    if settings.engine == "fake" and (plan.peer or "serial" in plan.modes):
        raise UsageError("serial and peers run a real model; --engine fake has none")
    formats = [name for name in plan.weights if name not in WEIGHTS and not name.endswith(".gguf")]
    if formats:
        raise UsageError(f"weights {formats[0]!r} are unknown; expected a .gguf path or one of {', '.join(WEIGHTS)}")
    workload = build(plan.workload, settings.seed, plan.jobs)
    rows: list[tuple[str, tuple[Figures, ...]]] = []
    notes: list[str] = []
    for weights in plan.weights or (settings.weights,):
        for streams in plan.streams or (settings.parallel or DEFAULT_ROWS,):
            chosen = _with_weights(replace(settings, parallel=streams), weights)
            parts = open_parts(chosen)
            label = ", ".join([*([weights] if plan.weights else []), _rows(streams)])
            found, kernels = _in_turn(parts, workload, modes, plan.repeat, say)
            rows += [(f"{name} {label}".strip(), runs) for name, runs in found.items()]
            notes += [f"{label}: {note}" for note in _notes(found.get("continuous", ()), kernels)]
            parts.model.close()
    return Board(tuple(rows), tuple(notes))


def _rows(count: int) -> str:
    return f"{count} row" if count == 1 else f"{count} rows"


def _with_weights(settings: Settings, weights: str) -> Settings:
    """`weights`: a number format, or a file to run as it is."""
    if weights.endswith(".gguf"):
        return replace(settings, model=weights, weights="as-is")
    return replace(settings, weights=weights)


def _in_turn(
    parts: Parts, workload: Workload, modes: Sequence[tuple[str, Mode]], repeat: int, say: Say
) -> tuple[dict[str, tuple[Figures, ...]], list[Kernels]]:
    """A B A B ..., so that a machine that drifts drifts under all of them, the bare kernels included."""
    runs: dict[str, tuple[Figures, ...]] = {name: () for name, _ in modes}
    kernels = []
    for turn in range(repeat):
        for name, mode in modes:
            run = mode(parts, workload)
            runs[name] += (run,)
            say(f"{workload.name} {turn + 1}/{repeat} {name}: {run.wall_s:.2f} s")
            if name == "continuous" and parts.model.card.path and not workload.arrivals_s[-1]:
                kernels.append(ceiling.measure(parts, longest_tokens(parts, workload), run.prompt_tokens // run.jobs))
    return runs, kernels


def _notes(runs: Sequence[Figures], kernels: Sequence[Kernels]) -> list[str]:
    """How near batchrun came to the bare kernels, each run to those that were timed right after it."""
    if not kernels:
        return []
    shares = [bare.seconds(run) / run.wall_s for run, bare in zip(runs, kernels, strict=True)]
    token_ms, cells_ms = (1000 * median(getattr(bare, name) for bare in kernels) for name in ("token_s", "cells_s"))
    rows, step_s = kernels[0].rows, median(bare.step_s for bare in kernels)
    return [
        f"bare kernels take {token_ms:.2f} ms a prompt token and {cells_ms:.2f} ms per 1,000 cells that it attends to, "
        f"and decode {rows / step_s:.1f} tok/s with {_rows(rows)}: {median(shares):.2f} of the wall time"
    ]
