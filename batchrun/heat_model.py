"""A thermometer made of arithmetic: how near a machine is to the point where it throttles, without any sensor.

First-order heating and cooling (Newton's law of cooling), in units of that point:

    dh/dt = (working / duty - h) / time_constant        h = 0 idle for long, h = 1 throttles

`duty` is the share of time that the machine can work at full speed for ever.  Two numbers describe a machine, and
touching the limit teaches both: when it throttles, h is 1 whatever was thought, and had it been thought to be lower,
the machine stands less than was thought.  Pure: seconds in, seconds out.
"""

import math
from dataclasses import dataclass

FIRST_DUTY = 0.35  # believed of a machine that throttles, until its second touch says better
LEAST_DUTY, MOST_DUTY = 0.03, 0.98  # at the upper end it is as good as no limit
LEAST_BUDGET_S, MOST_BUDGET_S = 5.0, 200.0  # of full work from cold to throttled
LEAST_LESSON = 0.5  # the least that one touch may multiply the duty with
UNSEEN_LESSON = 0.02  # of the duty, for a touch whose moment is not known


@dataclass(slots=True)
class HeatModel:
    """One machine that has throttled.  `budget_s`: of full work from cold until it throttles."""

    budget_s: float
    duty: float = FIRST_DUTY
    heat: float = 1.0

    def __post_init__(self) -> None:
        self.budget_s = min(MOST_BUDGET_S, max(LEAST_BUDGET_S, self.budget_s))
        self.duty = min(MOST_DUTY, max(LEAST_DUTY, self.duty))

    @property
    def time_constant_s(self) -> float:
        return self.budget_s / -math.log(1 - self.duty)

    @property
    def unlimited(self) -> bool:
        return self.duty >= MOST_DUTY

    def worked(self, seconds: float) -> None:
        self._approach(1 / self.duty, seconds)

    def rested(self, seconds: float) -> None:
        self._approach(0.0, seconds)

    def throttled(self) -> None:
        """It throttles now: that is where heat is 1."""
        self._believe(self.duty * min(1.0, max(LEAST_LESSON, self.heat)))
        self.heat = 1.0

    def throttled_before(self, rested_s: float) -> None:
        """It throttled unseen, and has rested for so long since."""
        self._believe(self.duty * (1 - UNSEEN_LESSON))
        self.heat = max(self.heat, math.exp(-rested_s / self.time_constant_s))

    def stands_more(self, share: float) -> None:
        """It did not throttle where it was expected to: it stands more than believed, by this share."""
        self._believe(self.duty * (1 + share))

    def rest_to(self, heat: float) -> float:
        """Seconds of rest until it is this cool."""
        return self.time_constant_s * math.log(self.heat / heat) if self.heat > heat > 0 else 0.0

    def work_between(self, low: float, high: float) -> float:
        """Seconds of work that heat it from `low` to `high`."""
        steady = 1 / self.duty
        return self.time_constant_s * math.log((steady - low) / (steady - high)) if steady > high else math.inf

    def heat_before(self, work_s: float, high: float) -> float:
        """How cool it must be for so much work to end at `high`."""
        steady = 1 / self.duty
        return steady + (high - steady) * math.exp(work_s / self.time_constant_s)

    def _approach(self, steady: float, seconds: float) -> None:
        self.heat = steady + (self.heat - steady) * math.exp(-seconds / self.time_constant_s)

    def _believe(self, duty: float) -> None:
        self.duty = min(MOST_DUTY, max(LEAST_DUTY, duty))
