"""A machine that heats up, for tests: first-order heating and cooling, throttling above a limit, sensors that lag.

    dT/dt = (ambient + rise * power - T) / time_constant

Above its limit the machine is slowed, the further above the slower, and it comes back only below its release point.
Power does not fall as far as speed does: of a memory-bound model's power a good part does not follow the clock.  Time
is the plant's own: it passes when work is done or a rest is taken, so an hour takes seconds.

The phone follows two public observations: 20 to 25 s of work take it from cool to throttled, and it gives 15 to 20 s of
full speed a minute.  In a first-order plant these two fix the time constant and the limit.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from batchrun import cost
from batchrun.heat import Contention, Level, Reading, Sensed, Supply
from batchrun.pacer import Pacer, Probe
from batchrun.thermal.linux_heat import level

CALM_C = 20.0  # what a sensor says that was never asked
PROBE_TOKENS = 16


@dataclass(frozen=True, slots=True)
class Preset:
    """One kind of machine.  Speeds and powers are shares of those at full speed."""

    time_constant_s: float
    rise_c: float  # above ambient, were it to work at full speed for ever
    limit_c: float
    release_c: float
    onset: float  # speed at the limit, once throttled
    slope: float  # of speed, for each degree above the limit
    slowest: float
    fixed_power: float  # share of the power that does not follow the speed
    idle_power: float = 0.03
    ambient_c: float = 25.0
    wander_c: float = 1.5  # of ambient, up and down in 15 to 40 minutes
    sensor_lag_s: float = 10.0
    sensor_noise_c: float = 0.3
    step_noise: float = 0.04
    says_nominal: bool = False  # its sensor says cool, whatever happens

    @property
    def throttles(self) -> bool:
        return self.ambient_c + self.rise_c > self.limit_c


PRESETS = {
    "phone": Preset(61, 60, 43, 41, 0.63, 0.10, 0.15, 0.35, wander_c=2.0, sensor_lag_s=15),
    "laptop": Preset(240, 120, 91, 86, 0.72, 0.04, 0.30, 0.25, sensor_lag_s=4),
    "desktop": Preset(120, 50, 95, 90, 0.70, 0.05, 0.40, 0.25, sensor_lag_s=4),
    "nominal": Preset(90, 75, 55, 51, 0.60, 0.05, 0.20, 0.30, says_nominal=True),
}


class Plant:
    """One machine of a kind, a little different for each seed.  `time_s` is its clock."""

    def __init__(self, preset: Preset, seed: int) -> None:
        self._random = random.Random(seed)
        vary = self._random.uniform
        self.preset = replace(
            preset,
            time_constant_s=preset.time_constant_s * vary(0.9, 1.1),
            rise_c=preset.rise_c * vary(0.93, 1.07),
            ambient_c=preset.ambient_c + vary(-2, 2),
        )
        self.phase, self.period_s = vary(0, 2 * math.pi), vary(900, 2400)
        self.temperature_c = self.sensed_c = self.preset.ambient_c
        self.throttled = False
        self.time_s = self.throttled_s = self.worked_s = 0.0
        self.done_s = 0.0  # work done, in seconds at full speed

    def clock(self) -> float:
        return self.time_s

    @property
    def speed(self) -> float:
        preset = self.preset
        if not self.throttled:
            return 1.0
        over_c = max(0.0, self.temperature_c - preset.limit_c)
        return max(preset.slowest, preset.onset - preset.slope * over_c)

    def work(self, full_s: float) -> float:
        """Does what takes so long at full speed; gives how long it took."""
        speed = self.speed
        seconds = full_s / speed * math.exp(self._random.gauss(0, self.preset.step_noise))
        self.throttled_s += seconds if self.throttled else 0.0
        self.worked_s += seconds
        self.done_s += full_s
        self._pass(self.preset.fixed_power + (1 - self.preset.fixed_power) * speed, seconds)
        return seconds

    def rest(self, seconds: float) -> None:
        while seconds > 0:
            self._pass(self.preset.idle_power, min(seconds, 1.0))
            seconds -= 1.0

    def ambient_c(self) -> float:
        preset = self.preset
        return preset.ambient_c + preset.wander_c * math.sin(self.phase + 2 * math.pi * self.time_s / self.period_s)

    def read_c(self) -> float:
        """What its sensor says."""
        return self.sensed_c + self._random.gauss(0, self.preset.sensor_noise_c)

    def _pass(self, power: float, seconds: float) -> None:
        preset = self.preset
        target_c = self.ambient_c() + preset.rise_c * power
        self.temperature_c = target_c + (self.temperature_c - target_c) * math.exp(-seconds / preset.time_constant_s)
        lag = math.exp(-seconds / preset.sensor_lag_s)
        self.sensed_c = self.temperature_c + (self.sensed_c - self.temperature_c) * lag
        self.time_s += seconds
        if self.temperature_c >= preset.limit_c:
            self.throttled = True
        elif self.temperature_c <= preset.release_c:
            self.throttled = False


class PlantSensors:
    """The plant's one sensor, or none."""

    def __init__(self, plant: Plant, *, gone: bool = False) -> None:
        self._plant = plant
        self._gone = gone

    def sense(self) -> Sensed:
        if self._gone:
            return Sensed()
        preset = self._plant.preset
        if preset.says_nominal:
            return Sensed((Reading("plant", Level.COOL, note="nominal"),))
        celsius = self._plant.read_c()
        return Sensed((Reading("plant", level(celsius, preset.limit_c, None), celsius, preset.limit_c),))

    def contention(self) -> Contention:
        return Contention()

    def supply(self) -> Supply:
        return Supply()


@dataclass(frozen=True, slots=True)
class Work:
    """What a device does at full speed: seconds of a step, and the steps that jobs make of it."""

    prefill_tokens_per_s: float = 1034.0
    step_s: float = 0.010
    row_s: float = 0.002

    def seconds(self, prefill_tokens: int, decoding_rows: int) -> float:
        decoding_s = self.step_s + self.row_s * decoding_rows if decoding_rows else 0.0
        return prefill_tokens / self.prefill_tokens_per_s + decoding_s


class Exact:
    """A step model that knows the device."""

    def __init__(self, work: Work | None = None) -> None:
        self._work = work or Work()

    def saw_step(self, done: cost.Work, seconds: float) -> None:
        pass

    def step_seconds(self, planned: cost.Work) -> float:
        return self._work.seconds(round(planned.tokens), round(planned.rows))


@dataclass(frozen=True, slots=True)
class BurstSeen:
    """One burst as the plant felt it."""

    began_s: float
    worked_s: float
    throttled_s: float
    level: str
    fired: str | None
    rest_s: float


@dataclass(frozen=True, slots=True)
class Driven:
    """An hour, or less, under a pacer.  `done`: jobs' work a second, 1 at full speed without a rest."""

    bursts: tuple[BurstSeen, ...]
    done: float

    @property
    def worst_throttled_s(self) -> float:
        """In any burst after the first three."""
        return max((burst.throttled_s for burst in self.bursts[3:]), default=0.0)


def done(prefill_tokens: int, rows: int) -> cost.Work:
    """A step as the engine describes it."""
    return cost.Work((prefill_tokens > 0) + (rows > 0), rows, prefill_tokens, 0, 0)


def drive(pacer: Pacer, plant: Plant, seconds: float = 3600.0, steps: Sequence[tuple[int, int]] = ()) -> Driven:
    """Works for so long as the pacer says, in steps of (prefill tokens, decoding rows) over and over.

    Jobs count only what a burst did: what probes did is lost to them.
    """
    work, jobs_s = Work(), 0.0
    steps = steps or [(200, 8), *[(0, 8)] * 13]
    seen: list[BurstSeen] = []

    def probe() -> Probe:
        tokens = [plant.work(work.seconds(0, 1)) for _ in range(PROBE_TOKENS)]
        return Probe(sorted(tokens)[PROBE_TOKENS // 2], sum(tokens))

    place = 0
    while plant.time_s < seconds:
        while left_s := pacer.rest_left(probe):
            plant.rest(left_s)
        began_s, throttled_s, done_s = plant.time_s, plant.throttled_s, plant.done_s
        pacer.open()
        while plant.time_s < seconds:
            prefill_tokens, rows = steps[place % len(steps)]
            place += 1
            pacer.saw_step(done(prefill_tokens, rows), plant.work(work.seconds(prefill_tokens, rows)))
            if pacer.draining or pacer.over(probe):
                break
        jobs_s += plant.done_s - done_s
        worked_s, throttled_s = plant.time_s - began_s, plant.throttled_s - throttled_s
        found = pacer.close(more=True)
        seen.append(
            BurstSeen(began_s, worked_s, throttled_s, found.heat["level"], found.heat["fired"], found.pace["rest_s"])
        )
    return Driven(tuple(seen), jobs_s / plant.time_s)


MakePacer = Callable[[Plant], Pacer]
