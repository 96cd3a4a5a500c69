"""Adds up the energy that a run spends, by the best meter there is, and names it.

RAPL counts processor packages, NVML accelerators; where neither may be read, what a battery lost while it drained is
the whole machine's.  Time on mains is not measured by a battery, and then the method says so.  Nothing is made up:
where nothing measures, there are no joules, and what a battery holds must have fallen below all that was seen before.
"""

from batchrun.heat import Energy


class EnergyMeter:
    """Takes counters as they come.  Joules since the start."""

    def __init__(self) -> None:
        self._left_joules: float | None = None  # the least since it drains
        self._drained_joules: float | None = None
        self._gaps = False

    def energy(
        self,
        rapl_joules: float | None,
        nvml_joules: float | None,
        left_joules: float | None,
        draining: bool,
        awaited: str = "",
    ) -> Energy:
        """`left_joules`: in all batteries.  `awaited`: a meter that will count once its device works."""
        self._drain(left_joules, draining)
        parts = {"rapl": rapl_joules, "nvml": nvml_joules}
        known = {name: joules for name, joules in parts.items() if joules is not None}
        if known:
            return Energy(sum(known.values()), "+".join(known))
        if self._drained_joules is None:
            return Energy(None, awaited or "none")
        return Energy(self._drained_joules, "battery, part of the time" if self._gaps else "battery")

    def _drain(self, left_joules: float | None, draining: bool) -> None:
        if left_joules is None or not draining:
            self._gaps, self._left_joules = True, None
            return
        least_joules = left_joules if self._left_joules is None else min(left_joules, self._left_joules)
        spent_joules = 0.0 if self._left_joules is None else self._left_joules - least_joules
        self._drained_joules = (self._drained_joules or 0.0) + spent_joules
        self._left_joules = least_joules
