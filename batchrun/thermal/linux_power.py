"""Batteries, mains and energy counters on Linux.

A mouse has a battery too: only those that supply the machine count (`scope`).  Energy comes from RAPL where its files
may be read, which most kernels allow to root only.  Sources: ABI/testing/sysfs-class-power and power/powercap in the
kernel's documentation.
"""

from dataclasses import dataclass
from pathlib import Path

from batchrun.heat import JOULES_PER_WH, Power, Supply
from batchrun.thermal.files import folders, is_readable, number, text

MICRO = 1e-6
LINE_KINDS = ("Mains", "USB", "USB_C", "USB_PD", "USB_DCP", "USB_CDP", "Wireless")


@dataclass(frozen=True, slots=True)
class Battery:
    """One battery that supplies this machine.  `full_joules` weighs it among several."""

    percent: float | None
    draining: bool | None
    joules: float | None
    full_joules: float | None


class LinuxPower:
    """Power supplies and energy counters under a root folder."""

    def __init__(self, root: Path) -> None:
        self._supplies = root / "sys/class/power_supply"
        self._zones = root / "sys/class/powercap"
        self._volts: dict[Path, float] = {}  # of each battery
        self._rapl: dict[Path, int] = {}
        self._rapl_joules = 0.0

    def supply(self) -> Supply | None:
        """Where the current comes from; None where the kernel says nothing at all, or nothing that may be read.

        A machine that lists its supplies and has no battery among them runs on mains.
        """
        kinds = {entry: text(entry / "type") for entry in self._entries()}
        if not is_readable(self._supplies) or None in kinds.values():
            return None
        lines = [number(entry / "online") for entry, kind in kinds.items() if kind in LINE_KINDS]
        batteries = self.batteries()
        draining = [battery.draining for battery in batteries]
        if any(lines) or not batteries or (not lines and draining == [False] * len(batteries)):
            source = Power.MAINS
        else:
            source = Power.BATTERY if lines or any(draining) else Power.UNKNOWN
        return Supply(source, _charge(batteries), any(draining))

    def batteries(self) -> list[Battery]:
        return [
            self._battery(entry)
            for entry in self._entries()
            if text(entry / "type") == "Battery"
            and text(entry / "scope") != "Device"
            and number(entry / "present") != 0
        ]

    def battery_joules(self) -> float | None:
        """What is left in all batteries; None where one does not say."""
        left = [battery.joules for battery in self.batteries()]
        return sum(one for one in left if one is not None) if left and None not in left else None

    def rapl_joules(self) -> float | None:
        """What the processor packages spent since the first call; None where that may not be read."""
        packages = [
            zone for zone in folders(self._zones, "*rapl:*") if (text(zone / "name") or "").startswith("package")
        ]
        counts = {zone: count for zone in packages if (count := number(zone / "energy_uj")) is not None}
        if not counts or len(counts) < len(packages):
            return None
        for zone, count in counts.items():
            grown = count - self._rapl.get(zone, count)
            if grown < 0:  # the counter went once around
                grown += number(zone / "max_energy_range_uj") or 0
            self._rapl_joules += max(0, grown) * MICRO
        self._rapl = counts
        return self._rapl_joules

    def _entries(self) -> list[Path]:
        return [entry for entry in folders(self._supplies, "*") if not entry.name.startswith(".")]

    def _battery(self, entry: Path) -> Battery:
        volts = self._nominal_volts(entry)
        joules, full_joules = (_stored(entry, volts, when) for when in ("now", "full"))
        percent = number(entry / "capacity")
        if percent is None and joules is not None and full_joules:
            percent = round(100 * joules / full_joules)
        status = text(entry / "status")
        draining = None if status in (None, "", "Unknown") else status == "Discharging"
        return Battery(percent, draining, joules, full_joules)

    def _nominal_volts(self, entry: Path) -> float:
        """What an ampere-hour is counted at, the same at all times: the voltage of now falls with every load, and a
        charge that has not changed would seem spent."""
        if entry not in self._volts:
            microvolts = number(entry / "voltage_min_design") or number(entry / "voltage_now") or 0
            if not microvolts:
                return 0.0
            self._volts[entry] = microvolts * MICRO
        return self._volts[entry]


def _stored(entry: Path, volts: float, when: str) -> float | None:
    """Joules of a battery, from watt-hours or from ampere-hours."""
    energy, charge = number(entry / f"energy_{when}"), number(entry / f"charge_{when}")
    if energy is not None:
        return energy * MICRO * JOULES_PER_WH
    return charge * MICRO * volts * JOULES_PER_WH if charge is not None and volts else None


def _charge(batteries: list[Battery]) -> float | None:
    """The charge of all batteries together, each weighed by what it holds."""
    known = [battery for battery in batteries if battery.percent is not None]
    if not known:
        return None
    weights = [battery.full_joules or 0.0 for battery in known]
    if not all(weights):
        weights = [1.0] * len(known)
    total = sum(weight * (battery.percent or 0.0) for weight, battery in zip(weights, known, strict=True))
    return total / sum(weights)
