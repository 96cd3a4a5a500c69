"""NVIDIA accelerators through nvidia-ml-py, where that package and a driver are there.

An idle accelerator is cool and says nothing of the processor that works, so it has a level only while it is at work.
Clock-event reasons are those of nvml.h.
"""

import importlib
from typing import Any

from batchrun.heat import Level, Reading

HEAT_REASONS = 0x20 | 0x40  # software and hardware thermal slowdown
POWER_REASONS = 0x4 | 0x80  # software power cap, hardware power brake
BUSY_PERCENT = 5
WARM_C = 8.0
IDLE_S = 600.0  # an accelerator that idles from the start for so long is not what the run works on
TEMPERATURE_GPU, THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN = 0, 0, 1


class Nvidia:
    """All devices.  A question that one does not answer is an unknown of its own, and hides nothing."""

    def __init__(self, module: Any) -> None:
        self._nvml = module
        self._devices = [module.nvmlDeviceGetHandleByIndex(number) for number in range(module.nvmlDeviceGetCount())]
        self._first_mj: dict[int, int] = {}
        self._worked = False  # any of them, so far
        self._counts = False  # all of them, energy
        self._watched_s = 0.0
        self.power_s = 0.0  # held back by a power limit, as often as that was seen

    def readings(self, elapsed_s: float) -> tuple[Reading, ...]:
        self._watched_s += elapsed_s
        return tuple(self._reading(number, elapsed_s) for number in range(len(self._devices)))

    def joules(self) -> float | None:
        """What all devices spent since the first call; None where one does not count, or none was at work."""
        total_mj, self._counts = 0, False
        for number, device in enumerate(self._devices):
            spent_mj = self._ask("nvmlDeviceGetTotalEnergyConsumption", device)
            if spent_mj is None:
                return None
            total_mj += spent_mj - self._first_mj.setdefault(number, spent_mj)
        self._counts = True
        return total_mj / 1000 if self._worked else None

    @property
    def will_count(self) -> bool:
        """Whether energy will be known as soon as one of them works."""
        return self._counts and not self._worked and self._watched_s < IDLE_S

    def _reading(self, number: int, elapsed_s: float) -> Reading:
        device = self._devices[number]
        reasons = self._ask("nvmlDeviceGetCurrentClocksEventReasons", device)
        if reasons is None:  # drivers before 535 have the older name only
            reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", device)
        temperature_c = self._ask("nvmlDeviceGetTemperature", device, TEMPERATURE_GPU)
        limit_c = self._ask("nvmlDeviceGetTemperatureThreshold", device, THRESHOLD_SLOWDOWN)
        usage = self._ask("nvmlDeviceGetUtilizationRates", device)
        busy = usage is not None and usage.gpu >= BUSY_PERCENT
        self._worked = self._worked or busy
        note = "" if busy else "idle"
        found = Level.UNKNOWN
        if reasons is not None and reasons & HEAT_REASONS:
            found = Level.HOT
        elif reasons is not None and busy:
            near = temperature_c is not None and limit_c is not None and temperature_c >= limit_c - WARM_C
            found = Level.WARM if near else Level.COOL
        if reasons is not None and reasons & POWER_REASONS:
            note, self.power_s = "power limit", self.power_s + elapsed_s
        return Reading(f"nvidia {number}", found, temperature_c, limit_c, note)

    def _ask(self, name: str, *arguments: Any) -> Any:
        question = getattr(self._nvml, name, None)
        if question is None:
            return None
        try:
            return question(*arguments)
        except self._nvml.NVMLError:
            return None


def open_nvidia() -> Nvidia | None:
    """The devices of this machine; None where there is no such package, driver or device."""
    try:
        module: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        module.nvmlInit()
        return Nvidia(module) if module.nvmlDeviceGetCount() else None
    except (OSError, module.NVMLError):
        return None
