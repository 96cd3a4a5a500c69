"""Least squares over a handful of features, for a quantity that is watched while it drifts.

Weights are never negative, old observations fade, and errors count relative to what was observed, so that a step which
a busy machine made ten times as long does not outweigh ten usual ones.  Where the observations say nothing about a
weight (features that always move together, or that have not been seen) it stays where it was.

Pure: numbers in, numbers out.  What the features mean is the caller's affair.
"""

from collections.abc import Sequence

FADE = 0.98
"""What an observation still counts after the next, unless told otherwise: fifty of them are remembered well."""

HOLD = 0.05
"""How strongly a weight is held where it was, as a share of what the observations say about it."""

SWEEPS = 6
FORGOTTEN = 1e-100
"""What is known of a feature that has not been seen for thousands of observations: too faint to reckon with."""


class Regression:
    """Non-negative weights `w` such that `sum(w * features)` is near the observed value."""

    def __init__(self, first: Sequence[float], fade: float = FADE) -> None:
        self.weights = list(first)
        self._fade = fade
        size = len(self.weights)
        self._gram = [[0.0] * size for _ in range(size)]
        self._moment = [0.0] * size

    def saw(self, features: Sequence[float], value: float) -> None:
        """Takes one observation.  `value` > 0."""
        scaled = [feature / value for feature in features]
        for row, left in enumerate(scaled):
            line = self._gram[row]
            for column, right in enumerate(scaled):
                line[column] = self._fade * line[column] + left * right
            self._moment[row] = self._fade * self._moment[row] + left

    def solve(self) -> None:
        """Moves the weights to the observations, by coordinate descent from where they are."""
        held = list(self.weights)
        for _ in range(SWEEPS):
            for row, line in enumerate(self._gram):
                if line[row] < FORGOTTEN:
                    continue
                others = sum(cell * weight for cell, weight in zip(line, self.weights, strict=True))
                others -= line[row] * self.weights[row]
                pull = self._moment[row] - others + HOLD * line[row] * held[row]
                self.weights[row] = max(0.0, pull / (line[row] * (1 + HOLD)))

    def predict(self, features: Sequence[float]) -> float:
        return sum(weight * feature for weight, feature in zip(self.weights, features, strict=True))
