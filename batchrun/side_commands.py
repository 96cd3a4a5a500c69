"""The commands that run no model: `merge` and `schedule`."""

import re
import sys
from pathlib import Path
from typing import Annotated

import typer

from batchrun import options
from batchrun.errors import UsageError
from batchrun.printable import printable

BESIDE_RESULTS = (".stats.jsonl", ".replaced.jsonl", ".pieces.jsonl")


def merge(
    parts: Annotated[list[Path], typer.Argument(metavar="PART...", help="Results files, such as those of shards.")],
    output: Annotated[str, typer.Option("--output", "-o", help="Results file; - is standard output.")] = "-",
    output_format: options.OutputFormat = None,
    order: options.Order = None,
    force: Annotated[bool, typer.Option("--force", help="Replace an output that is there.")] = False,
) -> None:
    """Join results files into one, in which every id stands once: with its best result, of equals the latest.

    Exit status: 0 all results are ok, 3 some are not, 2 usage, 4 a part is no results file, 6 output not written.
    """
    from batchrun import merge as merging
    from batchrun.sinks import outlet

    form, ordered = _choices(output_format, order)
    parts = _results_among(parts)
    path = None if output == "-" else Path(output)
    if path:
        merging.check_output(path, parts, force=force)
    out, complete = outlet(path, form), False
    try:
        found = merging.merge(parts, out, ordered=ordered)
        complete = True
    finally:
        out.close(complete)
    for text in merging.lines(found, len(parts)):
        print(f"batchrun: {printable(text)}", file=sys.stderr)
    raise typer.Exit(0 if found.all_ok else 3)


def schedule(
    command: Annotated[list[str], typer.Argument(metavar="-- run ...", help="The run, as it would be typed here.")],
    every: Annotated[str, typer.Option(help="15m, 6h, 1d or 1w.")] = "1d",
    at: Annotated[str | None, typer.Option(help="Time of day, with 1d or 1w. Default: 00:00.")] = None,
    kind: Annotated[str | None, typer.Option("--for", help="systemd, launchd or cron. Default: this system's.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the files. Default: from the job file.")] = None,
    on_battery: Annotated[bool, typer.Option("--on-battery", help="Run on battery power too.")] = False,
    install: Annotated[bool, typer.Option("--install", help="Write the files for this user.")] = False,
) -> None:
    """Print what makes this system start a run at set times: low priority, on mains power, in this folder.

    Exit status 3 (some jobs are not ok) and 75 (stopped at its deadline; the next start goes on) are no failures.
    """
    from batchrun import schedule as scheduling
    from batchrun import schedule_install as installing

    if command[0] != "run":
        raise UsageError(f"the command to schedule begins with {command[0]!r}; expected: schedule ... -- run JOBS ...")
    kind = kind or installing.default_kind()
    if kind not in scheduling.KINDS:
        raise UsageError(f"--for is {kind!r}; expected {', '.join(scheduling.KINDS)}")
    name = name or installing.name_of(command)
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name):
        raise UsageError(f"--name is {name!r}; expected letters, digits, dots, dashes and underscores")
    rhythm = scheduling.rhythm(every, at)
    words = (*installing.program(), *command)
    units = scheduling.units(scheduling.Plan(name, words, Path.cwd(), rhythm, not on_battery), kind)
    if install:
        typer.echo("\n".join(installing.install(units, kind, name)))
        return
    for unit in units:
        typer.echo((f"# {unit.name}\n" if len(units) > 1 else "") + unit.text)


def _results_among(parts: list[Path]) -> list[Path]:
    """The parts without the files that stand beside results, which a glob catches too."""
    kept = [part for part in parts if not part.name.endswith(BESIDE_RESULTS)]
    if len(kept) < len(parts):
        count = len(parts) - len(kept)
        print(f"batchrun: {count} passed over that hold no final results: stats, replaced, pieces", file=sys.stderr)
    if not kept:
        raise UsageError("no results file is among the parts; expected one at least")
    return kept


def _choices(output_format: str | None, order: str | None) -> tuple[str, bool]:
    form, order = output_format or "jsonl", order or "completion"
    if form not in ("jsonl", "openai", "csv"):
        raise UsageError(f"--format is {form!r}; expected jsonl, openai or csv")
    if order not in ("completion", "input"):
        raise UsageError(f"--order is {order!r}; expected completion or input")
    return form, order == "input"
