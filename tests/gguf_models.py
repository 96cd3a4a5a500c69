"""Tiny GGUF files with random weights: every architecture that both engines know, in every number format they share.

The vocabulary is all bytes, one merge, and three control tokens, so nothing needs to be downloaded and a file is
written in milliseconds.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType, TokenType
from gguf.quants import quantize

FORMATS = {
    "F32": (GGMLQuantizationType.F32, LlamaFileType.ALL_F32),
    "F16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "Q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "Q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
    "Q4_1": (GGMLQuantizationType.Q4_1, LlamaFileType.MOSTLY_Q4_1),
}
TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
CONTROL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
WIDTH, INNER, HEADS, KV_HEADS, HEAD_WIDTH, CONTEXT = 64, 96, 4, 2, 32, 512
WINDOW = 40  # of gemma3's sliding layers


@dataclass(frozen=True, slots=True)
class Tiny:
    """What to write."""

    architecture: str = "llama"
    kind: str = "F32"
    tied: bool = False
    seed: int = 0
    file_type: int | None = None  # what the file says of itself; None: the truth
    linear_rope: float | None = None
    rope_factors: tuple[float, ...] = ()
    extra_tensor: str | None = None

    @property
    def layers(self) -> int:
        return 6 if self.architecture == "gemma3" else 2

    @property
    def head_width(self) -> int:
        """qwen2 has no say in it in mlx-lm."""
        return WIDTH // HEADS if self.architecture == "qwen2" else HEAD_WIDTH


def vocabulary() -> tuple[list[str], list[int]]:
    """Tokens in GPT-2's spelling of bytes, and their types."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    spelled = [chr(byte) if byte in plain else chr(next(others)) for byte in range(256)]
    types = [TokenType.NORMAL] * 257 + [TokenType.CONTROL] * len(CONTROL)
    return [*spelled, "th", *CONTROL], [int(kind) for kind in types]


def write_gguf(path: Path, tiny: Tiny) -> Path:
    writer = GGUFWriter(path, tiny.architecture)
    _describe(writer, tiny)
    tokens, types = vocabulary()
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["t h"])
    writer.add_eos_token_id(tokens.index("<|im_end|>"))
    writer.add_bos_token_id(tokens.index("<|im_start|>"))
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    kind = FORMATS[tiny.kind][0]
    random = np.random.default_rng(tiny.seed)
    for name, shape in _shapes(tiny, len(tokens)):
        if len(shape) == 1:
            writer.add_tensor(name, random.normal(1 if "norm" in name else 0, 0.1, shape).astype(np.float32))
            continue
        spread = 1.0 if name == "token_embd.weight" else 5.0 / shape[-1] ** 0.5 if "output." in name else 1.0 / 5
        matrix = quantize(random.normal(0, spread, shape).astype(np.float32), kind)
        writer.add_tensor(name, matrix, raw_dtype=kind)
    if tiny.rope_factors:
        writer.add_tensor("rope_freqs.weight", np.array(tiny.rope_factors, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _describe(writer: GGUFWriter, tiny: Tiny) -> None:
    writer.add_file_type(FORMATS[tiny.kind][1] if tiny.file_type is None else tiny.file_type)
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(tiny.layers)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(tiny.head_width)
    writer.add_value_length(tiny.head_width)
    writer.add_rope_dimension_count(tiny.head_width)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(50000.0)
    if tiny.architecture == "gemma3":
        writer.add_sliding_window(WINDOW)
    if tiny.linear_rope:
        writer.add_string(f"{tiny.architecture}.rope.scaling.type", "linear")
        writer.add_float32(f"{tiny.architecture}.rope.scaling.factor", tiny.linear_rope)


def _shapes(tiny: Tiny, words: int) -> Iterator[tuple[str, tuple[int, ...]]]:
    queries, keys = HEADS * tiny.head_width, KV_HEADS * tiny.head_width
    yield "token_embd.weight", (words, WIDTH)
    yield "output_norm.weight", (WIDTH,)
    if not tiny.tied and tiny.architecture != "gemma3":
        yield "output.weight", (words, WIDTH)
    for layer in range(tiny.layers):
        block = f"blk.{layer}"
        yield f"{block}.attn_norm.weight", (WIDTH,)
        yield f"{block}.ffn_norm.weight", (WIDTH,)
        yield f"{block}.attn_q.weight", (queries, WIDTH)
        yield f"{block}.attn_k.weight", (keys, WIDTH)
        yield f"{block}.attn_v.weight", (keys, WIDTH)
        yield f"{block}.attn_output.weight", (WIDTH, queries)
        yield f"{block}.ffn_gate.weight", (INNER, WIDTH)
        yield f"{block}.ffn_up.weight", (INNER, WIDTH)
        yield f"{block}.ffn_down.weight", (WIDTH, INNER)
        if tiny.architecture == "qwen2":
            for part, width in (("q", queries), ("k", keys), ("v", keys)):
                yield f"{block}.attn_{part}.bias", (width,)
        if tiny.architecture in ("qwen3", "gemma3"):
            yield f"{block}.attn_q_norm.weight", (tiny.head_width,)
            yield f"{block}.attn_k_norm.weight", (tiny.head_width,)
        if tiny.architecture == "gemma3":
            yield f"{block}.post_attention_norm.weight", (WIDTH,)
            yield f"{block}.post_ffw_norm.weight", (WIDTH,)
    if tiny.extra_tensor:
        yield tiny.extra_tensor, (WIDTH, WIDTH)
