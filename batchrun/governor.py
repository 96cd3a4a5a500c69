"""The control law: how long the next burst may be, and how long the machine rests after it.

Pure: seconds and levels of heat in, an allowance out; the pacer asks the sensors and the runner does the resting.

* A machine that never was hot never rests, and its bursts grow.
* One that is hot ends its burst at once, halves it, and rests until it is back; from then on a model of its heat
  (`heat_model`) lays short bursts just under the point where it throttles, and creeps upwards until it touches again.
* UNKNOWN is not cool: nothing grows and no rest shrinks on it.
"""

from dataclasses import dataclass
from typing import Protocol

from batchrun.heat import Level
from batchrun.heat_model import LEAST_BUDGET_S, HeatModel

FIRST_BURST_S = 20.0  # what takes a phone from cold to throttled
GROWTH = 1.03  # of a burst that ended cool
SHRINK = 0.5  # of a burst that ended hot
FULL = 0.9  # share of its seconds that a burst must have worked to prove anything
TOP = 0.97  # as near to the limit as bursts go
SWING = 0.035  # the heat that one burst may add on a machine with a limit
FIRST_RELEASE, MOST_RELEASE, LEAST_RELEASE = 0.85, 0.93, 0.3  # heat at which a throttled machine is back
RELEASE_UP, RELEASE_DOWN = 0.01, 0.06  # that belief, after a rest that was enough, and after one that was not
CREEP, FIRST_CREEP = 0.04, 5.0  # of the duty, in one time constant after a touch; after the first, a mistake perhaps
MOST_CREEP = 0.05  # in one burst
FIRST_REST_S = 5.0  # after heat that only a sensor saw
LEAST_WORK_S = 0.5  # in a burst, however hot: a run must go on
LEAST_REST_S = 0.001  # less than that is rounding, and no clock would show that it passed
CRITICAL_REST_S = 10.0  # between two looks at a machine that is critically hot


@dataclass(frozen=True, slots=True)
class Allowance:
    """One burst's share of the machine: `seconds` of predicted work, then `rest_s` of rest."""

    seconds: float
    rest_s: float


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a user allows, in seconds; equal bounds fix a number.  `duty`: the largest share of time to work."""

    least_burst_s: float = 1.0
    most_burst_s: float = 120.0
    least_rest_s: float = 1.0
    most_rest_s: float = 120.0
    duty: float = 1.0


@dataclass(frozen=True, slots=True)
class Known:
    """What `batchrun calibrate` found: seconds to throttle from cold, and the duty that lasts."""

    budget_s: float
    duty: float


class Governor(Protocol):
    """Decides over bursts and rests."""

    @property
    def allowance(self) -> Allowance:
        """Of the burst that runs or comes next, as far as it can be told now."""
        ...

    @property
    def probes(self) -> bool:
        """Whether a probe should open bursts."""
        ...

    def over(self, worked_s: float, level: Level) -> bool:
        """Whether the burst must end at this token boundary, whatever is left of it."""
        ...

    def heated(self, seconds: float) -> None:
        """The silicon worked outside of bursts, for a probe."""
        ...

    def worked(self, worked_s: float, level: Level, *, slow: bool = True) -> float:
        """A burst ended, this hot.  Gives the seconds of rest that follow.

        `slow`: where it is hot, speed says so; else a sensor alone does, which is obeyed and not learned from.
        """
        ...

    def rested(self, rested_s: float, level: Level, *, slow: bool = True) -> float:
        """A rest of so many seconds ended, and this is how hot it is.  Gives the seconds to rest on, or 0."""
        ...


class FixedGovernor:
    """The user's own law: the same allowance for every burst, unless it is critically hot."""

    probes = False

    def __init__(self, seconds: float, rest_s: float, duty: float = 1.0) -> None:
        self.allowance = Allowance(seconds, rest_s)
        self._duty = duty

    def over(self, worked_s: float, level: Level) -> bool:
        return False

    def heated(self, seconds: float) -> None:
        pass

    def worked(self, worked_s: float, level: Level, *, slow: bool = True) -> float:
        return max(self.allowance.rest_s, capped(worked_s, self._duty))

    def rested(self, rested_s: float, level: Level, *, slow: bool = True) -> float:
        return CRITICAL_REST_S if level is Level.CRITICAL else 0.0


class HeatGovernor:
    """Follows the machine within bounds."""

    probes = True

    def __init__(self, bounds: Bounds, known: Known | None = None) -> None:
        self._bounds = bounds
        self._model: HeatModel | None = None
        if known and known.duty < 1:
            self._model = HeatModel(known.budget_s, known.duty, heat=0.0)
        self._touches = 2 if self._model else 0  # of the limit that the model is of; one may have been a mistake
        self._since_touch_s = 0.0
        self._crept_s = 0.0  # how much of that time the creeping has counted
        self._worked_s = 0.0  # since the start
        self._resting_s: float | None = None  # of a rest that goes on until the machine is back
        self._release = FIRST_RELEASE
        self._rest_s = bounds.least_rest_s
        self._burst_s = self._fitting(FIRST_BURST_S)

    @property
    def allowance(self) -> Allowance:
        return Allowance(self._burst_s, self._rest_s)

    def over(self, worked_s: float, level: Level) -> bool:
        return worked_s >= self._burst_s or (level >= Level.HOT and worked_s >= LEAST_WORK_S)

    def heated(self, seconds: float) -> None:
        self._since_touch_s += seconds
        if self._model:
            self._model.worked(seconds)

    def worked(self, worked_s: float, level: Level, *, slow: bool = True) -> float:
        self._worked_s += worked_s
        self.heated(worked_s)
        if level >= Level.HOT:
            if slow and self._worked_s >= LEAST_BUDGET_S:  # else it was hot before we came
                self._learn()
            rest_s = self._recover(min(self._burst_s, worked_s))
        else:
            if self._model:  # it has not throttled
                self._model.heat = min(1.0, self._model.heat)
            if level is not Level.UNKNOWN and worked_s >= FULL * self._burst_s:
                self._grow(level)
            rest_s = self._wanted_rest(level)
        if self._bounds.least_rest_s == self._bounds.most_rest_s:
            rest_s = self._bounds.least_rest_s
        self._rest_s = rest_s
        return max(rest_s, capped(worked_s, self._bounds.duty))

    def rested(self, rested_s: float, level: Level, *, slow: bool = True) -> float:
        self._since_touch_s += rested_s
        if self._model:
            self._model.rested(rested_s)
        resting_s = (self._resting_s or 0.0) + rested_s
        if level < Level.HOT or (level < Level.CRITICAL and resting_s >= self._bounds.most_rest_s - LEAST_REST_S):
            if level < Level.HOT and self._resting_s is not None:
                self._release = min(MOST_RELEASE, self._release + RELEASE_UP)
            self._resting_s = None
            return 0.0
        if self._resting_s is None:  # it throttles, and the burst before did not notice
            if slow and self._worked_s >= LEAST_BUDGET_S:
                self._learn(missed_s=rested_s)
            more_s = self._recover(self._burst_s)
        elif self._model and slow:
            self._release = max(LEAST_RELEASE, min(self._release, self._model.heat) - RELEASE_DOWN)
            more_s = self._bounded_rest(self._model.rest_to(self._release))
        else:
            more_s = self._bounded_rest(resting_s)
        self._resting_s = resting_s
        if level is Level.CRITICAL:
            return CRITICAL_REST_S
        return min(more_s, self._bounds.most_rest_s - resting_s)

    def _learn(self, missed_s: float | None = None) -> None:
        """The machine throttles: it touched its limit, now, or unseen before a rest of `missed_s`."""
        if self._model is None:
            self._model = HeatModel(self._worked_s)
        elif missed_s is not None:
            self._model.throttled_before(missed_s)
        else:
            self._model.throttled()
        self._touches += 1
        self._since_touch_s = self._crept_s = 0.0

    def _recover(self, burst_s: float) -> float:
        """It is hot after a burst of so many seconds.  Gives the rest that should bring it back."""
        self._resting_s = 0.0
        self._burst_s = self._fitting(burst_s * SHRINK)
        if self._model is None:
            return self._bounded_rest(FIRST_REST_S)
        back = min(self._release, self._model.heat_before(self._burst_s, TOP))
        return self._bounded_rest(self._model.rest_to(max(LEAST_RELEASE, back)))

    def _grow(self, level: Level) -> None:
        """A whole burst ended cool, or warm: near a limit, which is where one with a model of it should be."""
        if self._model:
            before, after = (s / self._model.time_constant_s for s in (self._crept_s, self._since_touch_s))
            creep = (CREEP if self._touches > 1 else FIRST_CREEP) * (after**2 - before**2)
            self._crept_s = self._since_touch_s
            self._model.stands_more(min(MOST_CREEP, creep))
            if self._model.unlimited:
                self._model, self._touches = None, 0
        self._burst_s = self._fitting(self._burst_s * (GROWTH if level is Level.COOL else 1.0))

    def _wanted_rest(self, level: Level) -> float:
        """The rest after a burst that was not hot: so long that the next one ends just under the limit."""
        if self._model is None:
            return 0.0 if level is Level.COOL else self._rest_s
        rest_s = self._model.rest_to(max(LEAST_RELEASE, self._model.heat_before(self._burst_s, TOP)))
        return self._bounded_rest(rest_s) if rest_s >= self._bounds.least_rest_s else 0.0

    def _fitting(self, seconds: float) -> float:
        """A burst within bounds, and no longer than heats the machine by one swing."""
        bounds = self._bounds
        swing_s = self._model.work_between(TOP - SWING, TOP) if self._model else seconds
        rest_per_work = capped(1.0, bounds.duty)
        most_s = min(bounds.most_burst_s, bounds.most_rest_s / rest_per_work if rest_per_work else bounds.most_burst_s)
        return max(bounds.least_burst_s, min(seconds, swing_s, most_s))

    def _bounded_rest(self, seconds: float) -> float:
        return min(self._bounds.most_rest_s, max(self._bounds.least_rest_s, seconds))


def capped(worked_s: float, duty: float) -> float:
    """Seconds of rest after so much work that keep to a share of time."""
    return worked_s * (1 / duty - 1)
