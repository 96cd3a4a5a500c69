"""What calibrate finds of a device, where it is kept, and what it lets a run and an estimate know beforehand."""

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from heated import HeatedModel, documents, run, without_rest
from plant import PRESETS, Exact, Plant, Work, done
from shell import batchrun, write_jobs

from batchrun.assembly import Parts
from batchrun.backends.base import LoadPlan
from batchrun.calibrate import Rig, overhead, sample_requests
from batchrun.config import Settings
from batchrun.device_profile import DeviceProfile, Key, answer_key, load, profile_path, save
from batchrun.duty_sweep import QUICK, Plan, Swept, Worked, sweep
from batchrun.errors import InputError
from batchrun.estimate import estimate
from batchrun.governor import Bounds, FixedGovernor, HeatGovernor, Known
from batchrun.heat import Level, Power
from batchrun.pacing import governor
from batchrun.profile import machine_name
from batchrun.speed import SpeedSensor
from batchrun.step_fit import StepFit

NOON = datetime(2026, 11, 30, 12, 0)
KEY = Key("0123456789abcdef", Power.MAINS, "terminal")


def silent(text: str) -> None:
    pass


def profile(**known: Any) -> DeviceProfile:
    """A device that did not throttle, unless it is said otherwise."""
    values: dict[str, Any] = {
        "machine": machine_name(),
        "measured_on": "2026-11-30",
        "model": "toy",
        "supply": "mains",
        "launcher": "terminal",
        "rows": 8,
        "threads": 2,
        "load_s": 0.0,
        "probe_s": 0.01,
        "prefill_tokens_per_s": 1000.0,
        "decode_tokens_per_s": {"8": 300.0},
        "steps": {},
        "overhead": 1.0,
        "budget_s": None,
        "recover_s": None,
        "throttled": None,
        "duty": 1.0,
        "watts": None,
        "energy_method": "none",
    }
    return DeviceProfile(**(values | known))


# -- the experiment


class PlantDevice:
    """A simulated machine to experiment on."""

    def __init__(self, preset: str, seed: int) -> None:
        self.plant = Plant(PRESETS[preset], seed)
        self._speed = SpeedSensor(Exact())
        self.probe()  # what later ones are compared with

    def work(self, seconds: float, *, until_slow: bool) -> Worked:
        began_s, slow_after_s, step_s = self.plant.time_s, None, Work().seconds(0, 8)
        while (worked_s := self.plant.time_s - began_s) < seconds:
            self._speed.saw_step(done(0, 8), self.plant.work(step_s))
            if slow_after_s is None and self._speed.verdict.level >= Level.HOT:
                slow_after_s = worked_s
                if until_slow:
                    break
        return Worked(self.plant.time_s - began_s, slow_after_s, self._speed.verdict.ratio)

    def rest(self, seconds: float) -> None:
        self.plant.rest(seconds)

    def probe(self) -> Level:
        tokens = sorted(self.plant.work(0.012) for _ in range(16))
        self._speed.saw_probe(tokens[8], sum(tokens))
        return self._speed.verdict.level


@pytest.mark.parametrize("seed", range(3))
def test_a_phone_s_budget_recovery_and_duty_are_found(seed: int) -> None:
    found = sweep(PlantDevice("phone", seed), Plan(), silent)
    assert found.budget_s == pytest.approx(22, abs=7)
    assert found.throttled
    assert found.throttled < 0.7
    assert found.recover_s
    assert 0.15 < found.duty < 0.4  # 15 to 20 seconds of full speed a minute


def test_a_quick_sweep_finds_a_phone_s_limit_too() -> None:
    found = sweep(PlantDevice("phone", 1), replace(QUICK, first_s=30.0), silent)
    assert found.budget_s
    assert 0.1 < found.duty < 0.5


def test_a_desktop_is_found_to_need_no_rest_and_is_not_made_to_take_any() -> None:
    device = PlantDevice("desktop", 0)
    assert sweep(device, Plan(), silent) == Swept(pytest.approx(300, abs=1))
    assert device.plant.time_s == device.plant.worked_s


def test_a_moment_s_slowness_that_passes_under_work_is_not_heat() -> None:
    class Disturbed(PlantDevice):
        def work(self, seconds: float, *, until_slow: bool) -> Worked:
            return super().work(seconds, until_slow=until_slow)._replace(slow_after_s=7.0 if until_slow else None)

    assert sweep(Disturbed("desktop", 0), QUICK, silent).budget_s is None


def test_one_that_never_comes_back_is_told_apart() -> None:
    class Stuck(PlantDevice):
        def probe(self) -> Level:
            return Level.HOT

    found = sweep(Stuck("phone", 0), Plan(), silent)
    assert found.budget_s
    assert found.recover_s is None


# -- where it is kept


def test_a_profile_comes_back_as_it_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    kept = profile(budget_s=22.0, duty=0.3, answers={"contact 01234567": [50, 61]})
    assert save(KEY, kept) == profile_path(KEY)
    assert load(KEY) == kept
    assert kept.known == Known(22.0, 0.3)
    assert profile().known is None


@pytest.mark.parametrize(
    "other", [replace(KEY, identity="other"), replace(KEY, supply=Power.BATTERY), replace(KEY, launcher="cron")]
)
def test_profiles_are_kept_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: Key) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    save(KEY, profile())
    assert load(other) is None


@pytest.mark.parametrize("text", ["", "{}", "[]", "null", '{"machine": 3}'])
def test_a_damaged_profile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    save(KEY, profile()).write_text(text)
    assert load(KEY) is None


def test_another_machine_s_profile_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    save(KEY, profile(machine="another"))
    assert load(KEY) is None


# -- what a run makes of it


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (Settings(), HeatGovernor),
        (Settings(burst_seconds=30), HeatGovernor),
        (Settings(rest_seconds=5), HeatGovernor),
        (Settings(duty=0.5), HeatGovernor),
        (Settings(rest_seconds=0), FixedGovernor),
        (Settings(burst_seconds=30, rest_seconds=5), FixedGovernor),
    ],
)
def test_the_user_s_numbers_go_before_the_machine_s(settings: Settings, kind: type) -> None:
    law = governor(settings, None)
    assert isinstance(law, kind)
    assert law.allowance.seconds == settings.burst_seconds or settings.burst_seconds is None


def test_a_run_that_knows_its_phone_is_throttled_less_than_one_that_learns() -> None:
    jobs = list(documents(400, 300, 64))
    knowing = run(jobs, "phone", 0, HeatGovernor(Bounds(), Known(budget_s=20.0, duty=0.27)), seconds=300)
    learning = run(jobs, "phone", 0, seconds=300)
    assert knowing.plant.throttled_s < learning.plant.throttled_s


# -- estimates


def fake_parts(plant: Plant, work: Work, settings: Settings) -> Parts:
    from batchrun.guide import Guide
    from batchrun.prompts import Preparer

    model = HeatedModel(plant, work)
    guide = Guide(model.tokenizer.for_guide(), model.tokenizer.vocab)
    return Parts(settings, model, guide, Preparer(model, guide))


def measured(work: Work, parts: Parts, requests: list[Any], load_plan: LoadPlan, plant: Plant) -> DeviceProfile:
    """What a calibration of a simulated machine keeps."""
    from batchrun.assembly import open_worker

    speed = SpeedSensor(StepFit())
    worker = open_worker(parts, load_plan, plant.clock, lambda: False, lambda: False, speed.saw_step, print)
    rig = Rig(worker, speed, requests, plant.clock, plant.rest)
    completions, sample_s = rig.run_once()
    rig.work(60.0, until_slow=False)
    answers: dict[str, list[int]] = {}
    for completion in completions:
        answers.setdefault(answer_key(completion.request.job), []).append(completion.usage.completion_tokens)
    found = profile(steps=rig.fit.as_record(), answers=answers)
    return replace(found, overhead=overhead(sample_s, requests, parts.settings, load_plan, found))


@pytest.mark.parametrize("tokens", [300, 1200])
def test_an_estimate_is_within_15_percent_of_the_run(tokens: int) -> None:
    plant, work = Plant(PRESETS["desktop"], 4), Work()
    settings = Settings(engine="fake", parallel=8, context=2048, prefix=False)
    parts = fake_parts(plant, work, settings)
    jobs = list(documents(80, tokens, 64))
    requests = [prepared(parts, record) for record in jobs]
    load_plan = LoadPlan(8, 8, 2048, 512, 2)
    found = estimate(requests, settings, load_plan, measured(work, parts, requests[:12], load_plan, plant), NOON)
    real = run(jobs, "desktop", 5, without_rest(), work=work)
    assert found.wall_s == pytest.approx(real.plant.time_s, rel=0.15)
    assert found.answer_tokens == sum(result.usage.completion_tokens for result in real.results)
    assert found.computed_tokens == pytest.approx(found.prompt_tokens, rel=0.01)
    assert found.guessed_jobs == 0
    assert found.finish_at == NOON + timedelta(seconds=found.wall_s)
    assert found.energy_wh is None
    assert any("not measured here" in line for line in found.lines())


def prepared(parts: Parts, record: dict[str, Any]) -> Any:
    import json

    from batchrun.jobs import JobReader
    from batchrun.schema_folders import SchemaFolders

    job = JobReader(parts.settings.defaults(), SchemaFolders([], []), Path()).read(json.dumps(record).encode(), 1)
    return parts.preparer.prepare(job, "", 0.0)  # type: ignore[arg-type]


def test_a_machine_that_throttles_is_estimated_with_its_rests() -> None:
    plant, settings = Plant(PRESETS["desktop"], 4), Settings(engine="fake", parallel=8, context=2048, prefix=False)
    parts, load_plan = fake_parts(plant, Work(), settings), LoadPlan(8, 8, 2048, 512, 2)
    requests = [prepared(parts, record) for record in documents(300, 300, 64)]
    cool = measured(Work(), parts, requests[:12], load_plan, plant)
    hot = replace(cool, budget_s=22.0, duty=0.3, watts=5.0, energy_method="rapl")
    free, paced = (estimate(requests, settings, load_plan, device, NOON) for device in (cool, hot))
    assert paced.busy_s == pytest.approx(free.busy_s)
    assert paced.busy_s / paced.wall_s == pytest.approx(0.3, abs=0.1)
    assert paced.energy_wh == pytest.approx(5.0 * paced.busy_s / 3600)
    assert paced.bursts > 3 * free.bursts
    assert estimate(requests, replace(settings, duty=0.5), load_plan, cool, NOON).wall_s > 1.5 * free.wall_s


def test_answers_never_seen_are_taken_at_their_budgets_and_said_so() -> None:
    plant, settings = Plant(PRESETS["desktop"], 4), Settings(engine="fake", parallel=8, context=2048, prefix=False)
    parts, load_plan = fake_parts(plant, Work(), settings), LoadPlan(8, 8, 2048, 512, 2)
    requests = [prepared(parts, record) for record in documents(10, 300, 64)]
    found = estimate(requests, settings, load_plan, profile(), NOON)
    assert (found.answer_tokens, found.guessed_jobs) == (640, 10)
    assert any("whole budget" in line for line in found.lines())


# -- what a shell sees


def test_what_needs_a_real_engine_says_so(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"prompt": "say 1"}])
    for arguments in (("calibrate", "jobs.jsonl"), ("check", "jobs.jsonl", "--estimate")):
        ran = batchrun(tmp_path, *arguments)
        assert ran.status == 2
        assert "real engine" in ran.err
        assert ran.err.count("\n") == 1


def test_an_estimate_without_a_profile_says_how_to_get_one(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"prompt": "say 1"}])
    ran = batchrun(tmp_path, "check", "jobs.jsonl", "--estimate", "--weights", "as-is", engine="llamacpp")
    assert ran.status == 2
    assert "make one with: batchrun calibrate" in ran.err


def test_a_file_without_jobs_cannot_be_sampled(tmp_path: Path) -> None:
    plant = Plant(PRESETS["desktop"], 0)
    parts = fake_parts(plant, Work(), Settings(engine="fake"))
    (tmp_path / "none.jsonl").write_text("\n")
    with pytest.raises(InputError, match="holds no jobs"):
        sample_requests(parts, [tmp_path / "none.jsonl"], 4)
    with pytest.raises(InputError, match="No such file"):
        sample_requests(parts, [tmp_path / "gone.jsonl"], 4)
    many = write_jobs(tmp_path / "many.jsonl", [{"prompt": f"say {number}"} for number in range(100)])
    assert len(sample_requests(parts, [many, many], 10)) == 20
