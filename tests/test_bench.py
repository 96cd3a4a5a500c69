"""The bench measures what it says, on the fake engine and (one small run) on the real model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from gguf_models import Tiny, write_gguf

from batchrun.bench.board import Plan, measure
from batchrun.bench.figures import as_json, table
from batchrun.bench.workloads import MAKERS, build
from batchrun.config import Settings
from batchrun.errors import UsageError


def plan(workload: str, *modes: str, jobs: int | None = None, streams: tuple[int, ...] = ()) -> Plan:
    return Plan(workload, jobs, 1, modes or ("continuous",), None, streams, ())


def silent(text: str) -> None:
    pass


@pytest.mark.parametrize("name", sorted(MAKERS))
def test_a_workload_is_the_same_for_the_same_seed(name: str) -> None:
    assert build(name, 1, 8) == build(name, 1, 8)
    assert build(name, 1, 8).records != build(name, 2, 8).records or name == "swarm"
    assert len(build(name, 1, 8).records) == 8


def test_only_staggered_jobs_arrive_later() -> None:
    assert set(build("research", 0, 4).arrivals_s) == {0.0}
    arrivals_s = build("staggered", 0, 4).arrivals_s
    assert list(arrivals_s) == sorted(set(arrivals_s))


def test_the_figures_of_a_run_add_up() -> None:
    board = measure(Settings(engine="fake", max_tokens=32), plan("plain", "static", "continuous", jobs=50), silent)
    labels = [label for label, _ in board.rows]
    assert labels == ["static 8 rows", "continuous 8 rows"]
    for _, (run,) in board.rows:
        assert run.jobs == 50
        assert run.prompt_tokens >= run.computed_tokens > 0
        assert 0 <= run.host_share <= 1


def test_a_sweep_has_a_row_for_each_width() -> None:
    board = measure(Settings(engine="fake"), plan("plain", jobs=20, streams=(1, 4)), silent)
    assert [label for label, _ in board.rows] == ["continuous 1 row", "continuous 4 rows"]
    assert table(board.rows, markdown=True).count("\n") == 3
    assert "|" not in table(board.rows, markdown=False)
    assert json.dumps(as_json(board.rows))


def test_what_needs_a_real_model_is_refused_on_the_toy() -> None:
    with pytest.raises(UsageError, match="real model"):
        measure(Settings(engine="fake"), plan("plain", "serial"), silent)


def test_unknown_names_are_refused() -> None:
    with pytest.raises(UsageError, match="research"):
        measure(Settings(engine="fake"), plan("reserch"), silent)
    with pytest.raises(UsageError, match="static"):
        measure(Settings(engine="fake"), plan("plain", "statik"), silent)


@pytest.mark.parametrize("name", ["llama-server", "mlx_lm", "llama-server="])
def test_an_unknown_peer_is_refused_with_those_there_are(name: str) -> None:
    with pytest.raises(UsageError, match="expected llama-server=PATH or mlx-lm"):
        measure(Settings(engine="fake"), replace(plan("plain", jobs=1), peer=name), silent)


def test_a_peer_of_another_engine_is_refused() -> None:
    with pytest.raises(UsageError, match="expected --engine mlx"):
        measure(Settings(), replace(plan("plain", jobs=1), peer="mlx-lm"), silent)


def test_mlx_lm_answers_the_same_jobs_on_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mlx_lm", reason="needs the mlx extra")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = Settings(engine="mlx", model=str(write_gguf(tmp_path / "tiny.gguf", Tiny())), max_tokens=16, parallel=3)
    board = measure(settings, replace(plan("plain", jobs=4), peer="mlx-lm"), silent)
    theirs, ours = (runs[0] for _, runs in board.rows)
    assert [label for label, _ in board.rows] == ["mlx-lm 3 rows", "continuous 3 rows"]
    assert theirs.completion_tokens == ours.completion_tokens
    assert theirs.jobs == ours.jobs == 4


def test_serial_and_continuous_answer_the_same_jobs_on_the_real_model(tmp_path: Path) -> None:
    board = measure(Settings(parallel=2), plan("classify", "serial", "continuous", jobs=2), silent)
    serial, continuous = (runs[0] for _, runs in board.rows)
    assert serial.valid == continuous.valid == 2
    assert "bare kernels" in board.notes[0]
