"""The experiment that `calibrate` makes: work from cold until it throttles, recover, and work in bursts with gaps.

It finds four things of a device: seconds to throttle, the speed it falls to, seconds to recover, and the share of time
that it can work at full speed for ever.  The device is behind a protocol, so the experiment runs on a simulated one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from batchrun.heat import Level
from batchrun.speed import BACK

RECOVERY_STEP_S, MOST_RECOVERY_S = 5.0, 180.0
BURSTS_PER_GAP = 3  # the first finds another heat than it leaves, and does not count


class Worked(NamedTuple):
    """A spell of work.  `slow_after_s`: when it was first found to be throttled; `ratio`: of full speed, at its end."""

    seconds: float
    slow_after_s: float | None
    ratio: float | None


class Device(Protocol):
    """What is experimented on."""

    def work(self, seconds: float, *, until_slow: bool) -> Worked: ...

    def rest(self, seconds: float) -> None: ...

    def probe(self) -> Level:
        """How hot it is, by its speed."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the experiment takes.  `first_s` of work from cold at most, `settled_s` of it throttled."""

    gaps_s: tuple[float, ...] = (30.0, 90.0)
    burst_s: float = 60.0
    first_s: float = 300.0
    settled_s: float = 60.0


QUICK = Plan((5.0, 15.0), burst_s=10.0, first_s=20.0, settled_s=10.0)


@dataclass(frozen=True, slots=True)
class Swept:
    """What was found; None where it did not throttle.  `worked_s`: how long it was watched working without a gap."""

    worked_s: float
    budget_s: float | None = None
    throttled: float | None = None
    recover_s: float | None = None
    duty: float = 1.0


def sweep(device: Device, plan: Plan, say: Callable[[str], None]) -> Swept:
    """Runs the experiment.  A device that does not throttle without a gap is not asked what gaps would do."""
    first = device.work(plan.first_s, until_slow=True)
    if first.slow_after_s is None:
        say(f"gap 0 s: {first.seconds:.0f} s of work at full speed; it does not throttle")
        return Swept(first.seconds)
    settled = device.work(plan.settled_s, until_slow=False)
    if settled.ratio is not None and settled.ratio >= BACK:  # no machine cools while it works on
        say(f"gap 0 s: slow for a moment after {first.slow_after_s:.0f} s, then at full speed again; that is not heat")
        return Swept(first.seconds + settled.seconds)
    at = f"to {settled.ratio:.2f} of full speed" if settled.ratio is not None else "to an unknown speed"
    say(f"gap 0 s: throttles after {first.slow_after_s:.0f} s, {at}")
    recover_s = _recover(device)
    say(f"recovers in {recover_s:.0f} s" if recover_s is not None else f"not back after {MOST_RECOVERY_S:.0f} s")
    duty = max(_duty(device, gap_s, plan.burst_s, say) for gap_s in plan.gaps_s)
    return Swept(first.seconds + settled.seconds, first.slow_after_s, settled.ratio, recover_s, duty)


def _recover(device: Device) -> float | None:
    """Seconds of rest until its speed is back."""
    rested_s = 0.0
    while rested_s < MOST_RECOVERY_S:
        device.rest(RECOVERY_STEP_S)
        rested_s += RECOVERY_STEP_S
        if device.probe() < Level.HOT:
            return rested_s
    return None


def _duty(device: Device, gap_s: float, burst_s: float, say: Callable[[str], None]) -> float:
    """The share of time at full speed with this gap between bursts."""
    spells = []
    for _ in range(BURSTS_PER_GAP):
        spells.append(device.work(burst_s, until_slow=True))
        device.rest(gap_s)
        device.probe()  # else it would still be taken for as hot as the burst ended
    cool_s = sum(spell.seconds if spell.slow_after_s is None else spell.slow_after_s for spell in spells[1:])
    duty = cool_s / (cool_s + gap_s * (BURSTS_PER_GAP - 1))
    say(f"gap {gap_s:.0f} s: {cool_s / (BURSTS_PER_GAP - 1):.0f} s of work at full speed between gaps, duty {duty:.2f}")
    return duty
