"""Each setting, its value, and where that comes from."""

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime
from pathlib import Path
from typing import Any

from batchrun.agreement import refused
from batchrun.assembly import job_reader
from batchrun.config import PREFIX, Settings, Traced, found_file
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.errors import UsageError
from batchrun.printable import without_credentials

BUILT_IN = "built-in"


def settings_section(found: Traced, used: Settings) -> Section:
    """`used`: the settings with what a profile of `tune` fills in."""
    origins = {field.name: BUILT_IN for field in fields(Settings)} | dict(found.origins)
    for name in origins:
        if getattr(used, name) != getattr(found.settings, name):
            origins[name] = "profile of tune"
    values = {name: _harmless(getattr(used, name)) for name in origins}
    facts = [
        Fact(name, {"value": value, "origin": origins[name]}, f"{_shown(value)} ({origins[name]})")
        for name, value in values.items()
    ]
    return Section("settings", facts, list(_unusable(found)))


def unreadable(
    error: UsageError, flags: Mapping[str, Any], environment: Mapping[str, str], file: Path | None
) -> Section:
    """Settings that no run could be made from.  `file`: given by a flag."""
    what, path = str(error), file or found_file(environment)
    subject = what.split(" ", 1)[0]  # where it was found, or a setting whose word is no choice
    if subject.startswith(PREFIX):
        fix = f"unset {subject}"
    elif path and what.startswith(str(path)) and not os.path.isfile(path):
        fix = "leave --config out" if file else "unset BATCHRUN_CONFIG"
    elif path and what.startswith(str(path)):
        fix = _edited(str(path))
    elif subject.startswith("--") or flags.get(subject) is not None:
        fix = f"leave --{subject.removeprefix('--').replace('_', '-')} out"
    elif f"{PREFIX}{subject.upper()}" in environment:
        fix = f"unset {PREFIX}{subject.upper()}"
    else:
        fix = f"{_edited(str(path))}  # take {subject} out" if path else "batchrun run --help"
    return Section("settings", (), [Problem(what, fix)])


def undone(name: str, origins: Mapping[str, str]) -> str:
    """What takes a setting back."""
    origin = origins.get(name, BUILT_IN)
    if origin.startswith("BATCHRUN_"):
        return f"unset {origin}"
    if origin.startswith("--"):
        return f"leave {origin} out"
    return f"{_edited(origin)}  # take {name} out" if origin != BUILT_IN else "batchrun run --help"


def _edited(path: str) -> str:
    return f"${{EDITOR:-vi}} {shlex.quote(path)}"


def _unusable(found: Traced) -> list[Problem]:
    """Settings that are well-formed, and that a run would refuse all the same."""
    wrong = list(refused(found.settings, datetime.now().astimezone()))
    try:
        job_reader(found.settings, None)
    except UsageError as error:
        named = re.match(r"--([a-z-]+)", str(error))
        wrong.append((named[1].replace("-", "_") if named else "schema", error))
    return [Problem(str(error), undone(name, found.origins)) for name, error in wrong]


def _harmless(value: object) -> object:
    return without_credentials(value) if isinstance(value, str) else value


def _shown(value: object) -> str:
    if value is None:
        return "open"
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False) if value else "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
