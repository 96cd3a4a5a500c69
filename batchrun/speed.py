"""Speed as a sensor: what a step should take while the machine is cool, against what it took.

It works everywhere and cannot be talked out of: a machine that throttles while its sensors say nominal is slow all the
same.  Two thermometers: every step against a model of steps that learns only while the machine is cool, and a probe,
the same few tokens every time, against the fastest probes seen.

A step that is slow for want of a processor or of memory is not hot.  Counters of such waiting (`Contention`) are
compared with the time lost; where they explain half of it, or a third of all time was waited (threads that wait for
each other lose far more than one of them waits), the cause is named and the level is UNKNOWN: not hot, and not cool
either.

Where a probe can be run between steps, steps alone raise a suspicion and the probe decides: a model of steps may be
wrong, and a machine that is shared wavers by a tenth.  Pure: seconds in, a verdict out; its clock is the work itself.
"""

import math
from collections.abc import Callable
from typing import NamedTuple, Protocol

from batchrun.cost import Work
from batchrun.heat import Contention, Level

SOFT, SOFT_S, SOFT_STEPS = 0.90, 1.5, 3  # slow if below this for so long, and for so many steps
HARD = 0.75  # slow at once
BACK = 0.95  # no longer slow
AVERAGED_S = 0.3  # of expected work: what the moving ratio looks back over
LEAST_RATIO = 0.4  # one step that stood still must not count for more
LEAST_STEP_S = 0.0005  # a shorter one measures the clock
SPREAD, SPREAD_WEIGHT = 0.1, 0.05  # how well steps of one kind must be predicted to count in full
FIRST_SPREAD = {False: 0.1, True: 0.25}  # until it was seen, by whether a prompt is in the step
PROBE_WEIGHT = 0.3  # of a faster probe in what a probe should take
LOOK_S = 0.25  # of work between two looks at the counters while all is well
ASK_S = 0.1  # of work between two questions to the counters while steps are slow
EXPLAINS = 0.5  # share of the time lost that a counter must account for
AMPLE = 0.35  # share of all time, waited, that leaves nothing to be said of the rest
SUSPECT_S = 1.0  # below SOFT for so long is worth a probe
FIRST_CREDIT_S, MOST_CREDIT_S = 3.0, 60.0  # of work that is not suspected after a probe found nothing


class StepModel(Protocol):
    """Predicts steps, and learns."""

    def saw_step(self, done: Work, seconds: float) -> None: ...

    def step_seconds(self, planned: Work) -> float | None:
        """None until fitted."""
        ...


class Speed(NamedTuple):
    """The verdict.  `ratio`: expected by measured seconds, 1 at full speed.  `cause`: what explains a slow one."""

    level: Level = Level.UNKNOWN
    ratio: float | None = None
    cause: str = ""


class SpeedSensor:
    """Follows one device.

    `contention`: the counters now, or None where their answer is late: then nothing is said of the cause until there is
    one.  `probe_s`: a probe's median token on this device while cool, where it is known.  `confirms`: whoever drives
    this runs a probe when it is `suspicious`.
    """

    def __init__(
        self,
        model: StepModel,
        contention: Callable[[], Contention | None] = Contention,
        probe_s: float | None = None,
        *,
        confirms: bool = False,
    ) -> None:
        self.suspicious = False  # steps are slow and nothing explains it: a probe should decide
        self._confirms = confirms
        self._credit_s, self._next_credit_s = 0.0, FIRST_CREDIT_S
        self._model = model
        self._contention = contention
        self._probe_s = probe_s
        self._spreads = dict(FIRST_SPREAD)  # mean error of predictions
        self._mark = contention() or Contention()
        self._ratio = 1.0
        self._slow = False
        self._below_s, self._below_steps = 0.0, 0  # how long the ratio was low
        self._seen_s = 0.0  # expected seconds of the steps that the ratio is of
        self._lost_s = self._since_look_s = self._asked_s = 0.0  # since the mark; of the last question
        self._level, self._cause = Level.UNKNOWN, ""

    @property
    def model(self) -> StepModel:
        """What it compares with."""
        return self._model

    @property
    def verdict(self) -> Speed:
        known = self._slow or self._seen_s >= AVERAGED_S
        return Speed(self._level, self._ratio if known else None, self._cause)

    def saw_step(self, done: Work, seconds: float) -> None:
        """Takes one step in.  `seconds`: in the backend, without masks."""
        expected_s = self._model.step_seconds(done)
        if seconds < LEAST_STEP_S:
            return
        if expected_s is None:
            if not self._slow:
                self._model.saw_step(done, seconds)
            return
        ratio = max(LEAST_RATIO, expected_s / seconds)
        gain = (1 - math.exp(-expected_s / AVERAGED_S)) * self._trust(done.tokens > 0, ratio)
        self._ratio += gain * (min(ratio, 1.1) - self._ratio)
        self._seen_s += expected_s
        self._lost_s += max(0.0, seconds - expected_s)
        self._credit_s = max(0.0, self._credit_s - seconds)
        self._judge(seconds)
        if not self._slow and ratio > LEAST_RATIO and (self._ratio >= BACK or self._credit_s):
            self._model.saw_step(done, seconds)

    def begin_probe(self) -> None:
        """A probe is about to run: what is waited for from now on is its own."""
        self._look()

    def is_slow(self, token_s: float) -> bool:
        """Whether a probe's median token is that of a slow machine."""
        return self._probe_s is not None and self._probe_s / token_s < SOFT

    def saw_probe(self, token_s: float, total_s: float) -> None:
        """Takes a probe in: the median seconds of its tokens, and all it took.  It replaces what steps have said.

        The first one of a machine that nothing is known of is what later ones are compared with, and says nothing.
        """
        first = self._probe_s is None
        self._ratio = self._compared(token_s)
        self._slow = self._ratio < (BACK if self._slow else SOFT)
        self._below_s, self._below_steps, self._seen_s = 0.0, 0, 0.0 if first else AVERAGED_S
        self.suspicious = False
        self._took(total_s)
        if self._slow:
            self._explain()
        else:
            self._cause = ""
            self._look()
        self._settle()

    def confirm(self, token_s: float | None = None, total_s: float = 0.0) -> None:
        """Takes in the probe that a suspicion asked for; without one the steps are believed.

        A probe does one row's work, which waits for memory more than a batch does: a hard fall of steps is believed
        where the probe is not at full speed either.
        """
        steps_ratio = self._ratio
        self._ratio = 0.0 if token_s is None else self._compared(token_s)
        self._slow = self._ratio < (BACK if steps_ratio < HARD else SOFT)
        self._below_s, self._below_steps, self.suspicious = 0.0, 0, False
        if self._slow:
            self._ratio = steps_ratio if token_s is None else min(self._ratio, steps_ratio)
            self._next_credit_s = FIRST_CREDIT_S
            self._took(total_s)
            self._explain()
        else:
            self._credit_s = self._next_credit_s
            self._next_credit_s = min(MOST_CREDIT_S, 2 * self._next_credit_s)
            self._look()
        self._settle()

    def rebase(self) -> None:
        """What was slow is normal now: rest did not help, so it is not heat.  Everything is learned anew."""
        self._model = type(self._model)()
        self._probe_s = None
        self.forget()

    def forget(self) -> None:
        """What was said of the speed is past: the next steps say it anew."""
        self._ratio, self._slow, self._seen_s = 1.0, False, 0.0
        self._below_s, self._below_steps, self.suspicious = 0.0, 0, False
        self._look()
        self._level, self._cause = Level.UNKNOWN, ""

    def _trust(self, prompts: bool, ratio: float) -> float:
        """How far a step counts: kinds of steps that are predicted badly say little."""
        spread = self._spreads[prompts]
        self._spreads[prompts] = spread + SPREAD_WEIGHT * (abs(math.log(ratio / self._ratio)) - spread)
        return min(1.0, (SPREAD / max(spread, 1e-9)) ** 2)

    def _judge(self, seconds: float) -> None:
        self._since_look_s += seconds
        below = self._ratio < SOFT
        self._below_s, self._below_steps = (self._below_s + seconds, self._below_steps + 1) if below else (0.0, 0)
        if self._ratio >= BACK:
            self._slow, self._cause, self.suspicious = False, "", False
            if self._may_ask(LOOK_S):
                self._look()
        elif self._may_ask(SOFT_S) if self._slow else self._falls(below=below):
            self._blame()
        self._settle()

    def _falls(self, *, below: bool) -> bool:
        """Whether it has become slow.  What counters explain is not heat, and need not be watched for long."""
        if self._credit_s:
            return False
        for_s = SUSPECT_S if self._confirms else SOFT_S
        if self._ratio < HARD or (self._below_s >= for_s and self._below_steps >= SOFT_STEPS):
            return True
        if not below or not self._may_ask(LOOK_S):
            return False
        self._asked_s = self._since_look_s
        return self._explanation(self._contention()) not in ("heat", "")

    def _may_ask(self, after_s: float) -> bool:
        """Whether it is time to ask the counters: so long after the last look, and not with every step from then on."""
        return self._since_look_s >= max(after_s, self._asked_s + ASK_S)

    def _took(self, probe_s: float) -> None:
        """A probe is part of the time to be explained."""
        self._lost_s += probe_s * (1 - self._ratio)
        self._since_look_s += probe_s

    def _compared(self, token_s: float) -> float:
        """A probe against the fastest ones, towards which what is expected of it moves."""
        reference_s = token_s if self._probe_s is None else self._probe_s
        self._probe_s = reference_s + PROBE_WEIGHT * min(0.0, token_s - reference_s)
        return min(1.0, self._probe_s / token_s)

    def _settle(self) -> None:
        known = self._seen_s >= AVERAGED_S
        if self._slow:
            self._level = Level.HOT if self._cause == "heat" else Level.UNKNOWN
        else:
            self._level = Level.UNKNOWN if not known else Level.COOL if self._ratio >= BACK else Level.WARM

    def _explain(self) -> None:
        """Names what the time since the last look was lost to."""
        now = self._contention()
        self._cause = self._explanation(now)
        self._mark_at(now)

    def _blame(self) -> None:
        """Steps are slow: names why.  Heat that steps alone speak of waits for a probe, where there is one."""
        confirmed = self._cause == "heat"
        self._explain()
        self.suspicious = self._confirms and self._cause == "heat" and not confirmed
        self._slow = not self.suspicious
        self._cause = "" if self.suspicious else self._cause

    def _explanation(self, now: Contention | None) -> str:
        """What explains the time lost; nothing where the counters do not answer, and heat where they do not explain."""
        if now is None:
            return ""
        enough_s = min(EXPLAINS * self._lost_s, AMPLE * self._since_look_s)
        return next((name for name, waited_s in waits(self._mark, now) if waited_s >= enough_s), "heat")

    def _look(self) -> None:
        self._mark_at(self._contention())

    def _mark_at(self, now: Contention | None) -> None:
        """The time to be explained begins now; it goes on where the counters do not answer."""
        if now is None:
            self._asked_s = self._since_look_s
        else:
            self._mark, self._lost_s, self._since_look_s, self._asked_s = now, 0.0, 0.0, 0.0


def waits(before: Contention, after: Contention) -> list[tuple[str, float]]:
    """What was waited for between two moments, by name, in the order in which it explains.

    Pressure counts any task that waits: for another process, for another thread of our own, or for a quota.  Nobody
    waits for other processes longer than those ran, so of neighbours it speaks no further than that; and not at all
    while a quota holds tasks back.
    """
    quota_s, pressed_s = _grown(before.quota_s, after.quota_s), _grown(before.pressure_s, after.pressure_s)
    others_s = _grown(before.others_s, after.others_s)
    if quota_s:
        neighbours_s, quota_s = 0.0, max(quota_s, pressed_s, others_s)
    else:
        known = before.others_s is not None and after.others_s is not None
        neighbours_s = max(others_s, min(pressed_s, others_s * after.processors) if known else pressed_s)
    found = (
        ("quota", quota_s),
        ("memory", _grown(before.stall_s, after.stall_s)),
        ("host", _grown(before.steal_s, after.steal_s)),
        ("neighbours", neighbours_s),
        ("power", _grown(before.power_s, after.power_s)),
    )
    return [(name, waited_s) for name, waited_s in found if waited_s > 0]


def _grown(before_s: float | None, after_s: float | None) -> float:
    """By how much a counter grew; 0 where it cannot be read."""
    return 0.0 if before_s is None or after_s is None else max(0.0, after_s - before_s)
