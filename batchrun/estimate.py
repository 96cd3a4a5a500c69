"""How long a run would take, without the model: `batchrun check --estimate`.

The scheduler is bookkeeping and needs no weights, so the jobs are walked through it as a run would: real prompts, real
prefixes, real widths.  Each step costs what `calibrate` measured such a step to cost; answers are as long as those of
the same schema were there, or, where none was seen, as long as they may be.  What a walk leaves out (masks, host,
forced runs, proposals) is made up for by what the calibration's own sample took, against a walk over it.  The governor
then lays bursts and rests.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import cycle
from typing import Any

from batchrun.backends.base import LoadPlan
from batchrun.capacity import DEFAULT_ROWS
from batchrun.config import Settings
from batchrun.core import Accepted, FinishReason, Limits, Outcome, Request
from batchrun.cost import Cost, work
from batchrun.device_profile import DeviceProfile, answer_key
from batchrun.heat import JOULES_PER_WH, Level
from batchrun.pacing import governor
from batchrun.prefix import Planned, plan
from batchrun.scheduler import Scheduler
from batchrun.step_fit import StepFit
from batchrun.width import Width
from batchrun.window import MOST_JOBS as WINDOW_JOBS

MOST_JOBS = 2000  # walked through the scheduler; more than that are counted like these


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a run would come to.  `guessed_jobs`: of a schema whose answers were never seen, taken at their budgets."""

    prompt_tokens: int
    computed_tokens: int
    answer_tokens: int
    bursts: int
    busy_s: float
    wall_s: float
    finish_at: datetime
    energy_wh: float | None
    energy_method: str
    guessed_jobs: int

    def as_json(self) -> dict[str, Any]:
        return {
            "prompt_tokens": self.prompt_tokens,
            "computed_tokens": self.computed_tokens,
            "answer_tokens": self.answer_tokens,
            "bursts": self.bursts,
            "busy_s": round(self.busy_s, 1),
            "wall_s": round(self.wall_s, 1),
            "duty": round(self.busy_s / self.wall_s, 3) if self.wall_s else None,
            "finish_at": self.finish_at.isoformat(timespec="seconds"),
            "energy_wh": None if self.energy_wh is None else round(self.energy_wh, 2),
            "energy_method": self.energy_method,
            "guessed_jobs": self.guessed_jobs,
        }

    def lines(self) -> list[str]:
        busy = "" if self.wall_s - self.busy_s < 1 else f", {self.busy_s / self.wall_s:.0%} of it at work"
        energy = (
            f"{self.energy_wh:.1f} Wh by {self.energy_method}" if self.energy_wh is not None else "not measured here"
        )
        said = [
            f"estimate: {self.computed_tokens} prompt tokens computed, about {self.answer_tokens} answer tokens",
            f"estimate: {_duration(self.wall_s)} in {self.bursts} bursts{busy}; done by {self.finish_at:%a %H:%M:%S}",
            f"estimate: energy {energy}",
        ]
        if self.guessed_jobs:
            said.append(f"estimate: {self.guessed_jobs} answers taken at their whole budget; calibrate with such jobs")
        return said


def estimate(
    requests: Sequence[Request], settings: Settings, load: LoadPlan, profile: DeviceProfile, now: datetime
) -> Estimate:
    """Walks the jobs through the scheduler at the profile's speeds."""
    walked = requests[:MOST_JOBS]
    scale = len(requests) / max(len(walked), 1)
    walk = _Walk(settings, load, profile)
    model_s = walk.run(walked) * scale
    busy_s = model_s * profile.overhead + profile.load_s
    bursts, wall_s = _paced(busy_s, settings, profile)
    return Estimate(
        prompt_tokens=sum(len(request.tokens) for request in requests),
        computed_tokens=round(walk.computed_tokens * scale),
        answer_tokens=round(walk.answer_tokens * scale),
        bursts=bursts,
        busy_s=busy_s,
        wall_s=wall_s,
        finish_at=now + timedelta(seconds=wall_s),
        energy_wh=None if profile.watts is None else profile.watts * busy_s / JOULES_PER_WH,
        energy_method=profile.energy_method,
        guessed_jobs=round(walk.guessed_jobs * scale),
    )


def walked_seconds(requests: Sequence[Request], settings: Settings, load: LoadPlan, profile: DeviceProfile) -> float:
    """Seconds in the model that a walk comes to, before what it leaves out is made up for (`overhead`)."""
    return _Walk(settings, load, profile).run(requests)


class _Unguided:
    """Stands for a grammar whose opening is known and whose answers are only counted."""

    def __init__(self, opening: tuple[int, ...]) -> None:
        self.opening = opening
        self.least_tokens = len(opening) + 1

    def start(self) -> "_Unguided":
        return self

    def accept(self, token: int, left: int) -> Accepted:
        return Accepted()

    def allows(self, tokens: Sequence[int]) -> int:
        return 0


class _Walk:
    """One run without a model."""

    def __init__(self, settings: Settings, load: LoadPlan, profile: DeviceProfile) -> None:
        slots = load.slots - load.probe_slots
        self._limits = Limits(slots, load.context, slots * load.context, load.batch, vocab=1)
        self._scheduler = Scheduler(self._limits, load.rows)
        self._cost = Cost()  # as the engine has one: what it learns shapes the steps
        self._width = Width(load.rows, DEFAULT_ROWS, fixed=settings.parallel is not None)
        self._share = settings.prefix
        self._fit: StepFit = profile.fit()
        self._seen: dict[str, Iterator[int]] = {key: cycle(tokens) for key, tokens in profile.answers.items() if tokens}
        self.computed_tokens = self.answer_tokens = self.guessed_jobs = 0

    def run(self, requests: Sequence[Request]) -> float:
        """Seconds in the model."""
        lengths: dict[int, int] = {}
        model_s = 0.0
        queue = list(requests)
        while queue or not self._scheduler.idle:
            if queue and not self._scheduler.waiting:
                self._submit(queue[:WINDOW_JOBS], lengths)
                del queue[:WINDOW_JOBS]
            model_s += self._step(lengths)
        return model_s

    def _submit(self, requests: Sequence[Request], lengths: dict[int, int]) -> None:
        stand_ins = []
        for request in requests:
            stand_in = replace(request, grammar=_Unguided(request.opening)) if request.grammar else request
            lengths[id(stand_in)] = self._length(request)
            stand_ins.append(stand_in)
        planned = plan(stand_ins, self._scheduler.resident, cut=True) if self._share else None
        self._scheduler.submit(planned or [Planned(request, None) for request in stand_ins])

    def _length(self, request: Request) -> int:
        """Tokens of its answer: one that was seen for this schema, else its whole budget."""
        seen = self._seen.get(answer_key(request.job))
        tokens = min(next(seen), request.job.max_tokens) if seen else request.job.max_tokens
        self.guessed_jobs += not seen
        self.answer_tokens += tokens
        return max(tokens, len(request.opening) + 1)

    def _step(self, lengths: dict[int, int]) -> float:
        step = self._scheduler.plan(self._cost.pace(self._limits.batch, self._width.rows))
        outcomes = [self._outcome(feed.slot, lengths) for feed in step.feeds if feed.sampling is not None]
        self._scheduler.commit(step, outcomes)
        if not step.feeds:
            return 0.0
        self.computed_tokens += step.prefill_tokens
        done = work(step.feeds)
        seconds = self._fit.guess_s(done) or 0.0
        self._cost.saw_step(done, seconds)
        if not step.prefill_tokens:
            tokens = sum(len(outcome.tokens) for outcome in outcomes)
            self._width.saw(step.decoding_rows, tokens, seconds, waiting=self._scheduler.waiting > 0)
        return seconds

    def _outcome(self, slot: int, lengths: dict[int, int]) -> Outcome:
        """One token more; the last ends the answer, as a stop token does that is no part of it."""
        sequence = self._scheduler.at(slot)
        done = sequence.completion_tokens >= lengths[id(sequence.request)]
        return Outcome(slot, () if done else (0,), FinishReason.STOP if done else None)


def _paced(busy_s: float, settings: Settings, profile: DeviceProfile) -> tuple[int, float]:
    """Bursts, and wall seconds with their rests, as this machine's governor lays them while nothing changes."""
    law = governor(settings, profile.known)
    level = Level.COOL if profile.known is None else Level.UNKNOWN  # nothing new is learned of a device that is known
    bursts, wall_s, left_s = 0, 0.0, busy_s
    while left_s > 0:
        worked_s = min(left_s, law.allowance.seconds)
        left_s -= worked_s
        rest_s = law.worked(worked_s, level) if left_s > 0 else 0.0
        law.rested(rest_s, level)
        bursts += 1
        wall_s += worked_s + rest_s
    return bursts, wall_s


def _duration(seconds: float) -> str:
    minutes, left_s = divmod(round(seconds), 60)
    if minutes < 1:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left_s} s"
