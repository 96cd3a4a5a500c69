"""Each setting, its value, and where that comes from."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from batchrun.assembly import job_reader
from batchrun.config import PREFIX, Settings, Traced
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.errors import UsageError
from batchrun.selection import failure_limit

BUILT_IN = "built-in"


def settings_section(found: Traced, used: Settings) -> Section:
    """`used`: the settings with what a profile of `tune` fills in."""
    origins = {field.name: BUILT_IN for field in fields(Settings)} | dict(found.origins)
    for name in origins:
        if getattr(used, name) != getattr(found.settings, name):
            origins[name] = "profile of tune"
    values = {name: getattr(used, name) for name in origins}
    facts = [
        Fact(name, {"value": value, "origin": origins[name]}, f"{_shown(value)} ({origins[name]})")
        for name, value in values.items()
    ]
    return Section("settings", facts, list(_unusable(found)))


def unreadable(error: UsageError, environment: Mapping[str, str]) -> Section:
    """Settings that no run could be made from."""
    what = str(error)
    subject = what.split(" ", 1)[0]
    path, colon, _ = what.partition(": ")
    if subject.startswith(PREFIX):
        fix = f"unset {subject}"
    elif f"{PREFIX}{subject.upper()}" in environment:  # a word that is no choice of this setting
        fix = f"unset {PREFIX}{subject.upper()}"
    elif colon and Path(path).is_file():
        fix = _edited(path)
    else:
        fix = "batchrun run --help"
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
    problems = []
    for name, check in (
        ("schema", lambda: job_reader(found.settings, None)),
        ("max_failures", lambda: failure_limit(found.settings.max_failures)),
    ):
        try:
            check()
        except UsageError as error:
            named = next((key for key in ("schemas", "prompt", "document") if f"--{key} " in str(error)), name)
            problems.append(Problem(str(error), undone(named, found.origins)))
    return problems


def _shown(value: object) -> str:
    if value is None:
        return "open"
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False) if value else "none"
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
