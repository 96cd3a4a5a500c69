"""Seconds of a step on a cool machine: a fit that knows when to stop learning.

The engine's `Cost` follows the machine whatever becomes of it, since a burst is to be predicted at the speed that it
will run at.  This one is told cool steps only, remembers ten times as long, and so can tell that a machine has become
slow.  Features and regression are the engine's.  Width is not linear on real kernels, so every width (with a prompt
beside it and without) gets a factor of its own on top; a width that was not seen often enough has no prediction, rather
than a wrong one.
"""

from typing import Any

from batchrun.cost import FIRST_WEIGHTS, Work
from batchrun.regression import Regression

STEPS_TO_FIT = 24
SIGHTINGS_TO_TRUST = 4  # of one width
FADE = 0.998  # of what was seen, a step later: the last 500 steps count for two thirds
WEIGHT = 0.1  # of a new observation in a width's factor
SOLVE_EVERY = 8  # steps

Width = tuple[bool, int]
"""Whether pieces of prompts are in a step, and the rows that append one token beside them."""


class StepFit:
    """Learns from steps, predicts steps, in seconds."""

    def __init__(self) -> None:
        self._fit = Regression(FIRST_WEIGHTS, FADE)
        self._fitted = False
        self._steps = 0
        self._factors: dict[Width, tuple[int, float]] = {}  # sightings, measured / fitted

    def saw_step(self, done: Work, seconds: float) -> None:
        """Learns from one step.  One that took no time teaches nothing."""
        if seconds <= 0:
            return
        self._fit.saw(done, seconds)
        self._steps += 1
        if self._steps >= STEPS_TO_FIT and self._steps % SOLVE_EVERY == 0:
            self._fit.solve()
            self._fitted = True
        fitted_s = self._fitted_s(done)
        if fitted_s is not None:
            sightings, factor = self._factors.get(_width(done), (0, 1.0))
            gain = max(WEIGHT, 1 / (sightings + 1))
            self._factors[_width(done)] = (sightings + 1, factor + gain * (seconds / fitted_s - factor))

    def step_seconds(self, planned: Work) -> float | None:
        """What such a step should take; None until enough like it were seen."""
        sightings, factor = self._factors.get(_width(planned), (0, 1.0))
        fitted_s = self._fitted_s(planned)
        return None if fitted_s is None or sightings < SIGHTINGS_TO_TRUST else fitted_s * factor

    def guess_s(self, planned: Work) -> float | None:
        """A prediction for want of a better one: by the nearest width that was seen."""
        fitted_s = self._fitted_s(planned)
        prompts, rows = _width(planned)
        seen = [width for width in self._factors if width[0] == prompts]
        if fitted_s is None or not seen:
            return fitted_s
        return fitted_s * self._factors[min(seen, key=lambda width: abs(width[1] - rows))][1]

    def as_record(self) -> dict[str, Any]:
        """What was found, as plain values; empty where nothing was."""
        widths = [[prompts, rows, *factor] for (prompts, rows), factor in sorted(self._factors.items())]
        return {"weights": list(self._fit.weights), "widths": widths} if self._fitted else {}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "StepFit":
        """What `as_record` gave: it stands until as much was seen again as it takes to fit.

        Raises ValueError, TypeError or KeyError for anything else.
        """
        fit = cls()
        if not record:
            return fit
        weights = Work(*(float(weight) for weight in record["weights"]))
        fit._fit, fit._fitted = Regression(weights, FADE), True
        fit._factors = {
            (bool(prompts), int(rows)): (int(count), float(factor)) for prompts, rows, count, factor in record["widths"]
        }
        return fit

    def _fitted_s(self, planned: Work) -> float | None:
        seconds = self._fit.predict(planned) if self._fitted else 0.0
        return seconds if seconds > 0 else None


def _width(step: Work) -> Width:
    return step.tokens > 0, round(step.rows)
