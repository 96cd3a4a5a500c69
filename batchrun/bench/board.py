"""The scoreboard: ways to run one workload, in turn, over and over, on the same weights."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from batchrun.assembly import Parts, open_parts
from batchrun.bench import ceiling
from batchrun.bench.figures import Figures, medians
from batchrun.bench.modes import MODES, Mode, longest_tokens
from batchrun.bench.peers import peer
from batchrun.bench.workloads import Workload, build
from batchrun.config import Settings
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
    workload = build(plan.workload, settings.seed, plan.jobs)
    modes = [(name, MODES[name]) for name in MODES if name in plan.modes]
    if plan.peer:
        modes.insert(0, peer(plan.peer))
    rows: list[tuple[str, tuple[Figures, ...]]] = []
    notes: list[str] = []
    for weights in plan.weights or (settings.weights,):
        for streams in plan.streams or (settings.parallel,):
            chosen = replace(settings, parallel=streams, weights=weights)
            parts = open_parts(chosen)
            label = ", ".join([*([weights] if plan.weights else []), *([f"{streams} rows"] if streams else [])])
            found = _in_turn(parts, workload, modes, plan.repeat, say)
            rows += [(f"{name} {label}".strip(), runs) for name, runs in found]
            notes += _notes(parts, workload, dict(found), label)
            parts.model.close()
    return Board(tuple(rows), tuple(notes))


def _in_turn(
    parts: Parts, workload: Workload, modes: Sequence[tuple[str, Mode]], repeat: int, say: Say
) -> list[tuple[str, tuple[Figures, ...]]]:
    """A B A B ..., so that a machine that drifts drifts under all of them."""
    runs: dict[str, list[Figures]] = {name: [] for name, _ in modes}
    for turn in range(repeat):
        for name, mode in modes:
            runs[name].append(mode(parts, workload))
            say(f"{workload.name} {turn + 1}/{repeat} {name}: {runs[name][-1].wall_s:.2f} s")
    return [(name, tuple(found)) for name, found in runs.items()]


def _notes(parts: Parts, workload: Workload, found: dict[str, tuple[Figures, ...]], label: str) -> list[str]:
    """How near batchrun came to the bare kernels.  On arrivals that are waited for, that says nothing."""
    if "continuous" not in found or parts.model.card.path is None or workload.arrivals_s[-1]:
        return []
    run = medians(found["continuous"])
    kernels = ceiling.measure(parts, longest_tokens(parts, workload))
    return [
        f"{label + ': ' if label else ''}bare kernels {1 / kernels.prefill_token_s:.0f} prefill tok/s, "
        f"{kernels.rows / kernels.step_s:.0f} decode tok/s at {kernels.rows} rows: "
        f"{kernels.seconds(run):.2f} s for this run's tokens, {kernels.seconds(run) / run.wall_s:.2f} of its wall"
    ]
