"""The tokenizer of an MLX folder: `tokenizer.json` and what lies beside it.

Text becomes tokens by Hugging Face's `tokenizers`, and tokens bytes by llguidance, which knows what every token stands
for; neither loads a model library.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from llguidance import LLTokenizer
from tokenizers import Tokenizer as Tokens

from batchrun.errors import ModelError

ENDS = frozenset(
    {"<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|endoftext|>", "<|end_of_text|>", "<|end|>", "<end_of_turn>", "<eos>"}
)
"""Control tokens that end an answer in whatever vocabulary they stand."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, empty where there is no such file.  Raises ModelError for one that is broken."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}


class HfTokenizer:
    """`vocab`: width of a row of logits; `ends`: tokens that the model's configuration calls an end."""

    def __init__(self, folder: Path, vocab: int | None, ends: frozenset[int]) -> None:
        file = folder / "tokenizer.json"
        if not file.is_file():
            raise ModelError(f"{folder} holds no tokenizer.json; expected a folder as mlx_lm.convert writes it")
        try:
            self._tokens = Tokens.from_file(str(file))
        except Exception as error:  # the library raises no narrower one
            raise ModelError(f"{file} cannot be read: {' '.join(str(error).split())[:200]}") from error
        self._tokens.no_padding()
        self._tokens.no_truncation()
        self.config = read_json(folder / "tokenizer_config.json")
        self.vocab = vocab or self._tokens.get_vocab_size(with_added_tokens=True)
        added = self._tokens.get_added_tokens_decoder()
        self._control = {token: str(entry.content) for token, entry in added.items() if entry.special}
        self.control_texts = tuple(self._control.values())
        named = {token for token, text in self._control.items() if text in ENDS or text == self.text_of("eos_token")}
        self.stop_tokens = ends | named
        self.bos = self._bos()
        self._guide: LLTokenizer | None = None

    def encode(self, text: str, *, control: bool) -> list[int]:
        self._tokens.encode_special_tokens = not control
        return list(self._tokens.encode(text, add_special_tokens=False).ids)

    def decode(self, tokens: Sequence[int]) -> bytes:
        return bytes(self.for_guide().decode_bytes([token for token in tokens if token not in self._control]))

    def with_bos(self, tokens: list[int]) -> list[int]:
        return tokens if self.bos is None or tokens[:1] == [self.bos] else [self.bos, *tokens]

    def for_guide(self) -> LLTokenizer:
        if self._guide is None:
            self._guide = LLTokenizer(self._tokens.to_str(), n_vocab=self.vocab, eos_token=sorted(self.stop_tokens))
        return self._guide

    def is_control(self, token: int) -> bool:
        return token in self._control

    def text_of(self, role: str) -> str:
        """The text of a token that the configuration names by its role, such as `bos_token`; empty if it has none."""
        named = self.config.get(role)
        return str(named.get("content", "") if isinstance(named, Mapping) else named or "")

    def _bos(self) -> int | None:
        """The token that belongs in front of every text: as the configuration says, or as the tokenizer does."""
        wanted = self.config.get("add_bos_token")
        token = self._tokens.token_to_id(self.text_of("bos_token"))
        if wanted is not None:
            return token if wanted else None
        self._tokens.encode_special_tokens = False
        first = self._tokens.encode("a", add_special_tokens=True).ids[0]
        return first if first == token else None
