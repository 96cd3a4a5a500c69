"""Battery and swapping by psutil, for systems whose files are not read directly: macOS, the BSDs."""

import psutil

from batchrun.heat import Contention, Power, Supply
from batchrun.thermal.own_time import OwnTime

PAGE_BYTES, PAGE_S = 4096, 1e-4


def psutil_supply() -> Supply:
    """A machine without a battery runs on mains; where psutil knows no batteries at all, the source is unknown."""
    if not hasattr(psutil, "sensors_battery"):
        return Supply()
    battery = psutil.sensors_battery()
    if battery is None:
        return Supply(Power.MAINS)
    plugged = battery.power_plugged
    source = Power.UNKNOWN if plugged is None else Power.MAINS if plugged else Power.BATTERY
    return Supply(source, float(battery.percent), plugged is False)


class PsutilLoad:
    """What slows a process, as far as psutil can tell."""

    def __init__(self, own: OwnTime | None = None) -> None:
        self._own = own or OwnTime()

    def contention(self) -> Contention:
        swap, busy, processors = psutil.swap_memory(), psutil.cpu_times(), psutil.cpu_count() or 1
        others_s = (busy.user + busy.system - self._own.seconds()) / processors
        stall_s = (swap.sin + swap.sout) / PAGE_BYTES * PAGE_S
        return Contention(others_s=others_s, stall_s=stall_s, processors=processors)
