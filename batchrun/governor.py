"""Says how long the next burst may be and how long to rest after it.

The present law is the user's own: fixed seconds of work, fixed seconds of rest.  It is pure; the runner does the
resting.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Allowance:
    """One burst's share of the machine: `seconds` of predicted work, then `rest_s` of rest."""

    seconds: float
    rest_s: float


class FixedGovernor:
    """The same allowance for every burst."""

    def __init__(self, seconds: float, rest_s: float) -> None:
        self._allowance = Allowance(seconds, rest_s)

    def allowance(self) -> Allowance:
        return self._allowance
