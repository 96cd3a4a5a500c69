"""What sensors say, as values: levels of heat, what else slows a machine, its power source, the energy it spent.

`thermal` reads them, `speed` adds its own, `governor` acts on them.  A reading that could not be had is `UNKNOWN`: a
level of its own, never the cool one.
"""

from dataclasses import dataclass
from enum import IntEnum, StrEnum

JOULES_PER_WH = 3600.0


class Level(IntEnum):
    """How near to its limit a machine is; the worst of several is their `max`, so what is known outranks UNKNOWN."""

    UNKNOWN = 0
    COOL = 1
    WARM = 2  # near its limit, and not yet slowed
    HOT = 3  # slowed for heat, or at the point where it will be
    CRITICAL = 4  # about to be stopped by its own protection

    @property
    def word(self) -> str:
        return self.name.lower()


class Power(StrEnum):
    """Where the current comes from."""

    MAINS = "mains"
    BATTERY = "battery"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Reading:
    """What one sensor says.  `limit_c`: the point at which it is hot, where the sensor knows one."""

    source: str
    level: Level
    temperature_c: float | None = None
    limit_c: float | None = None
    note: str = ""


NOTHING_READ = Reading("none", Level.UNKNOWN)


@dataclass(frozen=True, slots=True)
class Contention:
    """Counters of what slows a machine without heating it, since some moment; None where one cannot be read.

    All are seconds that one thread may have waited.  What other processes took says how long our threads waited at
    most, and not that they did; our own children are none of them.
    """

    quota_s: float | None = None  # held back by a CPU quota
    pressure_s: float | None = None  # some task waited for a processor: for another process, or for another of ours
    others_s: float | None = None  # taken by other processes, on the mean of all processors
    steal_s: float | None = None  # taken by the host of this virtual machine
    stall_s: float | None = None  # waited for memory: swapping, or weights read from disk again
    power_s: float | None = None  # an accelerator held back by its power limit
    processors: int = 1  # that `others_s` is the mean of


@dataclass(frozen=True, slots=True)
class Supply:
    """Power source and charge.  `percent` is None where there is no battery, or none can be read."""

    source: Power = Power.UNKNOWN
    percent: float | None = None
    draining: bool = False


@dataclass(frozen=True, slots=True)
class Energy:
    """Energy spent since the sensors were opened, and how it was measured; None where nothing measures it.

    No joules beside a method: that one counts as soon as its device is at work.
    """

    joules: float | None = None
    method: str = "none"

    @property
    def measurable(self) -> bool:
        return self.joules is not None or self.method != "none"


@dataclass(frozen=True, slots=True)
class Sensed:
    """All sensors at one moment."""

    readings: tuple[Reading, ...] = ()
    supply: Supply = Supply()
    energy: Energy = Energy()

    @property
    def worst(self) -> Reading:
        """The reading that counts: the hottest, and among equals the first."""
        return max(self.readings, key=lambda reading: reading.level, default=NOTHING_READ)
