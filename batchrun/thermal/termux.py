"""The battery of an Android phone under Termux: its charge, whether it drains, and its heat.

`termux-battery-status` answers in JSON, after a second or never: it gets three.  It tells of the battery and not of the
processor, so it can say hot and never cool.  45 °C is where Android and its chargers begin to hold back.
"""

import json
import shutil
import subprocess
from collections.abc import Callable
from typing import Any

from batchrun.heat import Level, Power, Reading, Supply

COMMAND = "termux-battery-status"
LIMIT_S = 3.0
HOT_C = 45.0
CRITICAL_C = 55.0


def is_there() -> bool:
    return shutil.which(COMMAND) is not None


def asked() -> str:
    """What the command says.  Raises OSError or SubprocessError where it says nothing in time."""
    return subprocess.run([COMMAND], capture_output=True, timeout=LIMIT_S, check=True, text=True).stdout


class Termux:
    """`ask` gives the command's output."""

    def __init__(self, ask: Callable[[], str] = asked) -> None:
        self._ask = ask

    def status(self) -> tuple[Reading, Supply]:
        """Raises ValueError where the answer is no JSON object."""
        found = json.loads(self._ask())
        if not isinstance(found, dict):
            raise ValueError(f"{COMMAND} gave no object")
        return _reading(found), _supply(found)


def _reading(found: dict[str, Any]) -> Reading:
    celsius, health = found.get("temperature"), found.get("health")
    temperature_c = float(celsius) if isinstance(celsius, int | float) and 0 < celsius < 150 else None
    level = Level.UNKNOWN
    if health == "OVERHEAT" or (temperature_c is not None and temperature_c >= HOT_C):
        level = Level.CRITICAL if temperature_c is not None and temperature_c >= CRITICAL_C else Level.HOT
    return Reading("battery", level, temperature_c, HOT_C, note=str(health or ""))


def _supply(found: dict[str, Any]) -> Supply:
    plugged, percentage = found.get("plugged"), found.get("percentage")
    source = Power.UNKNOWN
    if isinstance(plugged, str):
        source = Power.BATTERY if plugged == "UNPLUGGED" else Power.MAINS
    percent = float(percentage) if isinstance(percentage, int | float) else None
    return Supply(source, percent, found.get("status") == "DISCHARGING")
