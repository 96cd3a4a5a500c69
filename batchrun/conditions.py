"""Under what a burst ran and why a rest follows it: the part of its stats that is about heat, speed and energy.

Only words and numbers that were read; what could not be read is null or `unknown`, and a method of measuring is named.
"""

from dataclasses import dataclass
from typing import Any

from batchrun.governor import Allowance
from batchrun.heat import JOULES_PER_WH, Energy, Level, Reading, Sensed
from batchrun.speed import Speed


@dataclass(frozen=True, slots=True)
class Pace:
    """What the pacer knows of a burst that ended.  `fired`: what said that it is hot; `rested_s`: before it."""

    before: Reading
    after: Reading
    level: Level
    fired: str
    speed: Speed
    allowance: Allowance
    worked_s: float
    rested_s: float
    rest_s: float
    why: str
    launcher: str


@dataclass(frozen=True, slots=True)
class Conditions:
    """One burst's part of the stats file."""

    heat: dict[str, Any]
    speed: dict[str, Any]
    pace: dict[str, Any]
    energy: dict[str, Any]


def conditions(pace: Pace, before: Sensed, after: Sensed) -> Conditions:
    """The figures of one burst.  `before`, `after`: all sensors when it began and when it ended."""
    time_s = pace.worked_s + pace.rest_s
    percent = after.supply.percent
    return Conditions(
        heat={
            "before": _shown(pace.before),
            "after": _shown(pace.after),
            "level": pace.level.word,
            "fired": pace.fired or None,
        },
        speed={
            "ratio": None if pace.speed.ratio is None else round(pace.speed.ratio, 3),
            "level": pace.speed.level.word,
            "cause": pace.speed.cause or None,
        },
        pace={
            "allowed_s": round(pace.allowance.seconds, 2),
            "duty": round(pace.worked_s / time_s, 3) if time_s else None,
            "rested_s": round(pace.rested_s, 2),
            "rest_s": round(pace.rest_s, 2),
            "why": pace.why,
            "launcher": pace.launcher,
        },
        energy={
            "wh": _spent_wh(before.energy, after.energy),
            "method": after.energy.method,
            "supply": after.supply.source.value,
            "battery_percent": None if percent is None else round(percent),
        },
    )


def _shown(reading: Reading) -> dict[str, Any]:
    shown = {"source": reading.source, "level": reading.level.word}
    optional = {"celsius": reading.temperature_c, "limit_celsius": reading.limit_c, "note": reading.note}
    return shown | {name: value for name, value in optional.items() if value}


def _spent_wh(before: Energy, after: Energy) -> float | None:
    if before.joules is None or after.joules is None:
        return None
    return round((after.joules - before.joules) / JOULES_PER_WH, 4)
