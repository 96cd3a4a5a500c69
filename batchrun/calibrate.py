"""`batchrun calibrate`: measures one device with one model, and keeps what it found for `run` and `check --estimate`.

Real steps of the real engine, on a sample of the user's jobs or on generated ones: cool speeds first, then the duty
sweep.
"""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from itertools import cycle
from pathlib import Path
from statistics import median

from batchrun.assembly import Parts, job_reader, open_parts, open_worker, original_identity, slot_plan
from batchrun.backends.base import LoadPlan
from batchrun.bench.workloads import build
from batchrun.config import Settings
from batchrun.cooling import wait_until_cool
from batchrun.core import Completion, Job, Rejection, Request
from batchrun.cost import Work
from batchrun.device_profile import DeviceProfile, Key, answer_key, save
from batchrun.duty_sweep import QUICK, Plan, Swept, Worked, sweep
from batchrun.errors import InputError, JobError, UsageError
from batchrun.estimate import walked_seconds
from batchrun.governor import Allowance
from batchrun.heat import Level, Sensed
from batchrun.inputs import inputs
from batchrun.pacer import Sensors
from batchrun.profile import machine_name
from batchrun.source import all_lines
from batchrun.speed import SpeedSensor
from batchrun.step_fit import StepFit
from batchrun.worker import Worker

SAMPLE, QUICK_SAMPLE = 24, 12  # jobs of each file
PROBES = 5
ANSWERS_KEPT = 64  # of one schema
DEPTH_TOKENS = 256  # in a row, for the speeds that are shown

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Calibrated:
    """The profile, and where it lies."""

    profile: DeviceProfile
    path: Path


def calibrate(
    settings: Settings, jobs: Sequence[Path], sensors: Sensors, launcher: str, say: Say, *, quick: bool
) -> Calibrated:
    """Measures and keeps a profile.  Raises InputError for a file without jobs, UsageError on the fake engine."""
    if settings.engine == "fake":
        raise UsageError("calibrate measures a real engine; --engine fake has no speed to find")
    waited_s, how = wait_until_cool(sensors.sense, time.sleep)
    say(f"begins after {waited_s:.0f} s: {how}")
    parts = open_parts(settings)
    try:
        requests = sample_requests(parts, jobs, QUICK_SAMPLE if quick else SAMPLE)
        load = slot_plan(parts, max(request.need_tokens for request in requests), probes=True)
        began_s = time.monotonic()
        speed = SpeedSensor(StepFit(), sensors.contention, confirms=True)
        worker = open_worker(parts, load, time.monotonic, lambda: False, lambda: False, speed.saw_step, say)
        load_s = time.monotonic() - began_s
        try:
            rig = Rig(worker, speed, requests, time.monotonic, time.sleep)
            found = _measured(rig, QUICK if quick else Plan(), sensors, say)
        finally:
            worker.close()
    finally:
        parts.model.close()
    supply = sensors.supply().source
    profile = found.profile(parts, load, load_s, supply.value, launcher)
    profile = replace(profile, overhead=overhead(found.sample_s, requests, settings, load, profile))
    return Calibrated(profile, save(Key(original_identity(settings), supply, launcher), profile))


def overhead(
    sample_s: float, requests: Sequence[Request], settings: Settings, load: LoadPlan, profile: DeviceProfile
) -> float:
    """What a walk over the sample must be multiplied with to come to the time that it took."""
    walked_s = walked_seconds(requests, settings, load, profile)
    return round(sample_s / walked_s, 4) if walked_s else 1.0


class Rig:
    """A worker with jobs that never run out: what the duty sweep experiments on."""

    def __init__(
        self,
        worker: Worker,
        speed: SpeedSensor,
        requests: Sequence[Request],
        clock: Callable[[], float],
        sleep: Callable[[float], object],
    ) -> None:
        self._worker, self._speed = worker, speed
        self._requests = list(requests)
        self._endless: Iterator[Request] = cycle(requests)
        self._clock, self._sleep = clock, sleep

    @property
    def fit(self) -> StepFit:
        model = self._speed.model
        assert isinstance(model, StepFit), "a rig is built on a fit"
        return model

    def run_once(self) -> tuple[list[Completion], float]:
        """The sample from its beginning to its end, as a run would do it.  Gives the seconds that took, too."""
        self._worker.begin(1, Allowance(1e9, 0.0))
        self._submit(self._requests)
        completions = []
        while not self._worker.idle:
            completions += self._worker.step()
        return completions, self._worker.end(0.0).seconds["wall"]

    def work(self, seconds: float, *, until_slow: bool) -> Worked:
        began_s, slow_after_s = self._clock(), None
        while (worked_s := self._clock() - began_s) < seconds:
            if not self._worker.waiting:
                self._submit([replace(next(self._endless)) for _ in self._requests])
            self._worker.step()
            if self._speed.suspicious:
                self._speed.confirm(*(self._worker.probe() or ()))
            if slow_after_s is None and self._speed.verdict.level >= Level.HOT:
                slow_after_s = worked_s
                if until_slow:
                    break
        return Worked(self._clock() - began_s, slow_after_s, self._speed.verdict.ratio)

    def _submit(self, requests: Sequence[Request]) -> None:
        self._worker.take(self._worker.plan(requests, long_first=False))

    def rest(self, seconds: float) -> None:
        self._sleep(seconds)

    def probe(self) -> Level:
        self.probe_token_s()
        return self._speed.verdict.level

    def probe_token_s(self) -> float | None:
        """One probe's median token; None where there is no slot for it."""
        self._speed.begin_probe()
        seen = self._worker.probe()
        if seen is None:
            self._speed.forget()
            return None
        self._speed.saw_probe(*seen)
        return seen.token_s


@dataclass(frozen=True, slots=True)
class _Measured:
    """All figures of one calibration."""

    swept: Swept
    fit: StepFit
    probe_s: float | None
    sample_s: float
    watts: float | None
    energy_method: str
    answers: dict[str, list[int]]

    def profile(self, parts: Parts, load: LoadPlan, load_s: float, supply: str, launcher: str) -> DeviceProfile:
        batch = parts.settings.batch_tokens
        prompt_s = self.fit.guess_s(Work(1, 0, batch, 0, batch * batch / 2000))
        widths = [width for width in (1, 2, 4, 8, 16, 32, 64) if width < load.rows] + [load.rows]
        speeds = {str(width): self.fit.guess_s(Work(1, width, 0, width * DEPTH_TOKENS / 1000, 0)) for width in widths}
        return DeviceProfile(
            machine=machine_name(),
            measured_on=date.today().isoformat(),
            model=parts.model.card.name,
            supply=supply,
            launcher=launcher,
            rows=load.rows,
            threads=load.threads,
            load_s=round(load_s, 2),
            probe_s=self.probe_s,
            prefill_tokens_per_s=round(batch / prompt_s, 1) if prompt_s else None,
            decode_tokens_per_s={width: round(int(width) / step_s, 1) for width, step_s in speeds.items() if step_s},
            steps=self.fit.as_record(),
            overhead=1.0,
            budget_s=self.swept.budget_s,
            recover_s=self.swept.recover_s,
            throttled=self.swept.throttled,
            duty=round(self.swept.duty, 3),
            watts=self.watts,
            energy_method=self.energy_method,
            answers=self.answers,
        )


def _measured(rig: Rig, plan: Plan, sensors: Sensors, say: Say) -> _Measured:
    probes = [seconds for _ in range(PROBES) if (seconds := rig.probe_token_s())]
    say("running a sample of the jobs for their speeds")
    completions, sample_s = rig.run_once()
    answers: dict[str, list[int]] = {}
    for completion in completions:
        answers.setdefault(answer_key(completion.request.job), []).append(completion.usage.completion_tokens)
    say(f"{len(completions)} jobs run for their speeds")
    before = sensors.sense()
    swept = sweep(rig, plan, say)
    watts = _watts(before, sensors.sense(), swept.worked_s) if swept.budget_s is None else None
    return _Measured(
        swept,
        rig.fit,
        median(probes) if probes else None,
        sample_s,
        watts,
        before.energy.method,
        {name: tokens[:ANSWERS_KEPT] for name, tokens in answers.items()},
    )


def _watts(before: Sensed, after: Sensed, seconds: float) -> float | None:
    """Mean power over work without a rest; None where nothing measures it."""
    if before.energy.joules is None or after.energy.joules is None or not seconds:
        return None
    return round((after.energy.joules - before.energy.joules) / seconds, 1)


def sample_requests(parts: Parts, jobs: Sequence[Path], count: int) -> list[Request]:
    """So many jobs of each file, evenly spread, or generated ones.  Raises InputError for a file without jobs."""
    if not jobs:
        records = [*build("research", 0, count // 2).records, *build("classify", 0, count // 2).records]
        reader = job_reader(parts.settings, None)
        return _requests(parts, [reader.read(json.dumps(record).encode(), n) for n, record in enumerate(records, 1)])
    requests: list[Request] = []
    for path in jobs:
        source = inputs((str(path),), line_bytes=parts.settings.line_bytes).source()
        reader = job_reader(parts.settings, path)
        found = _requests(parts, [reader.read_line(line) for line in all_lines(source)])
        if not found:
            raise InputError(f"{path} holds no jobs to calibrate with")
        step = max(1, len(found) // count)
        requests += found[::step][:count]
    return requests


def _requests(parts: Parts, items: Sequence[Job | Rejection]) -> list[Request]:
    """Of the jobs among them that can run."""
    requests = []
    for job in items:
        if not isinstance(job, Job):
            continue
        try:
            request = parts.preparer.prepare(job, "", time.monotonic())
        except JobError:
            continue
        if request.need_tokens <= parts.model.card.context_train:
            requests.append(request)
    return requests


def lines(found: Calibrated) -> list[str]:
    """The profile as a person reads it."""
    profile = found.profile
    speeds = ", ".join(f"{speed:g} at {rows}" for rows, speed in profile.decode_tokens_per_s.items())
    said = [
        f"device: {profile.model} on {profile.supply}, started by {profile.launcher}, {profile.threads} threads",
        f"cool speeds: {profile.prefill_tokens_per_s} prompt tokens/s; answer tokens/s by rows: {speeds}",
    ]
    if profile.budget_s is None:
        said.append("heat: did not throttle; it may work without a rest")
    else:
        back = "not seen to recover" if profile.recover_s is None else f"back after {profile.recover_s:.0f} s of rest"
        said.append(
            f"heat: throttles after {profile.budget_s:.0f} s, {back}; full speed {profile.duty:.0%} of the time"
        )
        if profile.throttled is not None and profile.throttled > profile.duty:
            said.append(
                f"throttled it still did {profile.throttled:.0%} of its full speed: if heat does not matter to you, "
                "--rest-seconds 0 does more"
            )
    power = "not measured here" if profile.watts is None else f"{profile.watts:.0f} W by {profile.energy_method}"
    return [*said, f"power: {power}", f"kept in {found.path}"]
