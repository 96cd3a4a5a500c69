"""The user's own folders: where copies of weights are kept, and what was found out about models and this device."""

import errno
import os
import shlex
import shutil
import tempfile
from pathlib import Path

from batchrun.byte_counts import file_size
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.models import cache_folder
from batchrun.profile import profile_path

LOSSES = {
    "cache": "copies of weights in a faster format cannot be kept",
    "state": "what tune and calibrate find cannot be kept",
}
VARIABLES = {"cache": "XDG_CACHE_HOME", "state": "XDG_STATE_HOME"}


def folders() -> Section:
    facts, problems = [], []
    for name, path in (("cache", cache_folder().parent), ("state", profile_path("").parent.parent)):
        there = _nearest(path)
        refused, free_bytes = _refusal(there), shutil.disk_usage(there).free
        value = {"path": str(path), "writable": refused is None, "free": free_bytes}
        facts.append(Fact(name, value, f"{path} ({refused.strerror if refused else f'{file_size(free_bytes)} free'})"))
        if refused:
            what = f"the {name} folder {path} is not writable ({refused.strerror}): {LOSSES[name]}"
            problems.append(Problem(what, _fix(there, refused, VARIABLES[name]), stops=False))
    return Section("folders", facts, problems)


def _nearest(path: Path) -> Path:
    """The folder itself, or the one in which it would be made."""
    return next((folder for folder in (path, *path.parents) if _is_there(folder)), Path("/"))


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # in a folder that we may not search
        return False


def _refusal(folder: Path) -> OSError | None:
    """Why nothing can be written there; None where it can.  Tried with a file that has no name."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        return error
    return None


def _fix(folder: Path, refused: OSError, variable: str) -> str:
    """Where it is the user's own folder, its mode; else another place."""
    if refused.errno == errno.EACCES and folder.stat().st_uid == os.geteuid():
        return f"chmod u+rwx {shlex.quote(str(folder))}"
    return f"export {variable}=FOLDER  # one that you may write to"
