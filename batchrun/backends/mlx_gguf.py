"""GGUF weights as an MLX folder, converted once and kept in the user's cache folder.

MLX itself reads Q4_0, Q4_1 and Q8_0 blocks into its own quantised layout (groups of 32, a scale and a bias each), so
the numbers stay what they are; here the tensors get mlx-lm's names and the metadata become a `config.json`.  Rows of
attn_q and attn_k of a llama are permuted in GGUF for rotary embeddings of the interleaved kind; they are left as they
are, and MLX is told to rotate that way (`rope_traditional`).  Vocabulary and chat template are not converted: llama.cpp
reads them from the GGUF for both engines, so both see the same tokens.
"""

import json
import os
import shutil
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from batchrun.backends.gguf_config import Metadata, config_of
from batchrun.backends.mlx_device import mx
from batchrun.errors import ModelError

GROUP = 32  # weights that share a scale, in GGUF's formats and here

TOP = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
GEMMA_LAYER = LAYER | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
ROPE_FACTORS = "rope_freqs.weight"


def converted(path: Path, identity: str, folder: Path) -> Path:
    """The MLX folder of a GGUF file: from the cache folder, or made now.  Raises ModelError where that fails."""
    made = folder / f"{path.stem}-{identity[:16]}-mlx"
    if (made / "config.json").is_file():
        return made
    unfinished = made.with_suffix(f".{os.getpid()}.part")
    try:
        unfinished.mkdir(parents=True, exist_ok=True)
        _convert(path, unfinished)
        os.replace(unfinished, made)
    except OSError as error:
        if (made / "config.json").is_file():  # another run was faster
            return made
        raise ModelError(f"{folder} cannot hold a copy of {path.name} for MLX: {error.strerror}") from error
    except (RuntimeError, ValueError) as error:
        raise ModelError(f"MLX cannot read {path.name}: {' '.join(str(error).split())[:200]}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return made


def _convert(path: Path, target: Path) -> None:
    tensors, raw = mx.load(str(path), format="gguf", return_metadata=True)
    metadata = Metadata(
        path.name, {key: _plain(value) for key, value in raw.items() if not key.startswith("tokenizer.")}
    )
    factors = tensors.pop(ROPE_FACTORS, None)
    config = config_of(metadata, frozenset(tensors), None if factors is None else factors.tolist())
    gemma = metadata.architecture == "gemma3"
    weights = {_renamed(name, gemma, path.name): tensor for name, tensor in tensors.items()}
    if gemma:  # GGUF keeps what its norms multiply with, MLX what that is above one
        weights |= {name: tensor - 1 for name, tensor in weights.items() if name.endswith("norm.weight")}
    config |= {"vocab_size": weights["model.embed_tokens.weight"].shape[0]}
    quantization = _quantization(weights)
    if quantization:
        config["quantization"] = quantization
    mx.save_safetensors(str(target / "model.safetensors"), weights, metadata={"format": "mlx"})
    (target / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")


def _renamed(name: str, gemma: bool, file: str) -> str:
    """mlx-lm's name of a tensor: `blk.3.attn_q.scales` is `model.layers.3.self_attn.q_proj.scales`."""
    stem, _, part = name.rpartition(".")
    if stem in TOP:
        return f"{TOP[stem]}.{part}"
    block, _, rest = stem.partition(".")
    layer, _, kind = rest.partition(".")
    known = GEMMA_LAYER if gemma else LAYER
    if block != "blk" or kind not in known:
        raise ModelError(
            f"{file} holds a tensor {name}, which its architecture has not here; --engine llamacpp reads it"
        )
    return f"model.layers.{layer}.{known[kind]}.{part}"


def _quantization(weights: Mapping[str, Any]) -> dict[str, Any]:
    """mlx-lm's description: the usual number of bits, and the layers that have another."""
    bits = {}
    for name in weights:
        layer, _, part = name.rpartition(".")
        if part == "scales":
            width = weights[name].shape[-1] * GROUP
            bits[layer] = weights[f"{layer}.weight"].shape[-1] * 32 // width
    if not bits:
        return {}
    usual = Counter(bits.values()).most_common(1)[0][0]
    others = {layer: {"group_size": GROUP, "bits": count} for layer, count in bits.items() if count != usual}
    return {"group_size": GROUP, "bits": usual, **others}


def _plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, mx.array) else value
