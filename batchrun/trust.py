"""Which sensors are believed.  A sensor that keeps crying hot while the machine runs at full speed is set aside.

Speed is the arbiter.  A source that says hot while speed says cool has raised a false alarm; one that says it while the
machine is slow was right, which makes up for one.  With three alarms too many it is set aside, and believed again when
all are made up for.  A critical reading raises a false alarm only after a minute of rest, and stands until three of its
own were false, however often its source cried hot.  What is set aside is UNKNOWN, never cool.  Pure.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from batchrun.heat import NOTHING_READ, Level, Reading
from batchrun.speed import Speed

ALARMS = 3
LONG_REST_S = 60.0

Alarm = tuple[str, Level]
"""A source, and what it cried."""


class Trust:
    """Remembers false alarms, less what true ones made up for, by source and level."""

    def __init__(self) -> None:
        self._alarms: Counter[Alarm] = Counter()
        self._aside: set[Alarm] = set()

    def worst(self, readings: Iterable[Reading]) -> Reading:
        """The hottest reading that is believed."""
        believed = (self._believed(reading) for reading in readings)
        return max(believed, key=lambda reading: reading.level, default=NOTHING_READ)

    def judge(self, readings: Iterable[Reading], speed: Speed, rested_s: float = 0.0) -> None:
        """Compares sensors with speed: after a burst, and after so much rest."""
        for reading in readings:
            if reading.level < Level.HOT:
                continue
            alarm = reading.source, reading.level
            if speed.level >= Level.HOT:
                self._alarms[alarm] = max(0, self._alarms[alarm] - 1)
            elif speed.level is Level.COOL:
                counts = reading.level is Level.HOT or alarm in self._aside or rested_s >= LONG_REST_S
                self._alarms[alarm] += counts
            if self._alarms[alarm] >= ALARMS:
                self._aside.add(alarm)
            elif not self._alarms[alarm]:
                self._aside.discard(alarm)

    def _believed(self, reading: Reading) -> Reading:
        if (reading.source, reading.level) in self._aside:
            note = f"says {reading.level.word} at full speed"
            return replace(reading, level=Level.UNKNOWN, note=note)
        return reading
