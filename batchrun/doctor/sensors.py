"""What tells of heat, power and contention here, and what it reads now."""

import importlib.util
import shutil
from collections.abc import Mapping
from dataclasses import fields
from datetime import datetime

from batchrun.config import Settings
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.doctor.settings import undone
from batchrun.errors import UsageError
from batchrun.heat import Contention, Level, Reading, Sensed
from batchrun.permission import check_measurable, rules
from batchrun.thermal import MachineSensors

RULES = ("only_on_ac", "min_battery", "max_energy")


def sensors(asked: MachineSensors, settings: Settings, origins: Mapping[str, str]) -> Section:
    asked.settle()
    sensed, waits = asked.sense(), asked.contention()
    heat = [
        {"source": reading.source, "level": reading.level.word, "celsius": reading.temperature_c, "note": reading.note}
        for reading in sensed.readings
    ]
    counted = [field.name.removesuffix("_s") for field in fields(Contention) if getattr(waits, field.name) is not None]
    return Section(
        "sensors",
        (
            Fact("heat", heat, "; ".join(map(_shown, sensed.readings)) or "no sensor: known from speed alone"),
            Fact("power", sensed.supply.source.value, _supply(sensed)),
            Fact("energy", sensed.energy.method, "not measured here" if sensed.energy.method == "none" else ""),
            Fact("contention", counted, f"counted: {', '.join(counted) or 'nothing'}"),
        ),
        [*_kept(settings, sensed, origins), *_nvidia()],
    )


def _shown(reading: Reading) -> str:
    degrees = "" if reading.temperature_c is None else f" {reading.temperature_c:.0f} °C"
    limit = "" if reading.limit_c is None else f" of {reading.limit_c:.0f}"
    level = "level unknown" if reading.level is Level.UNKNOWN else reading.level.word
    return f"{reading.source}{degrees}{limit}, {level}" + (f" ({reading.note})" if reading.note else "")


def _supply(sensed: Sensed) -> str:
    percent = sensed.supply.percent
    return sensed.supply.source.value + ("" if percent is None else f", {percent:.0f} % charge")


def _kept(settings: Settings, sensed: Sensed, origins: Mapping[str, str]) -> list[Problem]:
    """Rules that a run would refuse, because nothing here tells whether they are kept."""
    try:
        check_measurable(rules(settings, datetime.now()), sensed)
    except UsageError as error:
        named = next((name for name in RULES if f"--{name.replace('_', '-')} " in str(error)), "")
        return [Problem(str(error), undone(named, origins))]
    return []


def _nvidia() -> list[Problem]:
    if shutil.which("nvidia-smi") is None or importlib.util.find_spec("pynvml"):
        return []
    what = "an NVIDIA card is here, and nothing reads its heat and energy"
    return [Problem(what, "pip install 'batchrun-llm[nvidia]'", stops=False)]
