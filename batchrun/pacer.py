"""Keeps a run's pace: asks sensors and speed, tells the governor, and says when a burst ends and a rest is over.

The governor decides, the runner waits and steps; between the two this keeps the time.  What it saw of each burst goes
into that burst's stats.
"""

from collections.abc import Callable
from typing import Protocol

from batchrun.conditions import Conditions, Pace, conditions
from batchrun.cost import Work
from batchrun.glance import PaceNow
from batchrun.governor import Allowance, Governor
from batchrun.heat import Contention, Level, Sensed, Supply
from batchrun.probe import Probe
from batchrun.speed import Speed, SpeedSensor
from batchrun.trust import Trust

LOOK_EVERY_S = 1.0
PROBE_SHARE = 0.005  # of working time that probes may take while it is not hot
FIRST_PROBE_S = 3.0  # of work before the first one: no machine is hot by then, and shorter runs need none
CRITICAL_PATIENCE_S = 1800.0
SHORT_REST_S = 10.0  # one that the machine is kept awake through
CURE_S = 100.0  # of rest that would have cured heat
UNDOES = 10.0  # seconds of such rest that one second of work undoes


class Sensors(Protocol):
    """Whoever can be asked."""

    def sense(self) -> Sensed: ...

    def contention(self) -> Contention | None: ...

    def supply(self) -> Supply:
        """Where the current comes from; waits for a first answer."""
        ...


class Blind:
    """Sensors of a run that looks at none: all is unknown."""

    def sense(self) -> Sensed:
        return Sensed()

    def contention(self) -> Contention:
        return Contention()

    def supply(self) -> Supply:
        return Supply()


class Awake(Protocol):
    """Keeps the machine from falling asleep while it is held."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Pacer:
    """One run's pace.  `clock`: monotonic seconds."""

    def __init__(
        self,
        governor: Governor,
        clock: Callable[[], float],
        sensors: Sensors,
        speed: SpeedSensor | None = None,
        awake: Awake | None = None,
        launcher: str = "",
    ) -> None:
        self._governor = governor
        self._clock = clock
        self._sensors = sensors
        self._speed = speed
        self._awake = awake
        self._launcher = launcher
        self._trust = Trust()
        self._looked_s = self._idle_since_s = self._rest_until_s = clock()
        self._critical_since_s: float | None = None
        self._sensed = sensors.sense()
        self._before = self._sensed
        self._began_s: float | None = None
        self._first_is_due = True  # there was no probe yet
        self._worked_since_probe_s = self._probe_s = 0.0  # what the last one took
        self._rested_s = 0.0  # before the burst that runs
        self._cure_s = 0.0  # rested, less what work undid
        self._fired = ""  # what ended the burst
        self._rest_why = ""
        self.draining = False  # critically hot: nothing more is admitted, what runs may end

    # -- what is known now

    @property
    def allowance(self) -> Allowance:
        return self._governor.allowance

    @property
    def cuts(self) -> bool:
        """Whether it ends bursts with rows in them, which then run on in the next."""
        return self._governor.probes

    @property
    def left_s(self) -> float:
        """Of the burst that runs."""
        assert self._began_s is not None, "a burst runs"
        return max(0.0, self._governor.allowance.seconds - (self._clock() - self._began_s))

    @property
    def probes(self) -> bool:
        """Whether a slot for probes is wanted."""
        return self._governor.probes and self._speed is not None

    @property
    def verdict(self) -> Speed:
        return self._speed.verdict if self._speed else Speed()

    @property
    def level(self) -> Level:
        """The worst of sensors and speed."""
        return max(self._trust.worst(self._sensed.readings).level, self.verdict.level)

    def glance(self) -> PaceNow:
        now_s, began_s = self._clock(), self._began_s
        return PaceNow(
            worked_s=None if began_s is None else now_s - began_s,
            allowed_s=self._governor.allowance.seconds,
            rest_s=0.0 if began_s is not None else max(0.0, self._rest_until_s - now_s),
            why=self._rest_why,
            level=self.level,
            reading=self._trust.worst(self._sensed.readings),
            speed=self.verdict,
        )

    @property
    def gives_up(self) -> str:
        """Why a run should not wait any longer, or nothing."""
        since_s = self._critical_since_s
        if since_s is None or self._clock() - since_s < CRITICAL_PATIENCE_S:
            return ""
        return f"critically hot for {CRITICAL_PATIENCE_S / 60:.0f} minutes"

    # -- a burst

    def open(self) -> None:
        """A burst begins."""
        self._look(now=True)
        now_s = self._clock()
        self._before, self._began_s, self._fired = self._sensed, now_s, ""
        if self._awake:
            self._awake.hold()

    def saw_step(self, done: Work, seconds: float) -> None:
        if self._speed:
            self._speed.saw_step(done, seconds)

    def over(self, probe: Callable[[], Probe | None]) -> bool:
        """Whether the burst must end at this token boundary.  Runs a probe where steps alone are slow."""
        assert self._began_s is not None, "a burst runs"
        self._look()
        worked_s = self._clock() - self._began_s
        if self._speed and self.probes and self._first_is_due and self._first_is_paid(worked_s):
            self._run(probe, self._speed)
        if self._speed and self._speed.suspicious:
            self._speed.confirm(*(probe() or ()))
        level = self.level
        if level is Level.CRITICAL:
            self.draining = True
        if self.draining:
            return False
        over = self._governor.over(self._clock() - self._began_s, level)
        if over and level >= Level.HOT:
            self._fired = self._hottest
        return over

    def close(self, *, more: bool, ready: bool = True) -> Conditions:
        """The burst ended; `more` says whether another is to come, which a rest would part from it, and `ready`
        whether there is something to do now: a machine that waits for input may sleep."""
        assert self._began_s is not None, "a burst ran"
        self._look(now=True)
        level, now_s = self.level, self._clock()
        if level >= Level.HOT:
            self._fired = self._fired or self._hottest
        worked_s = now_s - self._began_s
        rest_s = self._governor.worked(worked_s, level, slow=self.verdict.level >= Level.HOT)
        rest_s = rest_s if more else 0.0
        pace = self._pace(worked_s, rest_s, level)
        self._rest_why = pace.why
        seen = conditions(pace, self._before, self._sensed)
        self._trust.judge(self._sensed.readings, self.verdict)
        self._worked_since_probe_s += worked_s
        self._began_s, self._idle_since_s, self._rest_until_s = None, now_s, now_s + rest_s
        self._rested_s, self._cure_s = 0.0, max(0.0, self._cure_s - UNDOES * worked_s)
        self.draining = False
        if self._awake and (rest_s > SHORT_REST_S or not ready):
            self._awake.release()
        return seen

    # -- a rest

    def rest_left(self, probe: Callable[[], Probe | None]) -> float:
        """Seconds of rest that are still due before a burst may begin; 0 when it may.  Runs a probe where one is."""
        now_s = self._clock()
        if now_s < self._rest_until_s:
            return self._rest_until_s - now_s
        rested_s = now_s - self._idle_since_s
        self._rested_s += rested_s
        self._cure_s += rested_s
        if self._speed and self.probes and self._probe_is_due:
            self._run(probe, self._speed)
        self._look(now=True)
        before = self.level
        more_s = self._governor.rested(rested_s, before, slow=self.verdict.level >= Level.HOT)
        self._trust.judge(self._sensed.readings, self.verdict, self._rested_s)
        if not more_s and self._cure_s >= CURE_S and self._speed and self.verdict.cause == "heat":
            self._speed.rebase()  # so much rest would have cured heat; what a user's own law allows may not
            self._cure_s = 0.0
        self._idle_since_s = self._clock()
        self._rest_until_s = self._idle_since_s + more_s
        self._rest_why = self._why(more_s, before)
        return more_s

    def finish(self) -> None:
        """The run ends."""
        if self._awake:
            self._awake.release()

    @property
    def _probe_is_due(self) -> bool:
        """Always where it can end a rest: something says hot, and speed does not deny it; else when it is paid for."""
        if self.level >= Level.HOT and self.verdict.level is not Level.COOL:
            return True
        paid = self._probe_s <= PROBE_SHARE * self._worked_since_probe_s
        return self._first_is_paid() if self._first_is_due else paid

    def _first_is_paid(self, worked_s: float = 0.0) -> bool:
        """`worked_s`: in the burst that runs."""
        return self._worked_since_probe_s + worked_s >= FIRST_PROBE_S

    def _run(self, probe: Callable[[], Probe | None], speed: SpeedSensor) -> None:
        """Runs one, and another if it is slow out of the blue: chance makes a probe slower and never faster."""
        surprise = speed.verdict.level < Level.HOT
        self._first_is_due = False
        speed.begin_probe()
        seen = probe()
        if seen is None:
            speed.forget()
            return
        took_s = seen.total_s
        if surprise and speed.is_slow(seen.token_s) and (again := probe()):
            took_s += again.total_s
            seen = min(seen, again)
        self._worked_since_probe_s, self._probe_s = 0.0, took_s
        if self._began_s is None:  # else it is part of the burst
            self._governor.heated(took_s)
        speed.saw_probe(*seen)

    # -- sensors

    def _look(self, *, now: bool = False) -> None:
        now_s = self._clock()
        if now or now_s - self._looked_s >= LOOK_EVERY_S:
            self._looked_s = now_s
            self._sensed = self._sensors.sense()
            critical = self._trust.worst(self._sensed.readings).level is Level.CRITICAL
            self._critical_since_s = (self._critical_since_s or now_s) if critical else None

    @property
    def _hottest(self) -> str:
        """What says that it is hot: a sensor, or speed."""
        reading = self._trust.worst(self._sensed.readings)
        return reading.source if reading.level >= self.verdict.level else "speed"

    def _pace(self, worked_s: float, rest_s: float, level: Level) -> Pace:
        return Pace(
            before=self._trust.worst(self._before.readings),
            after=self._trust.worst(self._sensed.readings),
            level=level,
            fired=self._fired,
            speed=self.verdict,
            allowance=self._governor.allowance,
            worked_s=worked_s,
            rested_s=self._rested_s,
            rest_s=rest_s,
            why=self._why(rest_s, level),
            launcher=self._launcher,
        )

    def _why(self, rest_s: float, level: Level) -> str:
        """Why so long a rest follows."""
        if not rest_s:
            return "no rest"
        if not self._governor.probes:
            return "as set"
        if level >= Level.HOT:
            return f"{level.word}: {self._fired}"
        return "heat unknown" if level is Level.UNKNOWN else "to stay below the limit"
