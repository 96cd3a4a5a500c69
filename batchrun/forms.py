"""Texts that stand for something: times, hours, energy, resources.  Each raises ValueError with what was expected."""

import json
import re
from dataclasses import dataclass
from datetime import datetime, time, timedelta

CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
ENERGY = re.compile(r"(\d+(?:\.\d+)?)\s*(k?Wh|k?J)", re.I)
UNITS_WH = {"wh": 1.0, "kwh": 1000.0, "j": 1 / 3600, "kj": 1 / 3.6}


@dataclass(frozen=True, slots=True)
class Hours:
    """A part of the day, which may go over midnight."""

    begin: time
    end: time

    def hold(self, moment: time) -> bool:
        if self.begin <= self.end:
            return self.begin <= moment < self.end
        return moment >= self.begin or moment < self.end


def clock_time(text: str) -> time:
    """`06:30`."""
    found = CLOCK.fullmatch(text.strip())
    if not found or int(found[1]) > 23 or int(found[2]) > 59:
        raise ValueError("a time such as 06:30")
    return time(int(found[1]), int(found[2]))


def hours(text: str) -> Hours:
    """`08:00-18:00`; `22:00-07:00` goes over midnight."""
    begin, _, end = text.partition("-")
    try:
        found = Hours(clock_time(begin), clock_time(end))
    except ValueError:
        raise ValueError("hours such as 08:00-18:00") from None
    if found.begin == found.end:
        raise ValueError("hours such as 08:00-18:00, that begin and end at different times")
    return found


def energy_wh(text: str) -> float:
    """Watt-hours of `40Wh`, `0.5 kWh`, `9000 J`."""
    found = ENERGY.fullmatch(text.strip())
    wh = float(found[1]) * UNITS_WH[found[2].lower()] if found else 0.0
    if not wh:
        raise ValueError("energy such as 40Wh or 0.5kWh")
    return wh


def next_time(wanted: time, after: datetime) -> datetime:
    """The next moment at which a clock on the wall shows this time."""
    moment = after.replace(hour=wanted.hour, minute=wanted.minute, second=0, microsecond=0)
    return moment if moment > after else moment + timedelta(days=1)


def resources(text: str) -> dict[str, float]:
    """What a worker takes of its node, from JSON.  Raises ValueError, saying what was expected."""
    expected = 'a JSON object of numbers, such as {"num_gpus": 1}'
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ValueError(expected) from error
    if not isinstance(found, dict) or not all(type(value) in (int, float) and value > 0 for value in found.values()):
        raise ValueError(expected)
    return found
