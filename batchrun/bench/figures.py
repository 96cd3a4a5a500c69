"""The figures of one benchmark run, and runs side by side: medians, spread, a table."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from batchrun.core import Result, Status
from batchrun.stats import BurstStats, percentile


@dataclass(frozen=True, slots=True)
class Figures:
    """One run of one workload in one mode.  Times in seconds, shares of the wall time."""

    wall_s: float
    jobs: int
    valid: int
    prompt_tokens: int
    computed_tokens: int
    prefill_kcells: float  # thousands of cells that computed prompt tokens attended to; 0 where nobody counted
    completion_tokens: int
    forced_tokens: int
    tokens_per_s: float
    row_tokens_per_s: float  # from a row's first token to its last
    validated_per_min: float
    ttft_p50_s: float
    ttft_p95_s: float
    total_p50_s: float
    total_p95_s: float
    itl_p95_s: float
    rows_mean: float
    masks_share: float
    host_share: float


def figures(
    results: Sequence[Result], bursts: Sequence[BurstStats], *, wall_s: float, computed_tokens: int | None = None
) -> Figures:
    """What a run came to.  `host_share`: all time outside the backend and outside the masks; 0 where none was taken.

    `computed_tokens`: prompt tokens that went through the model, where no burst has counted them.
    """
    steps = sum(burst.steps for burst in bursts)
    model_s, masks_s = (sum(burst.seconds[name] for burst in bursts) for name in ("model", "masks"))
    completion_tokens = sum(result.usage.completion_tokens for result in results)
    valid = sum(result.status is Status.OK for result in results)
    ttft_s = [r.timing.ttft_s for r in results if r.timing and r.timing.ttft_s is not None]
    total_s = [r.timing.total_s for r in results if r.timing]
    itl_s = [
        r.timing.decode_s / (r.usage.completion_tokens - 1)
        for r in results
        if r.timing and r.usage.completion_tokens > 1
    ]
    computed = sum(burst.tokens["computed"] for burst in bursts) if computed_tokens is None else computed_tokens
    return Figures(
        wall_s=wall_s,
        jobs=len(results),
        valid=valid,
        prompt_tokens=sum(result.usage.prompt_tokens for result in results),
        computed_tokens=computed,
        prefill_kcells=sum(burst.cells["prefill_k"] for burst in bursts),
        completion_tokens=completion_tokens,
        forced_tokens=sum(result.usage.forced_tokens for result in results),
        tokens_per_s=completion_tokens / wall_s,
        row_tokens_per_s=1 / median(itl_s) if itl_s and median(itl_s) else 0.0,
        validated_per_min=60 * valid / wall_s,
        ttft_p50_s=percentile(ttft_s, 0.5) or 0.0,
        ttft_p95_s=percentile(ttft_s, 0.95) or 0.0,
        total_p50_s=percentile(total_s, 0.5) or 0.0,
        total_p95_s=percentile(total_s, 0.95) or 0.0,
        itl_p95_s=percentile(itl_s, 0.95) or 0.0,
        rows_mean=sum(burst.rows["mean"] * burst.steps for burst in bursts) / steps if steps else 1.0,
        masks_share=masks_s / wall_s,
        host_share=max(0.0, 1 - (model_s + masks_s) / wall_s) if bursts else 0.0,
    )


def medians(runs: Sequence[Figures]) -> Figures:
    """Field by field."""
    return Figures(**{name: median(getattr(run, name) for run in runs) for name in Figures.__dataclass_fields__})


def spread(runs: Sequence[Figures]) -> str:
    """Least and most wall time."""
    walls = [run.wall_s for run in runs]
    return f"{min(walls):.2f}-{max(walls):.2f}"


COLUMNS: Sequence[tuple[str, str, str]] = (
    ("wall s", "wall_s", ".2f"),
    ("valid", "valid", ".0f"),
    ("jobs", "jobs", ".0f"),
    ("prompt tok", "prompt_tokens", ".0f"),
    ("computed", "computed_tokens", ".0f"),
    ("answer tok", "completion_tokens", ".0f"),
    ("tok/s", "tokens_per_s", ".1f"),
    ("tok/s a row", "row_tokens_per_s", ".1f"),
    ("valid/min", "validated_per_min", ".0f"),
    ("ttft p50", "ttft_p50_s", ".2f"),
    ("ttft p95", "ttft_p95_s", ".2f"),
    ("total p95", "total_p95_s", ".2f"),
    ("itl p95", "itl_p95_s", ".3f"),
    ("rows", "rows_mean", ".1f"),
    ("masks", "masks_share", ".1%"),
    ("host", "host_share", ".1%"),
)


def table(rows: Sequence[tuple[str, Sequence[Figures]]], *, markdown: bool) -> str:
    """Rows of (label, runs) as a table for a terminal, or in Markdown.

    The last column is the wall time over that of the last row: below 1 is faster than batchrun.
    """
    head = ["", *(title for title, _, _ in COLUMNS), "wall range", "x wall"]
    last_s = medians(rows[-1][1]).wall_s
    body = [
        [
            label,
            *(format(getattr(medians(runs), name), form) for _, name, form in COLUMNS),
            spread(runs),
            f"{medians(runs).wall_s / last_s:.2f}",
        ]
        for label, runs in rows
    ]
    widths = [max(len(line[place]) for line in [head, *body]) for place in range(len(head))]
    cells = [[cell.rjust(width) for cell, width in zip(line, widths, strict=True)] for line in [head, *body]]
    if not markdown:
        return "\n".join("  ".join(line).rstrip() for line in cells)
    lines = ["| " + " | ".join(line) + " |" for line in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 1) + ":" for width in widths) + "|", *lines[1:]])


def as_json(rows: Sequence[tuple[str, Sequence[Figures]]]) -> dict[str, Any]:
    return {label: {"median": asdict(medians(runs)), "runs": [asdict(run) for run in runs]} for label, runs in rows}
