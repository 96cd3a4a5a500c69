"""The figures of a report: one pass over the results, one over the stats, memory that does not grow with the file.

What the figures say is counted, never sampled; only of single jobs (`Job`) no more than the last ones are drawn.
"""

import json
from collections import Counter, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from batchrun.core import Status
from batchrun.report.fields import FieldCounts, SchemaFields, as_text
from batchrun.report.lines import Record, moment
from batchrun.stats import percentile

DRAWN_JOBS = 600
REASON_ROWS = 20  # rows shown of one reason
MESSAGE_CHARACTERS = 300


@dataclass(frozen=True, slots=True)
class Job:
    """One job as it is drawn: seconds since the epoch, None where its line does not say when it ran."""

    id: str
    index: int
    status: str
    burst: int | None
    slot: int | None
    ended: float | None
    queued_s: float
    ttft_s: float | None
    forced_s: float
    total_s: float


@dataclass(frozen=True, slots=True)
class Reason:
    """One way in which jobs went wrong.  `rows`: the first of them, as (index, id, message)."""

    status: str
    code: str
    jobs: int
    rows: tuple[tuple[int, str, str], ...]


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in seconds.  `values` are all of them, in order."""

    values: tuple[float, ...]

    @property
    def p50(self) -> float | None:
        return percentile(self.values, 0.50)

    @property
    def p95(self) -> float | None:
        return percentile(self.values, 0.95)


@dataclass(frozen=True, slots=True)
class Report:
    """All figures of one run's files."""

    results: int
    damaged: int
    statuses: dict[str, int]
    reasons: tuple[Reason, ...]
    models: dict[str, int]
    tokens: dict[str, int]
    retried: int
    closed_by_budget: int
    ttft: Spread
    total: Spread
    schemas: tuple[SchemaFields, ...]
    jobs: tuple[Job, ...]
    bursts: tuple[Record, ...]

    @property
    def valid(self) -> int:
        return self.statuses.get(Status.OK.value, 0)

    @property
    def seconds(self) -> dict[str, float]:
        """Of all bursts: wall, model, masks, host, rest."""
        sums: Counter[str] = Counter()
        for burst in self.bursts:
            sums.update({name: value for name, value in burst["seconds"].items() if isinstance(value, int | float)})
        return {name: round(value, 3) for name, value in sums.items()}

    @property
    def validated_per_min(self) -> float | None:
        """Over the bursts' own time and rests, or None where there are no stats."""
        spent_s = self.seconds.get("wall", 0.0) + self.seconds.get("rest", 0.0)
        valid = sum(burst.get("jobs", {}).get(Status.OK.value, 0) for burst in self.bursts)
        return round(60 * valid / spent_s, 2) if spent_s else None


@dataclass(slots=True)
class _Reasons:
    jobs: Counter[tuple[str, str]] = field(default_factory=Counter)
    rows: dict[tuple[str, str], list[tuple[int, str, str]]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        problems = [problem for problem in record.get("errors") or () if isinstance(problem, dict)]
        first = problems[0] if problems else {}
        key = (record["status"], as_text(first.get("code", record["status"])))
        self.jobs[key] += 1
        rows = self.rows.setdefault(key, [])
        if len(rows) < REASON_ROWS:
            message = str(first.get("message", ""))[:MESSAGE_CHARACTERS]
            rows.append((_whole(record.get("index")), as_text(record["id"]), message))

    def found(self) -> tuple[Reason, ...]:
        return tuple(
            Reason(status, code, jobs, tuple(self.rows[status, code]))
            for (status, code), jobs in self.jobs.most_common()
        )


def report(results: Iterable[Record], bursts: tuple[Record, ...]) -> Report:
    """Counts.  `damaged` is left at 0: whoever reads the lines knows it."""
    statuses, models, tokens, flags = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    reasons, fields = _Reasons(), FieldCounts()
    last: deque[Record] = deque(maxlen=DRAWN_JOBS)
    ttft_s: list[float] = []
    total_s: list[float] = []
    for record in results:
        statuses[record["status"]] += 1
        models[as_text(record.get("model"))] += 1
        tokens.update({k: v for k, v in (record.get("usage") or {}).items() if isinstance(v, int)})
        flags["retried"] += _whole(record.get("attempt")) > 1
        flags["closed_by_budget"] += bool(record.get("closed_by_budget"))
        if record["status"] == Status.OK.value:
            fields.add(_schema_name(record), record.get("output"))
        else:
            reasons.add(record)
        timing = record.get("timing") or {}
        if isinstance(timing.get("total_s"), int | float):
            total_s.append(timing["total_s"])
            last.append(record)
        if isinstance(timing.get("ttft_s"), int | float):
            ttft_s.append(timing["ttft_s"])
    return Report(
        results=statuses.total(),
        damaged=0,
        statuses=dict(statuses.most_common()),
        reasons=reasons.found(),
        models=dict(models.most_common()),
        tokens=dict(tokens),
        retried=flags["retried"],
        closed_by_budget=flags["closed_by_budget"],
        ttft=Spread(tuple(sorted(ttft_s))),
        total=Spread(tuple(sorted(total_s))),
        schemas=fields.found(),
        jobs=tuple(map(_job, last)),
        bursts=bursts,
    )


def as_json(found: Report) -> dict[str, Any]:
    """The figures as a JSON object; seconds in seconds."""
    return {
        "results": found.results,
        "damaged_lines": found.damaged,
        "statuses": found.statuses,
        "reasons": [
            {"status": r.status, "code": r.code, "jobs": r.jobs, "rows": [{"index": i, "id": n} for i, n, _ in r.rows]}
            for r in found.reasons
        ],
        "models": found.models,
        "tokens": found.tokens,
        "retried": found.retried,
        "closed_by_budget": found.closed_by_budget,
        "ttft_s": {"p50": found.ttft.p50, "p95": found.ttft.p95},
        "total_s": {"p50": found.total.p50, "p95": found.total.p95},
        "bursts": len(found.bursts),
        "seconds": found.seconds,
        "validated_per_min": found.validated_per_min,
        "schemas": [
            {
                "schema": schema.schema,
                "answers": schema.answers,
                "fields": [
                    {"name": f.name, "filled": f.filled, "distinct": f.distinct, "values": [list(v) for v in f.values]}
                    for f in schema.fields
                ],
            }
            for schema in found.schemas
        ],
    }


def canonical(value: Any) -> str:
    """JSON with sorted keys, to compare outputs by."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _schema_name(record: Record) -> str:
    name = record.get("schema")
    if isinstance(name, str):
        return as_text(name)
    return "free text" if isinstance(record.get("output"), str) else "unnamed schema"


def _job(record: Record) -> Job:
    timing = record["timing"]
    return Job(
        id=as_text(record["id"]),
        index=_whole(record.get("index")),
        status=record["status"],
        burst=record.get("burst"),
        slot=record.get("slot"),
        ended=moment(record.get("ended_at")),
        queued_s=timing.get("queued_s") or 0.0,
        ttft_s=timing.get("ttft_s"),
        forced_s=timing.get("forced_s") or 0.0,
        total_s=timing["total_s"],
    )


def _whole(value: Any) -> int:
    return value if isinstance(value, int) else 0
