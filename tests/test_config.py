"""Flags, then variables, then the file, then built-ins; each refuses what it does not know with the nearest name."""

import contextlib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import platformdirs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.config import Settings, resolve
from batchrun.core import Defaults, Sampling
from batchrun.errors import UsageError


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No settings file but those that a test makes."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(platformdirs, "user_config_path", lambda name: tmp_path / "own")


def settings(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    toml: str | bytes | None = None,
) -> Settings:
    if toml is not None:
        Path("batchrun.toml").write_bytes(toml if isinstance(toml, bytes) else toml.encode())
    return resolve(flags or {}, environment or {}, None)


def refusal(
    flags: Mapping[str, Any] | None = None,
    environment: Mapping[str, str] | None = None,
    toml: str | bytes | None = None,
) -> str:
    with pytest.raises(UsageError) as caught:
        settings(flags, environment, toml)
    return str(caught.value)


# -- precedence


def test_built_ins_are_what_the_class_says() -> None:
    assert settings() == Settings()


def test_a_flag_beats_a_variable_beats_the_file_beats_the_built_in() -> None:
    toml = "max_tokens = 1\nseed = 1\ntop_k = 1\n"
    found = settings({"max_tokens": 3}, {"BATCHRUN_MAX_TOKENS": "2", "BATCHRUN_SEED": "2"}, toml)
    assert (found.max_tokens, found.seed, found.top_k, found.min_p) == (3, 2, 1, 0.0)


def test_a_flag_that_was_not_given_beats_nothing() -> None:
    assert settings({"max_tokens": None}, {"BATCHRUN_MAX_TOKENS": "2"}).max_tokens == 2
    assert settings({"prefix": False}, {"BATCHRUN_PREFIX": "yes"}).prefix is False


def test_the_file_here_beats_the_users_own(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "batchrun.toml").write_text("seed = 1")
    assert settings().seed == 1
    assert settings(toml="seed = 2").seed == 2


def test_a_named_file_beats_both(tmp_path: Path) -> None:
    (tmp_path / "named.toml").write_text("seed = 3")
    assert settings(environment={"BATCHRUN_CONFIG": str(tmp_path / "named.toml")}, toml="seed = 2").seed == 3
    assert settings(environment={"BATCHRUN_CONFIG": "~/named.toml"}).seed == 3
    assert resolve({}, {"BATCHRUN_CONFIG": "missing"}, tmp_path / "named.toml").seed == 3


def test_keys_of_the_file_may_be_written_with_dashes() -> None:
    assert settings(toml="max-tokens = 5").max_tokens == 5


def test_a_file_may_begin_with_a_byte_order_mark() -> None:
    assert settings(toml=b"\xef\xbb\xbfseed = 5\r\n").seed == 5


def test_other_variables_are_none_of_our_business() -> None:
    assert settings(environment={"PATH": "/bin", "batchrun_seed": "x", "XBATCHRUN_SEED": "x"}) == Settings()


def test_jobs_get_their_defaults_from_the_settings() -> None:
    found = settings({"max_tokens": 5, "seed": 6, "stop": ["a"], "system": "s", "schema": "c", "top_p": 0.5})
    assert found.defaults() == Defaults(5, Sampling(top_p=0.5, seed=6), ("a",), "s", "c")


# -- what is not known


def test_an_unknown_setting_is_refused_with_the_nearest_in_the_file_and_in_variables() -> None:
    assert "BATCHRUN_SEDE is no setting; did you mean seed?" in refusal(environment={"BATCHRUN_SEDE": "5"})
    assert "batchrun.toml: max_token is no setting; did you mean max_tokens?" in refusal(toml="max_token = 5")


def test_a_setting_like_no_other_is_refused_with_all_that_are_known() -> None:
    assert "known: model, engine" in refusal(environment={"BATCHRUN_": "5"})
    assert "known: model, engine" in refusal(toml="[zzzzzz]\nx = 1")


def test_an_unknown_engine_is_refused() -> None:
    assert "expected auto, llamacpp, mlx or fake" in refusal({"engine": "vllm"})


def test_an_unknown_layout_is_refused() -> None:
    assert "layout 'prompt' is unknown; expected prompt-first or document-first" in refusal({"layout": "prompt"})


# -- what is wrong

WRONG: dict[str, list[Any]] = {
    "model": [5, True, ["x"]],
    "parallel": [0, 1025, "8", 1.5, True],
    "prefix": [1, "true"],
    "burst_seconds": [0, 86401, "20", True, float("nan"), float("inf"), 10**400],
    "top_p": [0, 1.5, float("nan")],
    "temperature": [-1, 101, float("nan"), float("-inf")],
    "seed": [-1, 2**63, 0.5],
    "stop": [5, [""], [5], "", {"a": "b"}],
    "system": [5, "\udcff"],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_value_of_the_wrong_kind_or_size_is_refused_and_named(name: str, value: Any) -> None:
    assert refusal({name: value}).startswith(f"--{name.replace('_', '-')} is ")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("parallel", "eight"),
        ("parallel", "9" * 5000),
        ("prefix", "maybe"),
        ("temperature", "nan"),
        ("temperature", "1e999"),
        ("stop", "[5]"),
        ("stop", '[""]'),
        ("system", "\udcff"),
    ],
)
def test_a_variable_of_the_wrong_kind_or_size_is_refused_and_named(name: str, text: str) -> None:
    assert refusal(environment={f"BATCHRUN_{name.upper()}": text}).startswith(f"BATCHRUN_{name.upper()} is ")


@pytest.mark.parametrize(
    "toml",
    [b"seed = ", b"seed = 1\nseed = 2", b"\xff", b"seed = nan", b"a = " + b"[" * 5000 + b"]" * 5000, b"seed = [1]"],
)
def test_a_file_that_is_wrong_is_refused_and_named(toml: bytes) -> None:
    assert "batchrun.toml" in refusal(toml=toml)


@pytest.mark.parametrize("place", ["missing.toml", ".", "~nobody-of-that-name/x.toml", "x" * 5000])
def test_a_named_file_that_cannot_be_read_is_refused(place: str) -> None:
    assert place in refusal(environment={"BATCHRUN_CONFIG": place})


def test_bounds_are_named_to_the_digit() -> None:
    assert "a whole number from 1 to 2147483647 (longest answer)" in refusal({"max_tokens": 0})
    assert f"from 0 to {2**63 - 1}" in refusal({"seed": -1})


# -- kinds


@pytest.mark.parametrize("text", ["1", "true", "YES"])
def test_a_variable_may_say_yes(text: str) -> None:
    assert settings(environment={"BATCHRUN_PREFIX": text}).prefix is True


@pytest.mark.parametrize("text", ["0", "False", "no"])
def test_a_variable_may_say_no(text: str) -> None:
    assert settings(environment={"BATCHRUN_PREFIX": text}).prefix is False


def test_a_whole_number_will_do_for_seconds() -> None:
    found = settings({"burst_seconds": 5}, {"BATCHRUN_REST_SECONDS": "6"}, "grace_seconds = 7")
    assert (found.burst_seconds, found.rest_seconds, found.grace_seconds) == (5.0, 6.0, 7.0)
    assert all(isinstance(value, float) for value in (found.burst_seconds, found.rest_seconds, found.grace_seconds))


def test_stop_is_a_string_or_a_list_everywhere() -> None:
    for found in (
        settings({"stop": ["a", "b"]}),
        settings(environment={"BATCHRUN_STOP": '["a", "b"]'}),
        settings(toml='stop = ["a", "b"]'),
    ):
        assert found.stop == ("a", "b")
    assert settings(environment={"BATCHRUN_STOP": "END"}).stop == ("END",)
    assert settings(toml='stop = "END"').stop == ("END",)


@pytest.mark.parametrize("text", ["[END]", "[/INST]", "[" * 5000, '["a"'])
def test_a_stop_string_in_brackets_is_no_list(text: str) -> None:
    assert settings(environment={"BATCHRUN_STOP": text}).stop == (text,)


def test_every_setting_can_come_from_the_environment() -> None:
    texts = {str: "fake", bool: "no", int: "17", float: "0.5"}
    for field in fields(Settings):
        kind = type(field.default) if field.default is not None else int
        named = {"schema": "fake", "schemas": "fake", "weights": "q8_0", "schema_in_prompt": "off"}
        named |= {"on_budget": "fail", "thinking": "64", "layout": "document-first", "kv": "q8_0", "flash": "no"}
        named |= {"input_format": "csv", "order": "input", "output_format": "csv", "on_overflow": "chunk"}
        named |= {"isolate": "no", "audit": "2%"}
        named |= {"priority": "low", "quiet_hours": "08:00-18:00", "until": "06:30", "max_energy": "40Wh"}
        named |= {"only_on_ac": "yes", "worker_resources": '{"num_gpus": 1}'}
        text = named.get(field.name) or texts.get(kind, "x")
        assert settings(environment={f"BATCHRUN_{field.name.upper()}": text}) != Settings(), field.name


@given(st.sampled_from([field.name for field in fields(Settings)]), st.text(max_size=8) | st.integers().map(str))
def test_any_text_in_a_variable_is_taken_or_refused(name: str, text: str) -> None:
    with contextlib.suppress(UsageError):
        assert isinstance(resolve({}, {f"BATCHRUN_{name.upper()}": text}, None), Settings)


def test_a_small_cache_needs_flash_attention() -> None:
    with pytest.raises(UsageError, match="flash"):
        resolve({"kv": "q8_0", "flash": False}, {"BATCHRUN_CONFIG": ""}, None)
