"""Puts a run's pacer together: from settings, sensors and what `calibrate` found to a governor."""

import time
from collections.abc import Callable

from batchrun.assembly import Parts, original_identity
from batchrun.awake import KeepAwake, command
from batchrun.config import Settings
from batchrun.device_profile import DeviceProfile, Key
from batchrun.device_profile import load as load_profile
from batchrun.governor import FIRST_BURST_S, Bounds, FixedGovernor, Governor, HeatGovernor, Known
from batchrun.heat import Power
from batchrun.machine import this_machine
from batchrun.pacer import Blind, Pacer, Sensors
from batchrun.speed import SpeedSensor
from batchrun.step_fit import StepFit


def unpaced(settings: Settings, clock: Callable[[], float]) -> Pacer:
    """Bursts and rests as set, without a look at heat: for benchmarks, and for a toy that computes nothing."""
    return Pacer(_fixed(settings), clock, Blind())


def paced(parts: Parts, sensors: Sensors, launcher: str, clock: Callable[[], float] = time.monotonic) -> Pacer:
    """The pacer of a run on this machine."""
    settings = parts.settings
    if settings.engine == "fake":
        return unpaced(settings, clock)
    profile = device_profile(parts, sensors.supply().source, launcher)
    fit, probe_s, known = (profile.fit(), profile.probe_s, profile.known) if profile else (StepFit(), None, None)
    law = governor(settings, known)
    speed = SpeedSensor(fit, sensors.contention, probe_s, confirms=law.probes)
    awake = KeepAwake(command() if settings.keep_awake else None)
    return Pacer(law, clock, sensors, speed, awake, launcher)


def device_profile(parts: Parts, supply: Power, launcher: str) -> DeviceProfile | None:
    """What `calibrate` found of this device, where it was measured with the same weights and threads."""
    found = load_profile(Key(original_identity(parts.settings), supply, launcher))
    threads = parts.settings.threads or this_machine().threads
    return found if found and (found.model, found.threads) == (parts.model.card.name, threads) else None


def wants_probes(settings: Settings) -> bool:
    """Whether a run of these settings keeps a slot for probes."""
    return settings.engine != "fake" and governor(settings, None).probes


def governor(settings: Settings, known: Known | None) -> Governor:
    """The user's own law where both numbers are set, or where there is no rest to follow the heat with."""
    burst_s, rest_s = settings.burst_seconds, settings.rest_seconds
    if rest_s == 0 or (burst_s is not None and rest_s is not None):
        return _fixed(settings)
    free = Bounds()
    bounds = Bounds(
        least_burst_s=free.least_burst_s if burst_s is None else burst_s,
        most_burst_s=free.most_burst_s if burst_s is None else burst_s,
        least_rest_s=free.least_rest_s if rest_s is None else rest_s,
        most_rest_s=free.most_rest_s if rest_s is None else rest_s,
        duty=settings.duty,
    )
    return HeatGovernor(bounds, known)


def _fixed(settings: Settings) -> FixedGovernor:
    return FixedGovernor(settings.burst_seconds or FIRST_BURST_S, settings.rest_seconds or 0.0, settings.duty)
