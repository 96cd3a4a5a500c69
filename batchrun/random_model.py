"""`random:1.1b` and the like: llama-architecture GGUF files with random weights and the embedded model's vocabulary.

What such a model says means nothing; what it costs is what a real model of its size costs.  It makes the memory-bound
case measurable with nothing to download.
"""

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from batchrun.errors import ModelError

PREFIX = "random:"
BLOCK = 32  # weights in a Q8_0 block: one 16-bit scale and 32 bytes
SEED = 7


@dataclass(frozen=True, slots=True)
class Shape:
    """Dimensions of a llama."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    inner: int
    context: int = 8192


SIZES: Mapping[str, Shape] = {
    "0.1b": Shape(12, 768, 12, 4, 2048),
    "0.3b": Shape(16, 1024, 16, 4, 2816),
    "1.1b": Shape(22, 2048, 32, 4, 5632),
    "3b": Shape(26, 3200, 32, 8, 8640),
}


def written(name: str, vocabulary: Path, folder: Path) -> Path:
    """The file of a random model, written now if it is not there.  `vocabulary`: the GGUF whose tokenizer it gets.

    Raises ModelError for a size that is not known, and where the `bench` extra is missing.
    """
    size = name.removeprefix(PREFIX)
    if size not in SIZES:
        raise ModelError(f"model {name} is unknown; expected random: and one of {', '.join(SIZES)}")
    path = folder / f"random-{size}.q8_0.gguf"
    if not path.is_file():
        unfinished = path.with_suffix(f".{os.getpid()}.part")
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write(unfinished, SIZES[size], vocabulary)
            os.replace(unfinished, path)
        except ImportError as error:
            raise ModelError("writing random models needs: pip install 'batchrun-llm[bench]'") from error
        except OSError as error:
            raise ModelError(f"{folder} cannot hold {path.name}: {error.strerror}") from error
        finally:
            with contextlib.suppress(OSError):
                unfinished.unlink()
    return path


def _write(path: Path, shape: Shape, vocabulary: Path) -> None:
    from gguf import GGUFReader, GGUFWriter

    reader = GGUFReader(vocabulary)
    writer = GGUFWriter(path, "llama")
    for field in reader.fields.values():
        if field.name.startswith("tokenizer."):
            inner = field.types[1] if len(field.types) > 1 else None
            writer.add_key_value(field.name, field.contents(), field.types[0], inner)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.width)
    writer.add_block_count(shape.layers)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_rope_dimension_count(shape.width // shape.heads)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_file_type(7)
    words = len(reader.fields["tokenizer.ggml.tokens"].data)
    _add_tensors(writer, shape, words)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tensors(writer: "GGUFWriter", shape: Shape, words: int) -> None:  # type: ignore[name-defined]  # noqa: F821
    from gguf import GGMLQuantizationType

    random = np.random.default_rng(SEED)
    kv_width = shape.width // shape.heads * shape.kv_heads

    def add(name: str, rows: int, columns: int) -> None:
        writer.add_tensor(name, _blocks(random, rows, columns), raw_dtype=GGMLQuantizationType.Q8_0)

    def add_norm(name: str) -> None:
        writer.add_tensor(name, np.ones(shape.width, np.float32))

    add("token_embd.weight", words, shape.width)
    add_norm("output_norm.weight")
    for layer in range(shape.layers):
        block = f"blk.{layer}"
        add_norm(f"{block}.attn_norm.weight")
        add_norm(f"{block}.ffn_norm.weight")
        add(f"{block}.attn_q.weight", shape.width, shape.width)
        add(f"{block}.attn_k.weight", kv_width, shape.width)
        add(f"{block}.attn_v.weight", kv_width, shape.width)
        add(f"{block}.attn_output.weight", shape.width, shape.width)
        add(f"{block}.ffn_gate.weight", shape.inner, shape.width)
        add(f"{block}.ffn_up.weight", shape.inner, shape.width)
        add(f"{block}.ffn_down.weight", shape.width, shape.inner)


def _blocks(random: np.random.Generator, rows: int, columns: int) -> NDArray[np.uint8]:
    """A random matrix as Q8_0 blocks: uint8[rows, columns / 32 * 34], standard deviation about 1 / sqrt(columns)."""
    assert columns % BLOCK == 0, "a row is whole blocks"
    blocks = np.empty((rows, columns // BLOCK, 2 + BLOCK), np.uint8)
    scale = np.array([1 / (74 * columns**0.5)], np.float16)  # the bytes themselves deviate by 74
    blocks[:, :, :2] = scale.view(np.uint8)
    blocks[:, :, 2:] = np.frombuffer(random.bytes(rows * columns), np.uint8).reshape(rows, -1, BLOCK)
    return blocks.reshape(rows, -1)
