"""Profiles fill what is left open, and tune measures the real model."""

from dataclasses import replace
from pathlib import Path

import pytest

from batchrun import profile
from batchrun.assembly import open_parts, original_identity
from batchrun.bench import tune as tuning
from batchrun.config import Settings
from batchrun.errors import InputError, UsageError
from batchrun.profile import Profile, filled

FOUND = Profile(profile.machine_name(), "2026-11-30", "q4_0", 4, 1, flash=False, kv="f16", speedup=1.5)


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profile.platformdirs, "user_state_path", lambda name: tmp_path / name)


def test_a_profile_fills_only_what_is_left_open() -> None:
    assert filled(Settings(), None) == Settings()
    assert filled(Settings(), FOUND) == Settings(weights="q4_0", parallel=4, threads=1, flash=False, kv="f16")
    given = Settings(weights="as-is", parallel=2, threads=3, flash=True, kv="q8_0")
    assert filled(given, FOUND) == given


def test_a_profile_is_kept_and_found_again_on_the_same_machine_only() -> None:
    profile.save("a" * 64, FOUND)
    assert profile.load("a" * 64) == FOUND
    assert profile.load("b" * 64) is None
    profile.save("c" * 64, replace(FOUND, machine="another"))
    assert profile.load("c" * 64) is None


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"machine": 5}', "not json"])
def test_a_damaged_profile_is_as_good_as_none(text: str) -> None:
    path = profile.save("a" * 64, FOUND)
    path.write_text(text)
    assert profile.load("a" * 64) is None


def test_a_user_is_told_of_a_missing_profile_once() -> None:
    assert not profile.told_once("a" * 64)
    assert profile.told_once("a" * 64)
    assert not profile.told_once("b" * 64)


def test_a_run_takes_its_profile_up_and_says_so() -> None:
    profile.save(original_identity(Settings()), replace(FOUND, weights="as-is"))
    parts = open_parts(Settings())
    assert (parts.settings.parallel, parts.settings.weights) == (4, "as-is")
    assert any("profile" in notice for notice in parts.notices)
    parts.model.close()


def test_tune_measures_and_keeps_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tuning, "FORMATS", ("as-is", "q8_0"))
    monkeypatch.setattr(tuning, "ROWS", (2,))
    jobs = tmp_path / "jobs.jsonl"
    jobs.write_text('{"prompt":"Name a colour.","max_tokens":4}\nno job\n{"prompt":"Name a town.","max_tokens":4}\n')
    said: list[str] = []
    found = tuning.tune(Settings(), jobs, 8, said.append)
    assert len(said) == len(found.trials) >= 3
    assert found.best in found.trials
    kept = profile.load(original_identity(Settings()))
    assert kept
    assert kept.weights == found.best.settings.weights


def test_tune_refuses_what_it_cannot_measure(tmp_path: Path) -> None:
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n")
    with pytest.raises(InputError, match="no jobs to tune with"):
        tuning.tune(Settings(), empty, 8, print)
    with pytest.raises(InputError, match="No such file"):
        tuning.tune(Settings(), tmp_path / "missing.jsonl", 8, print)
    with pytest.raises(UsageError, match="real engine"):
        tuning.tune(Settings(engine="fake"), empty, 8, print)
