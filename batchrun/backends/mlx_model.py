"""A model for the MLX engine, opened without its weights: an MLX folder, or a GGUF file.

A GGUF's vocabulary and chat template are read by llama.cpp, as on the other engine, so one file means the same tokens
and the same prompts on both.  Weights are converted and loaded by `load` (`mlx_gguf.py`, `mlx_load.py`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from batchrun.backends.base import LoadPlan, ModelCard
from batchrun.backends.chat_template import NO_TEMPLATE, after_an_answer, chat_template
from batchrun.backends.gguf_config import bits_of, refusal
from batchrun.backends.hf_tokenizer import HfTokenizer, read_json
from batchrun.backends.llamacpp_model import LlamaModel
from batchrun.backends.mlx_blas import MISSING, openblas
from batchrun.backends.mlx_device import MlxOptions, on_a_processor
from batchrun.backends.safetensors_size import weights_in
from batchrun.errors import ModelError

if TYPE_CHECKING:
    from batchrun.backends.mlx import MlxBackend

UNKNOWN_CONTEXT = 8192
KV_ELEMENT_BYTES, WIDE_BYTES = 2, 4  # 16-bit floats on a GPU, 32-bit on a processor


class MlxGguf:
    """A GGUF file for MLX.  `folder`: where its converted weights are kept.  Raises ModelError for one it cannot
    take."""

    def __init__(self, llama: LlamaModel, path: Path, folder: Path, options: MlxOptions) -> None:
        why_not = refusal(llama.architecture, llama.file_type)
        if why_not:
            raise ModelError(f"{path.name}: {why_not}; --engine llamacpp reads it")
        self.tokenizer = llama.tokenizer
        self.template = llama.template
        self.options = options
        self._llama, self._path, self._folder = llama, path, folder
        weights = llama.card.weights_bytes * 8 / bits_of(llama.file_type)
        self.card = _on_this_device(llama.card, int(weights))

    def recipe(self, plan: LoadPlan) -> "Callable[[Callable[[], bool]], MlxBackend]":
        return partial(_loaded, self.weights_folder(), plan, self.tokenizer.vocab, self.options)

    def load(self, plan: LoadPlan, stopped: Callable[[], bool]) -> "MlxBackend":
        return self.recipe(plan)(stopped)

    def weights_folder(self) -> Path:
        """The weights as an MLX folder, converted now if they were not before.  Raises ModelError."""
        from batchrun.backends.mlx_gguf import converted

        return converted(self._path, self.card.identity, self._folder)

    def close(self) -> None:
        self._llama.close()


class MlxFolder:
    """A folder as `mlx_lm.convert` writes it.  Raises ModelError where one of its files cannot be read."""

    def __init__(self, folder: Path, name: str, identity: str, options: MlxOptions) -> None:
        self.options = options
        self._folder = folder
        config = read_json(folder / "config.json")
        text_config = config | config.get("text_config", {})
        ends = read_json(folder / "generation_config.json").get("eos_token_id", config.get("eos_token_id"))
        self.tokenizer = HfTokenizer(folder, text_config.get("vocab_size"), _numbers(ends))
        self.template = chat_template(
            self._template_text(), self.tokenizer.text_of("bos_token"), self.tokenizer.text_of("eos_token"), folder.name
        )
        after = after_an_answer(self.template, self.tokenizer)
        if after is not None and self.tokenizer.is_control(after):
            self.tokenizer.stop_tokens |= {after}
        quantization = text_config.get("quantization")
        size = weights_in(folder, quantization.get("bits", 32) if isinstance(quantization, dict) else 32)
        card = ModelCard(
            name=name,
            identity=identity,
            context_train=int(text_config.get("max_position_embeddings") or UNKNOWN_CONTEXT),
            weights_bytes=size.bytes,
            cell_bytes=_cell_bytes(text_config),
            notices=() if self.template.text else (NO_TEMPLATE.format(folder.name),),
        )
        self.card = _on_this_device(card, size.weights)

    def recipe(self, plan: LoadPlan) -> "Callable[[Callable[[], bool]], MlxBackend]":
        return partial(_loaded, self._folder, plan, self.tokenizer.vocab, self.options)

    def load(self, plan: LoadPlan, stopped: Callable[[], bool]) -> "MlxBackend":
        return self.recipe(plan)(stopped)

    def weights_folder(self) -> Path:
        return self._folder

    def close(self) -> None:
        pass

    def _template_text(self) -> str | None:
        file = self._folder / "chat_template.jinja"
        if file.is_file():
            return file.read_text(encoding="utf-8")
        found = self.tokenizer.config.get("chat_template")
        if isinstance(found, list):  # several, by name
            found = {entry.get("name"): entry.get("template") for entry in found}.get("default")
        return found if isinstance(found, str) else None


def _loaded(folder: Path, plan: LoadPlan, vocab: int, options: MlxOptions, stopped: Callable[[], bool]) -> "MlxBackend":
    from batchrun.backends.mlx_load import load_backend  # takes seconds to import, and `check` does without

    return load_backend(folder, plan, vocab, options, stopped)


def _on_this_device(card: ModelCard, weights: int) -> ModelCard:
    """The card, with what weights and cells take up once loaded, and a word on a slow processor."""
    if not on_a_processor():
        return card
    return replace(
        card,
        loaded_weights_bytes=weights * WIDE_BYTES,
        loaded_cell_bytes=card.cell_bytes * WIDE_BYTES // KV_ELEMENT_BYTES,
        notices=card.notices if openblas() else (*card.notices, MISSING),
    )


def _cell_bytes(config: dict[str, Any]) -> int:
    """Bytes of KV cache for one token, all layers: an upper bound (sliding windows and recurrent layers need less)."""
    heads = int(config.get("num_attention_heads") or 1)
    width = int(config.get("head_dim") or int(config.get("hidden_size") or 0) // heads)
    kv_heads = int(config.get("num_key_value_heads") or heads)
    return int(config.get("num_hidden_layers") or 0) * kv_heads * 2 * width * KV_ELEMENT_BYTES


def _numbers(value: Any) -> frozenset[int]:
    found = value if isinstance(value, list) else [value]
    return frozenset(number for number in found if isinstance(number, int))
