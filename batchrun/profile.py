"""What `batchrun tune` found for one model on one machine, and how a run takes it up.

A profile fills only what the settings leave open.  It lies in the user's state folder under the identity of the
original weights, and names the machine it was measured on: on another one it is not used.
"""

import json
import os
import platform
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import platformdirs

from batchrun.config import Settings
from batchrun.errors import OutputError


@dataclass(frozen=True, slots=True)
class Profile:
    """The fastest settings found, when, and how much faster they were than none."""

    machine: str
    measured_on: str  # a date
    weights: str
    parallel: int
    threads: int
    flash: bool
    kv: str
    speedup: float


def machine_name() -> str:
    """This machine, as far as speed goes."""
    return f"{platform.node()}, {platform.machine()}, {os.cpu_count()} processors"


def profile_path(identity: str) -> Path:
    return platformdirs.user_state_path("batchrun") / "profiles" / f"{identity[:32]}.json"


def load(identity: str) -> Profile | None:
    """The profile of a model on this machine, if there is a usable one."""
    try:
        found = Profile(**json.loads(profile_path(identity).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None
    return found if found.machine == machine_name() else None


def save(identity: str, profile: Profile) -> Path:
    """Keeps a profile.  Raises OutputError where that fails."""
    return keep(profile_path(identity), asdict(profile))


def keep(path: Path, record: dict[str, Any]) -> Path:
    """Writes a record of this machine down.  Raises OutputError where that fails."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error
    return path


def told_once(identity: str) -> bool:
    """Whether a user was told before that this model has no profile here; from now on they were."""
    path = profile_path(identity).with_suffix(".told")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch(exist_ok=False)
    except OSError:  # told, or nowhere to remember it: then rather say nothing
        return True
    return False


def filled(settings: Settings, profile: Profile | None) -> Settings:
    """The settings, with what they leave open taken from a profile."""
    if profile is None:
        return settings
    return replace(
        settings,
        weights=profile.weights if settings.weights == "auto" else settings.weights,
        parallel=settings.parallel or profile.parallel,
        threads=settings.threads or profile.threads,
        flash=profile.flash if settings.flash is None else settings.flash,
        kv=profile.kv if settings.kv == "auto" else settings.kv,
    )
