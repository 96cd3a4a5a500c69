"""Asks this machine how hot it is, what else slows it, where its current comes from, and what energy it spends.

The only package that asks, one file for each platform or vendor.  Every question is bounded in time (`asked`), none
needs root, and what cannot be read is UNKNOWN: a reading of its own, shown as such, and never taken for cool.
"""

import os
import platform
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchrun.heat import Contention, Level, Reading, Sensed, Supply
from batchrun.thermal import termux
from batchrun.thermal.asked import Asked
from batchrun.thermal.darwin import open_darwin
from batchrun.thermal.energy import EnergyMeter
from batchrun.thermal.linux_heat import LinuxHeat
from batchrun.thermal.linux_load import LinuxLoad
from batchrun.thermal.linux_power import LinuxPower
from batchrun.thermal.nvidia import open_nvidia
from batchrun.thermal.others import PsutilLoad, psutil_supply

TERMUX_EVERY_S, TERMUX_FRESH_S = 15.0, 60.0
SLOW_FRESH_S = 30.0  # batteries and energy
PATIENCE_S = 3.5  # for first answers

ReadHeat = Callable[[float], tuple[Reading, ...]]  # seconds since the last reading in, readings out


class MachineSensors:
    """What a run asks.  Sources by name; `awaited`: a meter that will count once its device works, or nothing; `clock`:
    monotonic seconds."""

    def __init__(
        self,
        heat: dict[str, ReadHeat],
        contention: Callable[[], Contention],
        supply: Callable[[], Supply | None],
        meters: dict[str, Callable[[], float | None]],
        phone: termux.Termux | None = None,
        awaited: Callable[[], str] = lambda: "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._heat = {name: Asked(_timed(read, clock), clock=clock) for name, read in heat.items()}
        self._contention = Asked(contention, every_s=0.0, clock=clock)
        self._supply = Asked(supply, fresh_s=SLOW_FRESH_S, clock=clock)
        self._meters = {name: Asked(read, fresh_s=SLOW_FRESH_S, clock=clock) for name, read in meters.items()}
        self._phone = phone and Asked(
            phone.status, every_s=TERMUX_EVERY_S, fresh_s=TERMUX_FRESH_S, patience_s=0.0, clock=clock
        )
        self._awaited = awaited
        self._energy = EnergyMeter()

    def settle(self, patience_s: float = PATIENCE_S) -> None:
        """Waits for all first answers, for where much hangs on them; a device may take its time to open."""
        for asked in self._heat.values():
            asked.latest(patience_s)
        for meter in self._meters.values():
            meter.latest(patience_s)
        self.supply(patience_s)

    def supply(self, patience_s: float | None = PATIENCE_S) -> Supply:
        """Where the current comes from; waits for a first answer."""
        if self._phone and (status := self._phone.latest(patience_s)):
            return status[1]
        return self._supply.latest(patience_s) or Supply()

    def sense(self) -> Sensed:
        """All sensors as they are now."""
        readings: list[Reading] = []
        for name, asked in self._heat.items():
            found = asked.latest()
            readings += [Reading(name, Level.UNKNOWN, note=asked.error)] if found is None else found
        supply = self.supply(None)
        if self._phone:
            status = self._phone.latest()
            readings.append(status[0] if status else Reading("battery", Level.UNKNOWN, note=self._phone.error))
        meters = {name: asked.latest() for name, asked in self._meters.items()}
        energy = self._energy.energy(
            meters.get("rapl"), meters.get("nvml"), meters.get("battery"), supply.draining, self._awaited()
        )
        return Sensed(tuple(readings), supply, energy)

    def contention(self) -> Contention | None:
        """Counters of waiting; those that cannot be read are None.  None in all where the answer is late."""
        answer = self._contention.now()
        if answer is None and self._contention.latest() is None:
            return Contention()
        return answer


class Opened:
    """A device that is opened with the first question, in the thread that asks: opening one may hang too."""

    def __init__(self, open_device: Callable[[], Any]) -> None:
        self._open = open_device
        self._device: Any = None
        self._tried = False
        self._opening = threading.Lock()  # heat and energy are asked for in threads of their own

    def device(self) -> Any:
        with self._opening:
            if not self._tried:
                self._device = self._open()
                self._tried = True
            return self._device

    def readings(self, elapsed_s: float) -> tuple[Reading, ...]:
        device = self.device()
        return device.readings(elapsed_s) if device else ()

    def joules(self) -> float | None:
        device = self.device()
        return device.joules() if device else None

    @property
    def power_s(self) -> float | None:
        return self._device.power_s if self._device else None

    @property
    def will_count(self) -> bool:
        return bool(self._device and self._device.will_count)


def open_sensors(root: Path = Path("/"), system: str = platform.system(), threads: int | None = None) -> MachineSensors:
    """The sensors of this machine.  `root`: where the kernel's files are; tests point it at a copy.  `threads`: that
    will compute; None for one on every processor."""
    cards = Opened(open_nvidia)
    heat: dict[str, ReadHeat] = {"nvidia": cards.readings}
    meters: dict[str, Callable[[], float | None]] = {"nvml": cards.joules}
    supply: Callable[[], Supply | None] = psutil_supply
    waited = PsutilLoad().contention
    if system == "Linux":
        power = LinuxPower(root)
        heat["linux"] = LinuxHeat(root).readings
        meters |= {"rapl": power.rapl_joules, "battery": power.battery_joules}
        supply, waited = power.supply, LinuxLoad(root, threads or os.cpu_count() or 1).contention
    elif system == "Darwin":
        heat["thermal pressure"] = Opened(open_darwin).readings
    phone = termux.Termux() if termux.is_there() else None
    return MachineSensors(
        heat,
        lambda: replace(waited(), power_s=cards.power_s),
        supply,
        meters,
        phone,
        lambda: "nvml" if cards.will_count else "",
    )


def _timed(read: ReadHeat, clock: Callable[[], float]) -> Callable[[], tuple[Reading, ...]]:
    """The same question, told how long ago it was last asked."""
    asked_s = clock()

    def timed() -> tuple[Reading, ...]:
        nonlocal asked_s
        before_s, asked_s = asked_s, clock()
        return read(asked_s - before_s)

    return timed
