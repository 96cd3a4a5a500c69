"""What a GGUF file says of its model, in the words of mlx-lm's `config.json`.  Pure: metadata in, a config out.

Architectures and number formats that the MLX engine can take from a GGUF stand here, with the reason where it cannot.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from batchrun.errors import ModelError

MODEL_TYPES: Mapping[str, str] = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
"""mlx-lm's names of the architectures that are known here."""

FORMATS: Mapping[int, tuple[str, float]] = {
    0: ("F32", 32),
    1: ("F16", 16),
    2: ("Q4_0", 4.5),
    3: ("Q4_1", 5),
    7: ("Q8_0", 8.5),
}
"""Number formats by `general.file_type`, with their bits a weight."""

DTYPE = "batchrun_dtype"
"""Key of a converted config: the format of what is computed with the weights, on a GPU."""

GEMMA_LOCAL_BASE = 10_000.0
GEMMA_PATTERN = 6  # every sixth layer sees everything
GEMMA_27B_LAYERS = 62
LLAMA3_CONTEXT, LLAMA3_LOW, LLAMA3_HIGH = 8192, 1.0, 4.0
SAME = 1e-3  # relative: factors are kept as float32


@dataclass(frozen=True, slots=True)
class Metadata:
    """Keys and values of a GGUF file."""

    file: str
    values: Mapping[str, Any]

    @property
    def architecture(self) -> str:
        return str(self.values.get("general.architecture", ""))

    def get(self, key: str) -> Any:
        """A value of this architecture, or None."""
        return self.values.get(f"{self.architecture}.{key}")

    def need(self, key: str) -> Any:
        value = self.get(key)
        if value is None:
            raise ModelError(f"{self.file} does not say {self.architecture}.{key}; expected a whole GGUF")
        return value


def refusal(architecture: str, file_type: int | None) -> str | None:
    """Why the MLX engine does not take such a GGUF; None where it does."""
    if architecture not in MODEL_TYPES:
        return f"its architecture is {architecture}; the mlx engine takes {', '.join(MODEL_TYPES)} from a GGUF"
    if file_type not in FORMATS:
        names = ", ".join(name for name, _ in FORMATS.values())
        return f"its weights are of file type {file_type}; the mlx engine takes {names} from a GGUF"
    return None


def bits_of(file_type: int | None) -> float:
    """Bits a weight, scales included."""
    return FORMATS[file_type][1] if file_type is not None and file_type in FORMATS else 16


def config_of(metadata: Metadata, tensors: Collection[str], rope_factors: Sequence[float] | None) -> dict[str, Any]:
    """The config of a model whose tensors have these names.  Raises ModelError for what mlx-lm could not compute."""
    heads, width = int(metadata.need("attention.head_count")), int(metadata.need("embedding_length"))
    head_width = int(metadata.get("attention.key_length") or width // heads)
    rotated = int(metadata.get("rope.dimension_count") or head_width)
    if rotated != head_width:
        raise ModelError(f"{metadata.file} rotates {rotated} of {head_width} dimensions; --engine llamacpp reads it")
    base = float(metadata.get("rope.freq_base") or 10_000.0)
    config = {
        "model_type": MODEL_TYPES[metadata.architecture],
        "hidden_size": width,
        "num_hidden_layers": int(metadata.need("block_count")),
        "intermediate_size": int(metadata.need("feed_forward_length")),
        "num_attention_heads": heads,
        "num_key_value_heads": int(metadata.get("attention.head_count_kv") or heads),
        "head_dim": head_width,
        "rms_norm_eps": float(metadata.need("attention.layer_norm_rms_epsilon")),
        "max_position_embeddings": int(metadata.need("context_length")),
        "rope_theta": base,
        "rope_scaling": _rope_scaling(metadata, base, rotated, rope_factors),
        "rope_traditional": metadata.architecture == "llama",
        "tie_word_embeddings": "output.weight" not in tensors,
        DTYPE: "float16",
    }
    return config | (_gemma(metadata, config) if metadata.architecture == "gemma3" else {})


def _gemma(metadata: Metadata, config: Mapping[str, Any]) -> dict[str, Any]:
    """Gemma 3: sliding windows, and activations that overflow 16-bit floats."""
    large = config["num_hidden_layers"] == GEMMA_27B_LAYERS
    by_width = config["hidden_size"] // config["num_attention_heads"]
    return {
        "sliding_window": int(metadata.need("attention.sliding_window")),
        "sliding_window_pattern": GEMMA_PATTERN,
        "rope_local_base_freq": float(metadata.get("rope.freq_base_swa") or GEMMA_LOCAL_BASE),
        "query_pre_attn_scalar": by_width if large else config["head_dim"],
        DTYPE: "float32",
    }


def _rope_scaling(
    metadata: Metadata, base: float, rotated: int, factors: Sequence[float] | None
) -> dict[str, Any] | None:
    if factors is not None:
        return _llama3(metadata, base, rotated, factors)
    kind = metadata.get("rope.scaling.type") or "none"
    if kind == "none":
        return None
    if kind != "linear":
        raise ModelError(f"{metadata.file} scales its rotary embeddings by {kind}; --engine llamacpp reads it")
    return {"rope_type": "linear", "factor": float(metadata.need("rope.scaling.factor"))}


def _llama3(metadata: Metadata, base: float, rotated: int, factors: Sequence[float]) -> dict[str, Any]:
    """Llama 3.1's scaling.  GGUF keeps the factors that come of it, mlx-lm wants what goes in: it is found and
    checked."""
    factor = max(factors)
    for place, found in enumerate(factors):
        wave_length = 2 * math.pi * base ** (2 * place / rotated)
        smooth = (LLAMA3_CONTEXT / wave_length - LLAMA3_LOW) / (LLAMA3_HIGH - LLAMA3_LOW)
        smooth = min(1.0, max(0.0, smooth))
        if abs(found * ((1 - smooth) / factor + smooth) - 1) > SAME:
            raise ModelError(f"{metadata.file} scales its rotary embeddings its own way; --engine llamacpp reads it")
    return {
        "rope_type": "llama3",
        "factor": factor,
        "low_freq_factor": LLAMA3_LOW,
        "high_freq_factor": LLAMA3_HIGH,
        "original_max_position_embeddings": LLAMA3_CONTEXT,
    }
