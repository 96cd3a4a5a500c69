"""Puts what `schedule.py` wrote where the user's own systemd, launchd or cron finds it."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from batchrun.errors import InputError, OutputError, UsageError
from batchrun.schedule import MARK, Unit

FOLDERS = {"systemd": ".config/systemd/user", "launchd": "Library/LaunchAgents"}


def default_kind() -> str:
    """What starts things at set times on this system."""
    if sys.platform == "darwin":
        return "launchd"
    return "systemd" if shutil.which("systemctl") else "cron"


def program() -> tuple[str, ...]:
    """The words that start batchrun from anywhere."""
    found = shutil.which("batchrun")
    return (found,) if found else (sys.executable, "-m", "batchrun")


def name_of(words: Sequence[str]) -> str:
    """A name for a run: that of its first file."""
    file = next((word for word in words[1:] if not word.startswith("-")), words[0])
    stem = "".join(char if char.isascii() and char.isalnum() else "-" for char in Path(file).name.partition(".")[0])
    return f"batchrun-{stem.strip('-') or 'run'}"


def install(units: Sequence[Unit], kind: str, name: str) -> list[str]:
    """Writes the files of a plan.  Gives what was done and what is left to do.

    Raises InputError where a file of that name is not ours, OutputError where one cannot be written.
    """
    if kind == "cron":
        _install_line(units[0].text, name)
        return ["the user's crontab has the line now; crontab -l shows it"]
    folder = Path.home() / FOLDERS[kind]
    for unit in units:
        _write(folder / unit.name, unit.text)
    written = [f"wrote {folder / unit.name}" for unit in units]
    if kind == "systemd":
        return [
            *written,
            f"start it with: systemctl --user daemon-reload && systemctl --user enable --now {name}.timer",
        ]
    return [*written, f"start it with: launchctl bootstrap gui/$(id -u) {folder / units[0].name}"]


def _write(path: Path, text: str) -> None:
    try:
        if path.exists() and MARK not in path.read_text(encoding="utf-8", errors="replace"):
            raise InputError(f"{path} exists and was not written by batchrun schedule; choose another --name")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}") from error


def _install_line(line: str, name: str) -> None:
    """Puts a line into the user's crontab, in the place of one that had its name."""
    crontab = shutil.which("crontab")
    if crontab is None:
        raise UsageError("there is no crontab on this system; --for systemd, or leave --install out")
    there = subprocess.run([crontab, "-l"], capture_output=True, text=True, check=False)
    if there.returncode and "no crontab" not in there.stderr.lower():
        raise OutputError(f"the crontab could not be read, so nothing was written: {there.stderr.strip()}")
    kept = [old for old in there.stdout.splitlines() if not old.endswith(f"# {MARK}: {name}")]
    new = "\n".join([*kept, line])
    done = subprocess.run([crontab, "-"], input=new, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OutputError(f"the crontab could not be written: {done.stderr.strip()}")
