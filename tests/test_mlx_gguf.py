"""One GGUF drives both engines: the same weights, the same logits, the same tokens, and a line where MLX cannot."""

import dataclasses
import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf_models import FORMATS, TEMPLATE, Tiny, write_gguf
from shell import batchrun, write_jobs

pytest.importorskip("mlx_lm", reason="needs the mlx extra")

import llama_cpp
from gguf import GGUFReader
from gguf.quants import dequantize

from batchrun.backends.base import LoadPlan
from batchrun.backends.gguf_config import Metadata, config_of, refusal
from batchrun.backends.llamacpp_model import LlamaModel
from batchrun.backends.mlx_device import MlxOptions, mx
from batchrun.backends.mlx_gguf import converted
from batchrun.backends.mlx_library import make_prompt_cache
from batchrun.backends.mlx_load import load_weights
from batchrun.backends.mlx_model import MlxGguf
from batchrun.config import Settings
from batchrun.core import Feed, Sampling
from batchrun.engines import engine_for
from batchrun.errors import ModelError

TEXT = list(b"A text that is longer than the window of the sliding layers, so that they have something to forget.")
PLAN = LoadPlan(1, 1, 256, 256, 1)
ROUNDING = {"F32": 0.01, "F16": 0.01, "Q8_0": 0.15, "Q4_0": 0.15, "Q4_1": 0.15}
"""How far the two engines' logits may lie apart, in standard deviations of the logits.  llama.cpp keeps its KV cache in
16-bit floats, and where weights are quantised it rounds activations to 8 bits too; MLX computes in 32-bit floats."""


def llama3_factors(head_width: int = 32, base: float = 50000.0, factor: float = 8.0) -> tuple[float, ...]:
    """What GGUF keeps of Llama 3.1's scaling."""
    factors = []
    for place in range(head_width // 2):
        wave_length = 2 * math.pi * base ** (2 * place / head_width)
        smooth = min(1.0, max(0.0, (8192 / wave_length - 1) / 3))
        factors.append(1 / ((1 - smooth) / factor + smooth))
    return tuple(factors)


def llama_logits(model: LlamaModel) -> Any:
    backend = model.load(PLAN, lambda: False)
    try:
        backend.sample(backend.forward([Feed(0, 0, TEXT, Sampling())]), None)
        shape = (1, model.tokenizer.vocab)
        return np.ctypeslib.as_array(llama_cpp.llama_get_logits(backend._context), shape)[0].copy()
    finally:
        backend.close()


def mlx_logits(folder: Path) -> Any:
    model = load_weights(folder, 1, MlxOptions(), lambda: False)
    return np.array(model(mx.array([TEXT]), cache=make_prompt_cache(model))[0, -1])


def opened(path: Path) -> LlamaModel:
    return LlamaModel(path, path.name, "tiny")


CASES = [
    *(Tiny(architecture, kind) for architecture in ("llama", "qwen2", "qwen3", "gemma3") for kind in FORMATS),
    Tiny(tied=True),
    Tiny(linear_rope=4.0),
    Tiny("gemma3", linear_rope=8.0),
    Tiny(rope_factors=llama3_factors()),
]


@pytest.mark.parametrize("tiny", CASES, ids=lambda tiny: f"{tiny.architecture}-{tiny.kind}")
def test_both_engines_compute_the_same_from_one_file(tiny: Tiny, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny)
    model = opened(path)
    one, other = llama_logits(model), mlx_logits(converted(path, "tiny", tmp_path))
    model.close()
    assert np.abs(one - other).max() / other.std() < ROUNDING[tiny.kind]


@pytest.mark.parametrize("kind", FORMATS)
def test_converted_weights_are_the_same_numbers(kind: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny("qwen3", kind))
    model = load_weights(converted(path, "tiny", tmp_path), 1, MlxOptions(), lambda: False)
    layer = model.model.layers[1]
    pairs = {
        "token_embd.weight": model.model.embed_tokens,
        "output.weight": model.lm_head,
        "blk.1.attn_q.weight": layer.self_attn.q_proj,
        "blk.1.ffn_down.weight": layer.mlp.down_proj,
        "blk.1.attn_q_norm.weight": layer.self_attn.q_norm,
    }
    tensors = {tensor.name: tensor for tensor in GGUFReader(path).tensors}
    for name, module in pairs.items():
        wanted = dequantize(tensors[name].data, tensors[name].tensor_type).reshape(module.weight.shape)
        assert np.abs(np.array(module.weight) - wanted).max() <= 1e-6 * np.abs(wanted).max()


def test_a_file_is_converted_once(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny())
    first = converted(path, "an identity of some length", tmp_path / "cache")
    before = (first / "model.safetensors").stat().st_mtime_ns
    assert converted(path, "an identity of some length", tmp_path / "cache") == first
    assert (first / "model.safetensors").stat().st_mtime_ns == before
    assert converted(path, "another identity", tmp_path / "cache") != first
    assert {entry.suffix for entry in (tmp_path / "cache").iterdir()} == {""}


# -- what the two engines say of one file before they load it


@pytest.fixture
def both(tmp_path: Path) -> Iterator[tuple[LlamaModel, MlxGguf]]:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny())
    llama = opened(path)
    yield llama, MlxGguf(opened(path), path, tmp_path, MlxOptions())
    llama.close()


def test_card_tokens_and_template_are_the_same_on_both_engines(both: tuple[LlamaModel, MlxGguf]) -> None:
    llama, mlx = both
    for name in ("identity", "name", "context_train", "weights_bytes", "cell_bytes", "path"):
        assert getattr(llama.card, name) == getattr(mlx.card, name)
    assert mlx.template.text == llama.template.text == TEMPLATE
    one, other = llama.tokenizer, mlx.tokenizer
    assert (one.vocab, one.stop_tokens, one.control_texts) == (other.vocab, other.stop_tokens, other.control_texts)
    text = "<|im_start|>The text.<|im_end|>"
    for control in (True, False):
        assert one.encode(text, control=control) == other.encode(text, control=control)
    assert one.with_bos([65]) == other.with_bos([65])


def test_memory_is_planned_for_wide_weights_on_a_processor(both: tuple[LlamaModel, MlxGguf]) -> None:
    llama, mlx = both
    assert llama.card.weights_memory_bytes == llama.card.weights_bytes
    wide = 4 if dataclasses.replace(mlx.card).loaded_cell_bytes else 2
    assert mlx.card.cell_memory_bytes == llama.card.cell_bytes * wide // 2
    assert mlx.card.weights_memory_bytes >= llama.card.weights_bytes


# -- what is refused


@pytest.mark.parametrize(
    ("tiny", "reason"),
    [
        (Tiny(file_type=15), "its weights are of file type 15; the mlx engine takes F32, F16, Q4_0, Q4_1, Q8_0"),
        (Tiny("phi2"), "its architecture is phi2; the mlx engine takes llama, qwen2, qwen3, gemma3"),
    ],
)
def test_a_file_that_mlx_does_not_take_is_one_line(tiny: Tiny, reason: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny)
    with pytest.raises(ModelError) as caught:
        MlxGguf(opened(path), path, tmp_path, MlxOptions())
    assert reason in str(caught.value)
    assert "--engine llamacpp" in str(caught.value)


def test_a_tensor_that_the_architecture_does_not_have_is_refused_by_name(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny(extra_tensor="blk.0.ffn_gate_inp.weight"))
    with pytest.raises(ModelError, match=r"blk\.0\.ffn_gate_inp\.weight"):
        converted(path, "tiny", tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.gguf"]


def test_a_file_cut_short_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny())
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(ModelError, match=r"tiny\.gguf"):
        converted(path, "tiny", tmp_path)


def test_a_cache_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny())
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(ModelError, match="cannot hold a copy"):
        converted(path, "tiny", tmp_path / "cache")


NUMBERS = {
    "general.architecture": "llama",
    "llama.attention.head_count": 4,
    "llama.embedding_length": 64,
    "llama.block_count": 2,
    "llama.feed_forward_length": 96,
    "llama.attention.layer_norm_rms_epsilon": 1e-5,
    "llama.context_length": 512,
}


@pytest.mark.parametrize(
    ("changes", "factors", "reason"),
    [
        ({"llama.rope.scaling.type": "yarn"}, None, "by yarn"),
        ({"llama.rope.dimension_count": 8}, None, "rotates 8 of 16"),
        ({"llama.block_count": None}, None, "does not say llama.block_count"),
        ({}, [1.0, 3.0, 9.0], "its own way"),
    ],
)
def test_what_mlx_could_not_compute_is_refused(changes: dict[str, Any], factors: Any, reason: str) -> None:
    with pytest.raises(ModelError, match=reason):
        config_of(Metadata("m.gguf", NUMBERS | changes), frozenset(), factors)


def test_gemmas_largest_scales_its_attention_by_its_width() -> None:
    numbers = {key.replace("llama.", "gemma3."): value for key, value in NUMBERS.items()}
    numbers |= {"general.architecture": "gemma3", "gemma3.attention.sliding_window": 512}
    for layers, key_length, scalar in ((26, 256, 256), (62, 128, 16)):
        more = {"gemma3.block_count": layers, "gemma3.attention.key_length": key_length}
        config = config_of(Metadata("m.gguf", numbers | more), frozenset(), None)
        assert config["query_pre_attn_scalar"] == scalar


def test_every_format_that_is_taken_is_one_that_the_engines_share() -> None:
    assert all(refusal("llama", int(file_type)) is None for _, file_type in FORMATS.values())
    assert refusal("llama", None)


# -- which engine runs what


@pytest.fixture
def apple(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("batchrun.engines.sys.platform", "darwin")
    monkeypatch.setattr("batchrun.engines.platform.machine", lambda: "arm64")


def test_auto_is_llamacpp_away_from_apple_silicon(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny())
    assert engine_for(Settings(model=str(path)), path) == "llamacpp"
    assert engine_for(Settings(model=str(path), engine="mlx"), path) == "mlx"


@pytest.mark.usefixtures("apple")
@pytest.mark.parametrize(("tiny", "engine"), [(Tiny(), "mlx"), (Tiny(file_type=15), "llamacpp")])
def test_auto_is_mlx_on_apple_silicon_where_it_reads_the_file(tiny: Tiny, engine: str, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", tiny)
    assert engine_for(Settings(model=str(path)), path) == engine


# -- as a command


def test_a_run_on_mlx_answers_its_jobs(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny())
    shape = [{}, {"schema": {"enum": ["yes", "no"]}}]
    jobs = [{"id": str(n), "prompt": f"job {n}", "max_tokens": 20} | shape[n % 2] for n in range(6)]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    cache = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    run = batchrun(tmp_path, "run", "jobs.jsonl", "-o", "-", "--model", path, "--chain", "4", engine="mlx", **cache)
    assert run.status in (0, 3)
    answers = {record["id"]: record for record in run.records}
    assert len(answers) == len(jobs)
    assert all(answers[str(n)]["output"] in ("yes", "no") for n in (1, 3, 5))
    assert {record["model"] for record in answers.values()} == {"tiny.gguf"}


def test_a_model_that_mlx_does_not_take_ends_with_5(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", Tiny(file_type=15))
    write_jobs(tmp_path / "jobs.jsonl", [{"prompt": "job"}])
    run = batchrun(tmp_path, "run", "jobs.jsonl", "-o", "-", "--model", path, engine="mlx")
    assert run.status == 5
    assert run.err.count("\n") == 1
    assert "file type 15" in run.err


def test_without_its_library_the_engine_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from batchrun.assembly import open_model

    path = write_gguf(tmp_path / "tiny.gguf", Tiny())
    monkeypatch.setitem(__import__("sys").modules, "batchrun.backends.mlx_model", None)
    with pytest.raises(ModelError, match=r"pip install 'batchrun-llm\[mlx\]'"):
        open_model(Settings(model=str(path), engine="mlx"))


def test_the_config_of_a_conversion_is_plain_json(tmp_path: Path) -> None:
    folder = converted(write_gguf(tmp_path / "tiny.gguf", Tiny(kind="Q8_0")), "tiny", tmp_path)
    config = json.loads((folder / "config.json").read_text())
    assert config["quantization"] == {"group_size": 32, "bits": 8}
