"""What the bare kernels would need for a run's tokens: no scheduler, no masks, the same widths and depths.

Prefill is timed in whole batches into one slot from empty to the run's prompt length; decoding with all rows at that
depth.  The ceiling of a run is its computed prompt tokens and its decoding steps at those speeds, at full width.
"""

import time
from collections.abc import Iterator
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
    """Bare speeds.  `step_s`: one decoding step of `rows` rows."""

    rows: int
    prefill_token_s: float
    step_s: float

    def seconds(self, run: Figures) -> float:
        """What the run's tokens cost at these speeds."""
        drawn = run.completion_tokens - run.forced_tokens
        return run.computed_tokens * self.prefill_token_s + drawn / self.rows * self.step_s


def measure(parts: Parts, longest_tokens: int) -> Kernels:
    """Times the backend alone, at the width and depth that a run with such jobs has."""
    load = slot_plan(parts, longest_tokens)
    depth = min(longest_tokens, load.context) - DECODE_STEPS - 1
    backend = parts.model.load(replace(load, slots=load.rows), lambda: False)
    try:
        prefills = [_timed_prefill(backend, slot, depth) / depth for slot in _filled(backend, load.rows, depth)]
        steps = [_timed_step(backend, load.rows, depth + place) for place in range(DECODE_STEPS)]
        return Kernels(load.rows, median(prefills), median(steps))
    finally:
        backend.close()


def _filled(backend: Backend, rows: int, depth: int) -> Iterator[int]:
    """Fills every slot; gives the first few, emptied, to be timed."""
    for slot in range(rows):
        if slot < PREFILLS:
            yield slot
        else:
            _timed_prefill(backend, slot, depth)


def _timed_prefill(backend: Backend, slot: int, depth: int) -> float:
    began_s = time.perf_counter()
    for start in range(0, depth, backend.limits.batch):
        tokens = [TOKEN] * min(backend.limits.batch, depth - start)
        backend.sample(backend.forward([Feed(slot, start, tokens, None)]), None)
    return time.perf_counter() - began_s


def _timed_step(backend: Backend, rows: int, position: int) -> float:
    began_s = time.perf_counter()
    backend.sample(backend.forward([Feed(slot, position, [TOKEN], Sampling()) for slot in range(rows)]), None)
    return time.perf_counter() - began_s
