"""Two runs side by side: which rows have another result, and what about the job was another.

A digest has a part for each thing that shapes an answer (`prompts.PARTS`), so two lines say why they differ without
their jobs.  Rows are matched by id; where a file has several results of one id, by the last.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from batchrun.prompts import PARTS
from batchrun.report.figures import canonical
from batchrun.report.lines import Record

ROWS_SHOWN = 200
SAME_JOB = "the same job"  # its answer differs all the same: a near-tie, a budget, a retry


@dataclass(frozen=True, slots=True)
class Changed:
    """A row whose result differs.  `why`: the parts of the job that differ."""

    id: str
    before: str  # status
    after: str
    why: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """Counts, and the first of the rows that changed."""

    same: int
    changed: int
    only_before: int
    only_after: int
    statuses: dict[tuple[str, str], int]  # of rows that are in both: status before, status after
    reasons: dict[str, int]  # part of the job: changed rows in which it differs
    rows: tuple[Changed, ...]


@dataclass(frozen=True, slots=True)
class _Row:
    status: str
    digest: str
    output: bytes


def compare(before: Iterable[Record], after: Iterable[Record]) -> Comparison:
    """Compares the results of two runs."""
    old, new = _rows(before), _rows(after)
    both = [(job_id, old[job_id], new[job_id]) for job_id in new if job_id in old]
    changed = [
        Changed(job_id, a.status, b.status, _why(a.digest, b.digest))
        for job_id, a, b in both
        if (a.status, a.output) != (b.status, b.output)
    ]
    return Comparison(
        same=len(both) - len(changed),
        changed=len(changed),
        only_before=len(old) - len(both),
        only_after=len(new) - len(both),
        statuses=dict(Counter((a.status, b.status) for _, a, b in both).most_common()),
        reasons=dict(Counter(part for row in changed for part in row.why).most_common()),
        rows=tuple(changed[:ROWS_SHOWN]),
    )


def as_json(found: Comparison) -> dict[str, Any]:
    """The comparison as a JSON object."""
    return {
        "same": found.same,
        "changed": found.changed,
        "only_before": found.only_before,
        "only_after": found.only_after,
        "statuses": [{"before": a, "after": b, "rows": count} for (a, b), count in found.statuses.items()],
        "reasons": found.reasons,
        "rows": [{"id": row.id, "before": row.before, "after": row.after, "why": row.why} for row in found.rows],
    }


def _rows(results: Iterable[Record]) -> Mapping[str, _Row]:
    return {
        record["id"]: _Row(
            record["status"],
            record["digest"],
            blake2b(canonical(record.get("output")).encode(errors="surrogatepass"), digest_size=12).digest(),
        )
        for record in results
    }


def _why(before: str, after: str) -> tuple[str, ...]:
    if before == after:
        return (SAME_JOB,)
    parts = before.split("-"), after.split("-")
    if not all(len(split) == len(PARTS) for split in parts):
        return ("another job",)
    return tuple(name for name, a, b in zip(PARTS, *parts, strict=True) if a != b)
