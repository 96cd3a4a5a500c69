"""Whether a run may go on, by the user's rules: power source, charge, hours of the day, energy.

Pure but for the questions it is given.  What cannot be read does not pass for a yes: on a machine whose power source is
unknown, `--only-on-ac` stops the run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from batchrun.config import Settings
from batchrun.errors import UsageError
from batchrun.forms import Hours, clock_time, energy_wh, hours, next_time
from batchrun.heat import JOULES_PER_WH, Power, Sensed, Supply

LOOK_EVERY_S = 1.0


@dataclass(frozen=True, slots=True)
class Rules:
    """When a run must stop.  `until`: a moment; `quiet`: hours of every day."""

    only_on_ac: bool = False
    min_battery_percent: float | None = None
    quiet: Hours | None = None
    until: datetime | None = None
    max_energy_wh: float | None = None

    def broken(self, sensed: Sensed, now: datetime) -> str:
        """Which rule forbids to go on, or nothing."""
        supply, energy = sensed.supply, sensed.energy
        if self.only_on_ac and supply.source is not Power.MAINS:
            source = "on battery" if supply.source is Power.BATTERY else "the power source cannot be read"
            return f"{source} (--only-on-ac)"
        least = self.min_battery_percent
        drains = supply.draining or supply.source is not Power.MAINS
        if least is not None and drains and (supply.percent is None or supply.percent < least):
            charge = "the charge cannot be read" if supply.percent is None else f"{supply.percent:.0f} % charge"
            return f"{charge} (--min-battery {least:g})"
        if self.quiet and self.quiet.hold(now.time()):
            return f"quiet hours until {self.quiet.end:%H:%M} (--quiet-hours)"
        if self.until and now >= self.until:
            return f"it is {now:%H:%M} (--until {self.until:%H:%M})"
        if self.max_energy_wh is not None:
            if not energy.measurable:
                return "the energy cannot be read any more (--max-energy)"
            spent_wh = (energy.joules or 0.0) / JOULES_PER_WH
            if spent_wh >= self.max_energy_wh:
                return f"{spent_wh:.2f} Wh spent, by {energy.method} (--max-energy {self.max_energy_wh:g}Wh)"
        return ""


def rules(settings: Settings, now: datetime) -> Rules:
    """The rules of a run that starts now."""
    return Rules(
        settings.only_on_ac,
        settings.min_battery,
        hours(settings.quiet_hours) if settings.quiet_hours else None,
        next_time(clock_time(settings.until), now) if settings.until else None,
        energy_wh(settings.max_energy) if settings.max_energy else None,
    )


def check_measurable(kept: Rules, sensed: Sensed) -> None:
    """Raises UsageError for a rule that this machine gives nothing to keep it by."""
    if kept.only_on_ac and sensed.supply.source is Power.UNKNOWN:
        raise UsageError("--only-on-ac cannot be kept: this machine's power source cannot be read")
    if kept.min_battery_percent is not None and sensed.supply == Supply():
        raise UsageError("--min-battery cannot be kept: neither power source nor charge can be read here")
    if kept.max_energy_wh is not None and not sensed.energy.measurable:
        tried = "NVML, RAPL (which most systems show to root only) and a draining battery"
        raise UsageError(f"--max-energy cannot be kept: no energy can be read here; tried {tried}")


class Stop(Protocol):
    """Whether a run was asked to stop: by a signal, a deadline, a rule."""

    @property
    def stopped(self) -> bool: ...

    @property
    def timed_out(self) -> bool:
        """Whether it was the deadline that stopped it."""
        ...

    def overdue(self, grace_s: float) -> bool:
        """Whether it stopped longer ago than that."""
        ...

    def wait(self, seconds: float) -> bool: ...


class Permission:
    """Stops a run by signal or by rule.  `reason`: the rule's, once it did.  `tick` is called with every look.

    `sense` is asked only where there are rules to keep.
    """

    def __init__(
        self,
        signals: Stop,
        kept: Rules,
        sense: Callable[[], Sensed],
        clock: Callable[[], float],
        now: Callable[[], datetime],
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._signals, self._rules = signals, kept
        self._sense, self._clock, self._now, self._tick = sense, clock, now, tick
        self._looked_s: float | None = None
        self._broken_s: float | None = None
        self.reason = ""

    @property
    def stopped(self) -> bool:
        """Looks at the rules once a second."""
        if self._signals.stopped or self.reason:
            return True
        now_s = self._clock()
        if self._looked_s is None or now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._tick()
            self.reason = self._rules.broken(self._sense(), self._now()) if self._rules != Rules() else ""
            self._broken_s = now_s if self.reason else None
        return bool(self.reason)

    @property
    def timed_out(self) -> bool:
        """Whether it was the deadline that stopped it."""
        return not self.reason and self._signals.timed_out

    def overdue(self, grace_s: float) -> bool:
        """Whether it stopped longer ago than that."""
        by_rule = self._broken_s is not None and self._clock() - self._broken_s > grace_s
        return by_rule or self._signals.overdue(grace_s)

    def wait(self, seconds: float) -> bool:
        """Sleeps, but not past a signal.  Whether the run is to stop."""
        return self._signals.wait(seconds) or self.stopped
