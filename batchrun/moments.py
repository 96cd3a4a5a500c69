"""Reads spans and moments as people write them: `90m`, `1h30m`, `2d`; `06:00`, `2026-12-01T06:00`."""

import re
from datetime import datetime, timedelta

from batchrun.errors import UsageError

UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_SPAN = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")
_CLOCK = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)")
MOST_S = 10 * 366 * 86400


def span_s(text: str, flag: str) -> float:
    """Seconds of a span such as `90m` or `1h30m`.  Raises UsageError."""
    parts = _SPAN.findall(text)
    seconds = sum(float(number) * UNITS_S[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts) != text or not 0 < seconds <= MOST_S:
        raise UsageError(f"{flag} is {text!r}; expected a span such as 90m, 6h or 1d")
    return seconds


def clock(text: str, flag: str) -> tuple[int, int]:
    """Hour and minute of a time of day such as `02:00`.  Raises UsageError."""
    found = _CLOCK.fullmatch(text)
    if not found:
        raise UsageError(f"{flag} is {text!r}; expected a time of day such as 02:00")
    return int(found[1]), int(found[2])


def seconds_until(text: str, now: datetime, flag: str) -> float:
    """Seconds from now to a moment: a span from now, the next time a clock shows it, or a date and time.

    Raises UsageError for what is none of these, and for a moment that has passed.
    """
    if _CLOCK.fullmatch(text):
        hour, minute = clock(text, flag)
        moment = now.replace(hour=hour, minute=minute, second=0, microsecond=0)
        return ((moment if moment > now else moment + timedelta(days=1)) - now).total_seconds()
    if _SPAN.match(text) and "-" not in text:
        return span_s(text, flag)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        expected = "expected a span (6h), a time of day (06:00), or a date and time (2026-12-01T06:00)"
        raise UsageError(f"{flag} is {text!r}; {expected}") from None
    seconds = ((moment if moment.tzinfo else moment.replace(tzinfo=now.tzinfo)) - now).total_seconds()
    if seconds <= 0:
        raise UsageError(f"{flag} {text} has passed")
    return seconds
