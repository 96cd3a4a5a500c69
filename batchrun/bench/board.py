"""The scoreboard: modes of running one workload, in turn, on the same weights."""

from collections.abc import Sequence

from batchrun.assembly import open_parts
from batchrun.bench import continuous
from batchrun.bench.figures import Figures, as_json, table
from batchrun.bench.workloads import WORKLOADS, build
from batchrun.config import Settings
from batchrun.errors import UsageError

__all__ = ["as_json", "measure", "table"]


def measure(
    settings: Settings, workload: str, jobs: int | None, repeat: int
) -> Sequence[tuple[str, Sequence[Figures]]]:
    """Runs a workload `repeat` times.  Raises UsageError for a workload that is not known."""
    if workload not in WORKLOADS:
        raise UsageError(f"workload {workload!r} is unknown; expected one of {', '.join(WORKLOADS)}")
    records = build(workload, settings.seed, jobs)
    parts = open_parts(settings)
    return [("continuous", [continuous.run(parts, records) for _ in range(repeat)])]
