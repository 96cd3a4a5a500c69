"""Ends a run at a moment, as a signal would."""

import time

from batchrun.signals import StopSignals


class Deadline:
    """Signals, and a moment: `seconds` from now, or None for none."""

    def __init__(self, signals: StopSignals, seconds: float | None) -> None:
        self._signals = signals
        self._until_s = None if seconds is None else time.monotonic() + seconds

    @property
    def stopped(self) -> bool:
        return self._signals.stopped or self.timed_out

    @property
    def timed_out(self) -> bool:
        """Whether the moment has come, and no signal was first."""
        return not self._signals.stopped and self._left_s() <= 0

    def overdue(self, grace_s: float) -> bool:
        return self._signals.overdue(grace_s) or self._left_s() < -grace_s

    def wait(self, seconds: float) -> bool:
        """Sleeps, but not past a signal or the moment.  Whether one of them came."""
        return self._signals.wait(max(0.0, min(seconds, self._left_s()))) or self.stopped

    def _left_s(self) -> float:
        return float("inf") if self._until_s is None else self._until_s - time.monotonic()
