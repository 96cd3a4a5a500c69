"""The `doctor` command: looks at one part after the other, and shows what it found."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from batchrun.byte_counts import memory_size
from batchrun.config import traced
from batchrun.doctor.engines import engines
from batchrun.doctor.findings import Diagnosis, Section, as_json
from batchrun.doctor.folders import folders
from batchrun.doctor.machine import machine
from batchrun.doctor.model import model, opened
from batchrun.doctor.plan import plan
from batchrun.doctor.sensors import sensors
from batchrun.doctor.settings import BUILT_IN, settings_section, unreadable
from batchrun.doctor.trial import trial
from batchrun.errors import UsageError
from batchrun.printable import printable
from batchrun.terminal_table import print_table
from batchrun.thermal import open_sensors


def diagnose(
    flags: Mapping[str, Any],
    environment: Mapping[str, str],
    file: Path | None,
    tell: Callable[[str], None],
    *,
    tries: bool,
) -> Diagnosis:
    """Looks at everything that a run would need.  `tries`: whether the weights are loaded; `tell`: what may take long.

    What depends on a part that is broken is left out: it would only say the same again.
    """
    try:
        found = traced(flags, environment, file)
    except UsageError as error:
        return Diagnosis([engines("auto"), unreadable(error, flags, environment, file), folders()])
    settings, senses = found.settings, open_sensors()
    first = [engines(settings.engine), machine(settings, found.origins), folders()]
    sensed = sensors(senses, settings, found.origins)
    if any(problem.stops for section in first for problem in section.problems):
        return Diagnosis([*first, sensed, settings_section(found, settings)])
    parts = opened(settings, found.origins)
    if isinstance(parts, Section):
        return Diagnosis([*first, sensed, settings_section(found, settings), parts])
    try:
        slots, smallest = plan(parts)
        looked = [settings_section(found, parts.settings), model(parts, senses.sense().supply.source), slots]
        if tries and smallest:
            tell(f"trying the weights, {memory_size(parts.model.card.weights_bytes)} (--no-trial does without)")
        tried = [trial(parts, smallest)] if tries and smallest else []
    finally:
        parts.model.close()
    return Diagnosis([*first, sensed, *looked, *tried])


def show(found: Diagnosis, *, json_wanted: bool) -> None:
    """Prints to standard output."""
    if json_wanted:
        print(json.dumps(as_json(found), indent=2))
        return
    for section in found.sections:
        print_table(Text(section.name, style="bold"))
        print_table(_table(section))
    for problem in found.problems:
        mark = "problem" if problem.stops else "warning"
        print(f"{mark}: {printable(problem.what)}\n    fix: {printable(problem.fix)}")
    print("batchrun run would work here" if found.can_run else "batchrun run would not work here")


def _table(section: Section) -> Table:
    """The facts; of settings, those built in stand in one row."""
    table = Table.grid(padding=(0, 2), pad_edge=True)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    built_in = []
    for fact in section.facts:
        if section.name == "settings" and fact.value["origin"] == BUILT_IN:
            built_in.append(f"{fact.name} {fact.text.removesuffix(f' ({BUILT_IN})')}")
        else:
            table.add_row(Text(f"  {printable(fact.name)}"), Text(printable(fact.text)))
    if built_in:
        table.add_row(Text(f"  {BUILT_IN}"), Text(printable(", ".join(built_in))))
    return table
