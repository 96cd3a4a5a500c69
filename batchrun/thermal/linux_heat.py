"""Heat of the processor on Linux: hwmon, thermal zones, throttle counters, cooling devices, clock caps, Raspberry Pi.

Only what speaks of the processor counts: an nvme or a wifi chip may be as hot as it likes.  A temperature is a level
only beside a limit of its own; without one it is shown and its level is UNKNOWN.

Sources: Documentation/hwmon/sysfs-interface, driver-api/thermal/sysfs-api and ABI/testing/sysfs-devices-system-cpu in
the kernel's tree; get_throttled in Raspberry Pi's documentation of vcgencmd.
"""

import re
from collections.abc import Iterator
from pathlib import Path

from batchrun.heat import Level, Reading
from batchrun.thermal.files import celsius, folders, number, text

CHIPS = re.compile(r"coretemp|k8temp|k10temp|zenpower|via_cputemp|(cpu|soc|bigcore|littlecore)[\w-]*thermal")
ZONES = re.compile(
    r"x86_pkg_temp|tcpu.*|(cpu|big|mid|little|cluster|silver|gold|prime|package)[\w-]*|soc[-_]?\d*[-_]thermal", re.I
)
COOLERS = re.compile(r"Processor|(thermal-)?(cpufreq|cpuidle).*|intel_powerclamp")
WARM_C = 8.0  # below the point where it is hot
CRITICAL_C = 3.0  # below the point where the kernel would shut the machine down
SHUTDOWN_ONLY_HOT_C = 10.0  # below that point, where no other is known
THROTTLED_SHARE = 0.05  # of the time between two readings
CAP_SHARE = 0.95
FIRMWARE = "sys/devices/platform/soc/soc:firmware/get_throttled"
FIRMWARE_HEAT, FIRMWARE_VOLTAGE = 0x2 | 0x4 | 0x8, 0x1  # capped, throttled, soft limit; under-voltage: all of now


def level(temperature_c: float, hot_c: float | None, shutdown_c: float | None) -> Level:
    """A temperature beside its own limits; UNKNOWN where they cannot tell cool from warm."""
    if shutdown_c is not None and temperature_c >= shutdown_c - CRITICAL_C:
        return Level.CRITICAL
    if hot_c is None:
        is_hot = shutdown_c is not None and temperature_c >= shutdown_c - SHUTDOWN_ONLY_HOT_C
        return Level.HOT if is_hot else Level.UNKNOWN
    if temperature_c >= hot_c:
        return Level.HOT
    return Level.WARM if temperature_c >= hot_c - WARM_C else Level.COOL


class LinuxHeat:
    """The processor's sensors under a root folder.  Remembers counters, to tell what they did since."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._throttled: dict[Path, int] = {}
        self._caps: dict[Path, int] = {}

    def readings(self, elapsed_s: float) -> tuple[Reading, ...]:
        """All sensors now; `elapsed_s` since the last call, for counters."""
        return (
            *self._chips(),
            *self._zones(),
            *self._coolers(),
            *self._throttle_counters(elapsed_s),
            *self._clock_caps(),
            *self._firmware(),
        )

    def _chips(self) -> Iterator[Reading]:
        for chip in folders(self._root / "sys/class/hwmon", "hwmon*"):
            name = text(chip / "name") or ""
            if not CHIPS.fullmatch(name):
                continue
            found = [reading for entry in folders(chip, "temp*_input") if (reading := _chip_reading(name, entry))]
            if found:
                yield max(found, key=lambda reading: (reading.level, reading.temperature_c or 0.0))

    def _zones(self) -> Iterator[Reading]:
        for zone in folders(self._root / "sys/class/thermal", "thermal_zone*"):
            name = text(zone / "type") or ""
            temperature_c = celsius(zone / "temp")
            if not ZONES.fullmatch(name) or temperature_c is None:
                continue
            trips = [(text(trip.with_name(f"{trip.name[:-5]}_type")), celsius(trip)) for trip in _trips(zone)]
            hot_c = min((at_c for kind, at_c in trips if kind in ("passive", "hot") and at_c), default=None)
            shutdown_c = min((at_c for kind, at_c in trips if kind == "critical" and at_c), default=None)
            yield Reading(f"zone {name}", level(temperature_c, hot_c, shutdown_c), temperature_c, hot_c or shutdown_c)

    def _coolers(self) -> Iterator[Reading]:
        """The kernel slows the processor to cool it.  That it does not is no proof of cool."""
        for cooler in folders(self._root / "sys/class/thermal", "cooling_device*"):
            name, state = text(cooler / "type") or "", number(cooler / "cur_state")
            if COOLERS.fullmatch(name) and state is not None and state > 0:
                yield Reading(f"cooling {name}", Level.HOT, note=f"state {state} of {number(cooler / 'max_state')}")

    def _throttle_counters(self, elapsed_s: float) -> Iterator[Reading]:
        """Intel's counters, as what they grew by since the last reading; the first says nothing."""
        counters = [
            path
            for processor in folders(self._root / "sys/devices/system/cpu", "cpu[0-9]*")
            for path in folders(processor / "thermal_throttle", "*_throttle_*")
            if path.name.endswith(("_throttle_count", "_throttle_total_time_ms"))
        ]
        now = {path: count for path in counters if (count := number(path)) is not None}
        before, self._throttled = self._throttled, now
        if not now:
            return
        if not before:
            yield Reading("throttle counters", Level.UNKNOWN, note="first reading")
            return
        grown = {path: count - before[path] for path, count in now.items() if count > before.get(path, count)}
        worst_ms = max((more for path, more in grown.items() if path.name.endswith("_ms")), default=None)
        timed = any(path.name.endswith("_ms") for path in now)
        is_hot = (worst_ms or 0) >= 1000 * THROTTLED_SHARE * elapsed_s if timed else bool(grown)
        found = Level.HOT if grown and is_hot else Level.WARM if grown else Level.COOL
        yield Reading("throttle counters", found, note=f"{worst_ms} ms" if worst_ms else "")

    def _clock_caps(self) -> Iterator[Reading]:
        """The highest clock that is allowed, against the highest seen allowed.  Others than heat lower it too."""
        caps = {}
        for policy in folders(self._root / "sys/devices/system/cpu/cpufreq", "policy*"):
            cap = number(policy / "scaling_max_freq")
            if cap:
                caps[policy] = cap
                self._caps[policy] = max(cap, self._caps.get(policy, cap))
        lowered = [policy for policy, cap in caps.items() if cap < CAP_SHARE * self._caps[policy]]
        if lowered:
            cap, before = caps[lowered[0]], self._caps[lowered[0]]
            yield Reading("cpufreq", Level.WARM, note=f"capped at {cap // 1000} of {before // 1000} MHz")

    def _firmware(self) -> Iterator[Reading]:
        found = text(self._root / FIRMWARE)
        if found is None:
            return
        try:
            bits = int(found, 16)
        except ValueError:
            yield Reading("firmware", Level.UNKNOWN, note=f"get_throttled is {found[:20]!r}")
            return
        note = "under-voltage" if bits & FIRMWARE_VOLTAGE else ""
        yield Reading("firmware", Level.HOT if bits & FIRMWARE_HEAT else Level.COOL, note=note)


def _chip_reading(name: str, entry: Path) -> Reading | None:
    """One temperature of a chip.  On Intel `crit` is where the processor slows itself; elsewhere it is the end."""
    temperature_c = celsius(entry)
    if temperature_c is None:
        return None
    stem = entry.name.removesuffix("_input")
    high_c, critical_c = celsius(entry.with_name(f"{stem}_max")), celsius(entry.with_name(f"{stem}_crit"))
    hot_c, shutdown_c = (high_c, critical_c)
    if name == "coretemp":
        hot_c, shutdown_c = min((at_c for at_c in (high_c, critical_c) if at_c), default=None), None
    found = level(temperature_c, hot_c, shutdown_c)
    if number(entry.with_name(f"{stem}_crit_alarm")):
        found = max(found, Level.HOT)
    return Reading(name, found, temperature_c, hot_c or shutdown_c, text(entry.with_name(f"{stem}_label")) or "")


def _trips(zone: Path) -> list[Path]:
    return folders(zone, "trip_point_*_temp")
