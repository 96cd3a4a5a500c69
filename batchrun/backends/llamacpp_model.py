"""A GGUF file, opened without its weights: tokenizer, chat template, and what a token costs in memory.

Loads llama.cpp's vocabulary only (tens of milliseconds), so that `check`, the length of every prompt and the slot
plan need no weights.  `LlamaModel.load` hands over to `llamacpp.py`.
"""

import ctypes
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from pathlib import Path

import llama_cpp
from llguidance import LLTokenizer
from llguidance.llamacpp import lltokenizer_from_vocab

from batchrun.backends.base import ChatTemplate, LoadPlan, ModelCard
from batchrun.backends.chat_template import NO_TEMPLATE, after_an_answer, chat_template
from batchrun.backends.llamacpp import LlamaBackend, quiet_log
from batchrun.errors import ModelError

KV_ELEMENT_BYTES = 2  # keys and values are kept as 16-bit floats


class LlamaTokenizer:
    """The vocabulary of a GGUF file."""

    def __init__(self, vocab: llama_cpp.llama_vocab_p) -> None:
        self._vocab = vocab
        self._pieces: dict[int, bytes] = {}
        self.vocab: int = llama_cpp.llama_vocab_n_tokens(vocab)
        self.bos: int | None = llama_cpp.llama_vocab_bos(vocab) if llama_cpp.llama_vocab_get_add_bos(vocab) else None
        named = {llama_cpp.llama_vocab_eos(vocab), llama_cpp.llama_vocab_eot(vocab)}
        ends = {token for token in range(self.vocab) if llama_cpp.llama_vocab_is_eog(vocab, token)}
        self.stop_tokens = frozenset(ends | {token for token in named if token >= 0})
        control = (token for token in range(self.vocab) if llama_cpp.llama_vocab_is_control(vocab, token))
        spelled = (llama_cpp.llama_vocab_get_text(vocab, token).decode(errors="replace") for token in control)
        self.control_texts = tuple(text for text in spelled if text)

    def encode(self, text: str, *, control: bool) -> list[int]:
        data = text.encode()
        room = len(data) + 8
        tokens = (llama_cpp.llama_token * room)()
        count = llama_cpp.llama_tokenize(self._vocab, data, len(data), tokens, room, False, control)
        assert count >= 0, "a token stands for at least one byte"
        return list(tokens[:count])

    def decode(self, tokens: Sequence[int]) -> bytes:
        return b"".join(self._piece(token) for token in tokens)

    def with_bos(self, tokens: list[int]) -> list[int]:
        return tokens if self.bos is None or tokens[:1] == [self.bos] else [self.bos, *tokens]

    def for_guide(self) -> LLTokenizer:
        return lltokenizer_from_vocab(self._vocab, eos_token=sorted(self.stop_tokens))

    def is_control(self, token: int) -> bool:
        return bool(llama_cpp.llama_vocab_is_control(self._vocab, token))

    def text_of(self, token: int) -> str:
        return str(llama_cpp.llama_vocab_get_text(self._vocab, token).decode(errors="replace")) if token >= 0 else ""

    def _piece(self, token: int) -> bytes:
        piece = self._pieces.get(token)
        if piece is None:
            room = 128
            buffer = ctypes.create_string_buffer(room)
            length = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, room, 0, False)
            if length < 0:
                buffer = ctypes.create_string_buffer(-length)
                length = llama_cpp.llama_token_to_piece(self._vocab, token, buffer, -length, 0, False)
            piece = self._pieces[token] = buffer.raw[:length]
        return piece


class LlamaModel:
    """A GGUF file, opened.  Raises ModelError where llama.cpp cannot read it."""

    def __init__(self, path: Path, name: str, identity: str, notices: tuple[str, ...] = ()) -> None:
        log = quiet_log()
        params = llama_cpp.llama_model_default_params()
        params.vocab_only = True
        log.clear()
        self._path = path
        self._model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if not self._model:
            raise ModelError(f"llama.cpp cannot read {path.name}: {log.reason()}")
        vocab = llama_cpp.llama_model_get_vocab(self._model)
        self.tokenizer = LlamaTokenizer(vocab)
        if not self.tokenizer.vocab:
            raise ModelError(f"{path.name} holds no vocabulary; expected a text-generation model")
        self.template = self._template(vocab)
        self._add_template_end()
        self.card = ModelCard(
            name=name,
            identity=identity,
            context_train=self._number("context_length", 2048),
            weights_bytes=path.stat().st_size,
            cell_bytes=self._cell_bytes(),
            path=path,
            notices=notices + (() if self.template.text else (NO_TEMPLATE.format(path.name),)),
            licence=self.metadata("general.license") or "",
        )

    def recipe(self, plan: LoadPlan) -> Callable[[Callable[[], bool]], LlamaBackend]:
        return partial(LlamaBackend, self._path, plan, self.tokenizer.vocab)

    def load(self, plan: LoadPlan, stopped: Callable[[], bool]) -> LlamaBackend:
        return self.recipe(plan)(stopped)

    def close(self) -> None:
        if self._model:
            llama_cpp.llama_model_free(self._model)
            self._model = None

    @cached_property
    def architecture(self) -> str:
        return self.metadata("general.architecture") or "llama"

    @property
    def file_type(self) -> int | None:
        """The number format of most of its weights (`general.file_type`), where the file says it."""
        text = self.metadata("general.file_type")
        return int(text) if text and text.isdigit() else None

    @property
    def parameters(self) -> int:
        """Weights there are, of all tensors."""
        return int(llama_cpp.llama_model_n_params(self._model))

    def metadata(self, key: str) -> str | None:
        """What the file says under a key, its first 255 bytes."""
        buffer = ctypes.create_string_buffer(256)
        length = llama_cpp.llama_model_meta_val_str(self._model, key.encode(), buffer, len(buffer))
        return buffer.value.decode(errors="replace") if length >= 0 else None

    def _number(self, key: str, default: int) -> int:
        """A number of this architecture.  A list (one entry a layer) counts by its largest entry."""
        text = self.metadata(f"{self.architecture}.{key}") or ""
        numbers = [int(part) for part in text.strip("[]").replace(",", " ").split() if part.isdigit()]
        return max(numbers, default=default)

    def _cell_bytes(self) -> int:
        """Bytes of KV cache for one token, all layers: an upper bound (sliding windows need less)."""
        heads = self._number("attention.head_count", 1)
        width = self._number("embedding_length", 0) // max(heads, 1)
        key = self._number("attention.key_length", width)
        value = self._number("attention.value_length", width)
        kv_heads = self._number("attention.head_count_kv", heads)
        return self._number("block_count", 0) * kv_heads * (key + value) * KV_ELEMENT_BYTES

    def _template(self, vocab: llama_cpp.llama_vocab_p) -> ChatTemplate:
        source = llama_cpp.llama_model_chat_template(self._model, None)
        bos = self.tokenizer.text_of(llama_cpp.llama_vocab_bos(vocab))
        eos = self.tokenizer.text_of(llama_cpp.llama_vocab_eos(vocab))
        return chat_template(source.decode(errors="replace") if source else None, bos, eos, self._path.name)

    def _add_template_end(self) -> None:
        """What the template writes after an answer ends an answer, whatever the vocabulary says of it."""
        after = after_an_answer(self.template, self.tokenizer)
        if after is not None and self.tokenizer.is_control(after):
            self.tokenizer.stop_tokens |= {after}
