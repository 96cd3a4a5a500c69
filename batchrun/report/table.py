"""A report on the terminal: tables, with nothing in them that a terminal would obey."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from batchrun.printable import printable
from batchrun.report.cards import cards, subtitle
from batchrun.report.comparison import Comparison
from batchrun.report.fields import SchemaFields
from batchrun.report.figures import Report

EXAMPLES = 3  # rows named of each reason
CHANGED_SHOWN = 20
VALUES_SHOWN, VALUE_CHARACTERS = 3, 24


def report_tables(found: Report, title: str) -> RenderableType:
    """The figures, the reasons of failures, and the fields of the answers."""
    seconds = [("first token, p50 / p95", _pair(found.ttft.p50, found.ttft.p95))]
    seconds += [("whole answer, p50 / p95", _pair(found.total.p50, found.total.p95))]
    figures = [(name, value) for name, value, _ in cards(found)] + seconds
    parts: list[RenderableType] = [_table(f"{title}: {subtitle(found)}", ("", ""), figures)]
    if found.reasons:
        rows = [
            (reason.status, reason.code, f"{reason.jobs:,}", ", ".join(job for _, job, _ in reason.rows[:EXAMPLES]))
            for reason in found.reasons
        ]
        parts.append(_table("what went wrong", ("status", "reason", "jobs", "such as"), rows))
    return Group(*parts, *map(_fields, found.schemas))


def comparison_tables(found: Comparison) -> RenderableType:
    """Counts of rows, the changes of status, what differs, and the first rows that changed."""
    counts = [
        ("same result", f"{found.same:,}"),
        ("another result", f"{found.changed:,}"),
        ("only before", f"{found.only_before:,}"),
        ("only after", f"{found.only_after:,}"),
        *((f"differs in: {name}", f"{rows:,}") for name, rows in found.reasons.items()),
        *((f"{a} → {b}", f"{rows:,}") for (a, b), rows in found.statuses.items() if a != b),
    ]
    parts: list[RenderableType] = [_table("before and after", ("", "rows"), counts)]
    if found.rows:
        rows = [(row.id, row.before, row.after, ", ".join(row.why)) for row in found.rows[:CHANGED_SHOWN]]
        parts.append(_table("rows that changed", ("job", "before", "after", "what differs"), rows))
    return Group(*parts)


def _fields(schema: SchemaFields) -> Table:
    rows = [
        (
            field.name,
            f"{100 * field.filled / field.of:.0f} %",
            "many" if field.distinct is None else f"{field.distinct:,}",
            ", ".join(f"{_short(value)} ({count:,})" for value, count in field.values[:VALUES_SHOWN]),
        )
        for field in schema.fields
    ]
    return _table(
        f"answers: {schema.schema} ({schema.answers:,} ok)", ("field", "filled", "different", "such as"), rows
    )


def _short(value: str) -> str:
    return value if len(value) <= VALUE_CHARACTERS else value[: VALUE_CHARACTERS - 1] + "…"


def _table(title: str, columns: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    table = Table(title=Text(printable(title)), title_justify="left", show_header=any(columns))
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in rows:
        table.add_row(*(Text(printable(cell)) for cell in row))
    return table


def _pair(p50: float | None, p95: float | None) -> str:
    return "unknown" if p50 is None or p95 is None else f"{p50:.2f} s / {p95:.2f} s"
