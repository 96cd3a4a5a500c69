"""The `report` command: reads the files, and shows what they hold in the form that is asked for."""

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console, RenderableType

from batchrun.errors import InputError, UsageError
from batchrun.places import stats_beside
from batchrun.report.comparison import as_json as comparison_json
from batchrun.report.comparison import compare
from batchrun.report.figures import as_json as report_json
from batchrun.report.figures import report
from batchrun.report.lines import ResultLines, bursts
from batchrun.report.table import comparison_tables, report_tables

PAGE_BEGINS = b"<!DOCTYPE html>"


def show(results: Sequence[Path], stats: Path | None, html: Path | None, *, as_json: bool) -> None:
    """Prints the report of one run or the comparison of two; writes the page.  Raises UsageError, InputError,
    OutputError.
    """
    if len(results) > 2 or (len(results) == 2 and (html or stats)):
        raise UsageError("report takes one results file, or two to compare without --html and --stats")
    if len(results) == 2:
        compared = compare(*map(ResultLines, results))
        _show(comparison_json(compared) if as_json else comparison_tables(compared))
        return
    if html:
        _check_page(html, results[0])
    lines = ResultLines(results[0])
    found = report(lines, bursts(stats or stats_beside(results[0])))
    found = replace(found, damaged=lines.damaged)
    if not found.results:
        raise InputError(f"{results[0]} holds no results; expected a results file of batchrun, or its journal")
    if stats and not found.bursts:
        raise InputError(f"--stats {stats} holds no stats; expected a stats file of batchrun")
    if html:
        from batchrun.report.page import write_page

        size_bytes = write_page(found, results[0].name, html)
        print(f"batchrun: {found.results} results -> {html} ({size_bytes / 1e6:.1f} MB)", file=sys.stderr)
    if as_json or not html:
        _show(report_json(found) if as_json else report_tables(found, results[0].name))


def _check_page(html: Path, results: Path) -> None:
    """Raises UsageError where the page would take the place of something else."""
    if html.resolve() == results.resolve():
        raise UsageError(f"--html {html} is the results file; expected another name")
    try:
        with html.open("rb") as file:
            begins = file.read(len(PAGE_BEGINS))
    except OSError:
        return
    if begins and begins != PAGE_BEGINS:
        raise UsageError(f"--html {html} exists and is no report; expected another name")


def _show(shown: dict[str, Any] | RenderableType) -> None:
    if isinstance(shown, dict):
        print(json.dumps(shown, indent=2))
    else:
        Console(highlight=False).print(shown)
