"""Which sensors are believed.  A sensor that keeps crying hot while the machine runs at full speed is set aside.

Speed is the arbiter.  A source that says hot while speed says cool has raised a false alarm; one that says it while the
machine is slow was right, which makes up for one.  With three alarms too many it is set aside, and believed again when
all are made up for.  A critical reading raises a false alarm only after a minute of rest.  What is set aside is
UNKNOWN, never cool.  Pure.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from batchrun.heat import NOTHING_READ, Level, Reading
from batchrun.speed import Speed

ALARMS = 3
LONG_REST_S = 60.0


class Trust:
    """Remembers false alarms, less what true ones made up for, by source."""

    def __init__(self) -> None:
        self._alarms: Counter[str] = Counter()
        self._aside: set[str] = set()

    def worst(self, readings: Iterable[Reading]) -> Reading:
        """The hottest reading that is believed."""
        believed = (self._believed(reading) for reading in readings)
        return max(believed, key=lambda reading: reading.level, default=NOTHING_READ)

    def judge(self, readings: Iterable[Reading], speed: Speed, rested_s: float = 0.0) -> None:
        """Compares sensors with speed: after a burst, and after so much rest."""
        for reading in readings:
            if reading.level < Level.HOT:
                continue
            source, alarms = reading.source, self._alarms[reading.source]
            if speed.level >= Level.HOT:
                self._alarms[source] = max(0, alarms - 1)
            elif speed.level is Level.COOL:
                counts = reading.level is Level.HOT or source in self._aside or rested_s >= LONG_REST_S
                self._alarms[source] = alarms + counts
            if self._alarms[source] >= ALARMS:
                self._aside.add(source)
            elif not self._alarms[source]:
                self._aside.discard(source)

    def _believed(self, reading: Reading) -> Reading:
        if reading.level >= Level.HOT and reading.source in self._aside:
            note = f"says {reading.level.word} at full speed"
            return replace(reading, level=Level.UNKNOWN, note=note)
        return reading
