"""What `batchrun calibrate` found of one device: cool speeds, seconds to throttle and to recover, the duty that lasts.

Kept in the user's state folder, apart by model, power source and launcher: a laptop on battery, or a job under a
scheduler, is another device as far as speed goes.  A run takes a profile up only on the machine, with the weights and
with the threads that it was measured with.
"""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from batchrun.core import Job
from batchrun.governor import Known
from batchrun.heat import Power
from batchrun.profile import keep, machine_name
from batchrun.step_fit import StepFit

FREE_TEXT = "free text"


def answer_key(job: Job) -> str:
    """What answers of a job are known by: its schema's name and a digest of its text."""
    if job.schema is None:
        return FREE_TEXT
    return f"{job.schema.name} {hashlib.sha256(job.schema.text.encode()).hexdigest()[:8]}"


@dataclass(frozen=True, slots=True)
class Key:
    """Which device.  `identity`: of the weights as they came."""

    identity: str
    supply: Power
    launcher: str


@dataclass(frozen=True, slots=True)
class DeviceProfile:
    """One device.  Seconds; None for what never happened or could not be measured.

    `budget_s` of full work from cold until it throttled, `recover_s` of rest until it was back, `throttled` its share
    of full speed in between.  `answers`: tokens of the answers seen, by `answer_key`.
    """

    machine: str
    measured_on: str  # a date
    model: str
    supply: str
    launcher: str
    rows: int
    threads: int
    load_s: float
    probe_s: float | None
    prefill_tokens_per_s: float | None
    decode_tokens_per_s: dict[str, float]  # by rows
    steps: dict[str, Any]
    overhead: float  # seconds that the sample took, for each that a walk over it comes to
    budget_s: float | None
    recover_s: float | None
    throttled: float | None
    duty: float
    watts: float | None
    energy_method: str
    answers: dict[str, list[int]] = field(default_factory=dict)

    @property
    def known(self) -> Known | None:
        """What a governor may start from."""
        return None if self.budget_s is None else Known(self.budget_s, self.duty)

    def fit(self) -> StepFit:
        """Its cool speeds.  Raises ValueError where they are damaged."""
        return StepFit.from_record(self.steps)


def profile_path(key: Key) -> Path:
    folder = platformdirs.user_state_path("batchrun") / "devices" / key.identity[:32]
    return folder / f"{key.supply.value}-{key.launcher}.json"


def load(key: Key) -> DeviceProfile | None:
    """The profile of a device on this machine, if there is a usable one."""
    try:
        found = DeviceProfile(**json.loads(profile_path(key).read_text(encoding="utf-8")))
        found.fit()
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if found.machine == machine_name() else None


def save(key: Key, profile: DeviceProfile) -> Path:
    """Keeps a profile.  Raises OutputError where that fails."""
    return keep(profile_path(key), asdict(profile))
