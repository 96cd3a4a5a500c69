"""Tiny MLX models with random weights, one for each kind of cache, and engines that run them.

Their vocabulary is the toy tokenizer's, so requests, grammars and schemas of the other tests serve here too.  Weights
are large enough that the best token leads clearly: what differs between two runs of a row is then a bug and no
rounding.
"""

import importlib
import json
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mlx_lm", reason="needs the mlx extra")

from batchrun.backends.mlx import MlxBackend  # isort: skip  it loads OpenBLAS before MLX

import numpy as np
from building import GUIDE, TOKENIZER
from mlx.utils import tree_map_with_path

from batchrun.backends.base import LoadPlan
from batchrun.backends.fake import VOCAB
from batchrun.backends.mlx_blas import openblas
from batchrun.backends.mlx_device import mx
from batchrun.backends.mlx_library import load_model
from batchrun.core import Completion, Request
from batchrun.cost import Cost
from batchrun.engine import Engine, OnTokens
from batchrun.width import Width

blas = openblas()
if blas:
    blas.set_threads(1)  # on matrices this small, threads only wait for each other

WINDOW = 24  # tokens that a sliding layer sees
COMMON = {
    "vocab_size": VOCAB,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "intermediate_size": 48,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 4096,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
}
KINDS: dict[str, dict[str, Any]] = {
    "full": COMMON | {"model_type": "llama"},
    "sliding": COMMON
    | {
        "model_type": "gemma3_text",
        "sliding_window": WINDOW,
        "sliding_window_pattern": 2,
        "query_pre_attn_scalar": 8,
    },
    "hybrid": COMMON
    | {
        "model_type": "falcon_h1",
        "mamba_d_conv": 4,
        "mamba_d_head": 8,
        "mamba_d_ssm": 32,
        "mamba_d_state": 8,
        "mamba_n_heads": 4,
        "mamba_chunk_size": 16,
        "lm_head_multiplier": 1.0,
    },
    "gated": COMMON
    | {
        "model_type": "qwen3_next",
        "full_attention_interval": 2,
        "linear_num_value_heads": 4,
        "linear_num_key_heads": 2,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_conv_kernel_dim": 4,
        "num_experts": 0,
        "num_experts_per_tok": 1,
        "decoder_sparse_step": 1,
        "shared_expert_intermediate_size": 16,
        "mlp_only_layers": [],
        "moe_intermediate_size": 16,
        "partial_rotary_factor": 0.5,
    },
}


def write_model(folder: Path, kind: str, seed: int = 0) -> Path:
    """An MLX folder with random weights, without a tokenizer."""
    config = KINDS[kind]
    module = importlib.import_module(f"mlx_lm.models.{config['model_type']}")
    model = module.Model(module.ModelArgs.from_dict(config))
    random = np.random.default_rng(seed)
    weights: dict[str, mx.array] = {}

    def drawn(path: str, old: mx.array) -> mx.array:
        spread = 1.5 / old.shape[-1] ** 0.5 if "embed" not in path else 1.0
        spread *= 4 if "lm_head" in path else 1
        weights[path] = mx.array(random.normal(0, spread, old.shape), mx.float32) if old.ndim > 1 else old
        return weights[path]

    tree_map_with_path(drawn, model.parameters())
    folder.mkdir(parents=True, exist_ok=True)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def loaded(folder: Path) -> Any:
    return load_model(folder)[0]


def plan(rows: int, prefixes: int = 2, context: int = 256, batch: int = 64) -> LoadPlan:
    return LoadPlan(rows, rows + prefixes, context, batch, threads=1)


def mlx_engine(
    backend: MlxBackend, rows: int, *, share_prefixes: bool = True, on_tokens: OnTokens | None = None
) -> Engine:
    return Engine(
        backend,
        TOKENIZER,
        GUIDE,
        Cost(),
        time.monotonic,
        width=Width(rows, rows, fixed=True),
        share_prefixes=share_prefixes,
        on_tokens=on_tokens,
    )


def alone(model: Any, wanted: Request, chain: int = 1) -> Completion:
    """The same job with a backend to itself."""
    backend = MlxBackend(model, plan(1, prefixes=0, batch=512), VOCAB, chain=chain)
    running = mlx_engine(backend, 1, share_prefixes=False)
    running.submit([wanted])
    while not running.idle:
        for completion in running.step():
            return completion
    raise AssertionError("a job that never ends")
