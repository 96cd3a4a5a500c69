"""What the bare kernels would need for a run's tokens: no scheduler, no masks, the same widths and depths.

Prefill is timed in pieces of one sequence at two depths, from empty and up to the run's usual prompt, because a token
costs more the more cells it attends to; decoding with all rows at that prompt's depth.  The ceiling of a run is its
computed prompt tokens, the cells that they attended to, and its drawn tokens at full width, at those speeds.
"""

import time
from dataclasses import dataclass, replace
from statistics import median

from batchrun.assembly import Parts, slot_plan
from batchrun.backends.base import Backend
from batchrun.bench.figures import Figures
from batchrun.core import Feed, Sampling

DECODE_STEPS = 24
PREFILLS = 3
TOKEN = 1000  # any word will do: kernels do not look at it


@dataclass(frozen=True, slots=True)
class Kernels:
    """Bare speeds.  `cells_s`: what 1,000 cells to attend to add to a prompt token; `step_s`: a token for all rows."""

    rows: int
    token_s: float
    cells_s: float
    step_s: float

    def seconds(self, run: Figures) -> float:
        """What the run's tokens cost at these speeds."""
        drawn = run.completion_tokens - run.forced_tokens
        prefill_s = run.computed_tokens * self.token_s + run.prefill_kcells * self.cells_s
        return prefill_s + drawn / self.rows * self.step_s


def measure(parts: Parts, longest_tokens: int, prompt_tokens: int) -> Kernels:
    """Times the backend alone, at the width and depth that a run with such jobs has."""
    load = slot_plan(parts, longest_tokens)
    backend = parts.model.load(replace(load, slots=load.rows), lambda: False)
    depth = max(2, min(prompt_tokens, load.context - DECODE_STEPS))
    piece = min(backend.limits.batch, depth // 2)
    try:
        fresh_s = median(_timed_piece(backend, 0, piece) for _ in range(PREFILLS))
        deep_s = median(_timed_piece(backend, depth - piece, piece) for _ in range(PREFILLS))
        for slot in range(load.rows):
            backend.free(slot)
            _fill(backend, slot, 0, depth)
        step_s = median(_timed_step(backend, load.rows, depth + place) for place in range(DECODE_STEPS))
    finally:
        backend.close()
    cells_s = max(0.0, deep_s - fresh_s) / (piece * (depth - piece) / 1000)
    return Kernels(load.rows, max(0.0, fresh_s / piece - cells_s * piece / 2000), cells_s, step_s)


def _fill(backend: Backend, slot: int, start: int, end: int) -> None:
    for begin in range(start, end, backend.limits.batch):
        tokens = [TOKEN] * min(backend.limits.batch, end - begin)
        backend.sample(backend.forward([Feed(slot, begin, tokens, None)]), None)


def _timed_piece(backend: Backend, start: int, tokens: int) -> float:
    """Seconds of one piece of a prompt, behind `start` tokens that are not timed."""
    backend.free(0)
    _fill(backend, 0, 0, start)
    began_s = time.perf_counter()
    _fill(backend, 0, start, start + tokens)
    return time.perf_counter() - began_s


def _timed_step(backend: Backend, rows: int, position: int) -> float:
    began_s = time.perf_counter()
    backend.sample(backend.forward([Feed(slot, position, [TOKEN], Sampling()) for slot in range(rows)]), None)
    return time.perf_counter() - began_s
