"""What one model is, read without its weights: architecture, number format, context, template, licence, stop tokens."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.backends.base import Model
from batchrun.backends.probe import probe
from batchrun.backends.safetensors_size import weights_in
from batchrun.catalogue.folder_files import shards
from batchrun.config import Settings
from batchrun.core import Message
from batchrun.engines import Weights, engine_for, opened
from batchrun.errors import JobError, ModelError
from batchrun.models import identity, locate, opened_folder

SAMPLE = "PROMPT"
CARD = "README.md"
CARD_BYTES = 1 << 16
_LICENCE = re.compile(r"^license(?:_name)?:[ \t]*['\"]?([^\s'\"]+)", re.M)
_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*$", re.S | re.M)


@dataclass(frozen=True, slots=True)
class Card:
    """`rendered`: a prompt as the template writes it; empty where it refuses.  None: the model does not say."""

    model: str
    path: Path
    kind: str
    architecture: str
    parameters: int
    quantisation: str
    size_bytes: int
    context_tokens: int
    vocabulary_tokens: int
    cache_bytes_per_token: int
    template: str
    rendered: str
    licence: str | None
    stop_tokens: tuple[str, ...]

    @property
    def bits_per_weight(self) -> float:
        return 8 * self.size_bytes / self.parameters if self.parameters else 0.0


def card(name: str) -> Card:
    """Opens a model and reads its card.  Raises ModelError."""
    path = locate(name)
    is_folder = path.is_dir()
    settings = Settings(model=name, engine="mlx" if is_folder else "llamacpp")
    engine = engine_for(settings, path)
    if not is_folder:
        probe(path, identity(path), opened_folder())
    model = opened(settings, engine, path, Weights(path, "as-is"))
    try:
        return _mlx_card(name, path, model) if is_folder else _gguf_card(name, path, model)
    finally:
        model.close()


def _gguf_card(name: str, path: Path, model: Model) -> Card:
    from batchrun.backends.llamacpp_model import LlamaModel
    from batchrun.backends.llamacpp_weights import format_name

    assert isinstance(model, LlamaModel), "a GGUF is opened by llama.cpp"
    parts = [path.with_name(part) for part in shards(path.name)]
    return Card(
        model=name,
        path=path,
        kind="GGUF",
        architecture=model.architecture,
        parameters=model.parameters,
        quantisation=format_name(model.file_type),
        size_bytes=sum(part.stat().st_size for part in parts if part.is_file()),
        context_tokens=model.card.context_train,
        vocabulary_tokens=model.tokenizer.vocab,
        cache_bytes_per_token=model.card.cell_bytes,
        template=model.template.text,
        rendered=_rendered(model),
        licence=model.metadata("general.license") or written_licence(path),
        stop_tokens=tuple(model.tokenizer.text_of(token) for token in sorted(model.tokenizer.stop_tokens)),
    )


def _mlx_card(name: str, path: Path, model: Model) -> Card:
    config = json_object(path / "config.json")
    quantised = config.get("quantization") or {}
    bits = quantised.get("bits") if isinstance(quantised, dict) else None
    size = weights_in(path, bits or 32)
    added = json_object(path / "tokenizer.json").get("added_tokens") or []
    texts = {entry.get("id"): str(entry.get("content")) for entry in added if isinstance(entry, dict)}
    return Card(
        model=name,
        path=path,
        kind="MLX",
        architecture=str(config.get("model_type", "unknown")),
        parameters=size.weights,
        quantisation=f"{bits}bit" if bits else str(config.get("dtype") or config.get("torch_dtype") or "unknown"),
        size_bytes=size.bytes,
        context_tokens=model.card.context_train,
        vocabulary_tokens=model.tokenizer.vocab,
        cache_bytes_per_token=model.card.cell_bytes,
        template=model.template.text,
        rendered=_rendered(model),
        licence=written_licence(path / "config.json"),
        stop_tokens=tuple(texts.get(token, str(token)) for token in sorted(model.tokenizer.stop_tokens)),
    )


def written_licence(file: Path) -> str | None:
    """The licence that a model card beside a file names, as the hub wants cards to (`license:` in its front matter)."""
    folders = [file.parent, *(folder for folder in file.parents if folder.parent.name == "snapshots")]
    found = next((folder for folder in folders if (folder / CARD).is_file()), None)
    return _licence_of(found / CARD) if found else None


def _licence_of(readme: Path) -> str | None:
    try:
        with readme.open(encoding="utf-8", errors="replace") as file:
            front = _FRONT_MATTER.search(file.read(CARD_BYTES))
    except OSError:
        return None
    found = _LICENCE.findall(front[1]) if front else []
    return next((name for name in reversed(found) if name != "other"), found[0] if found else None)


def _rendered(model: Model) -> str:
    try:
        return model.template.render([Message("user", SAMPLE)])
    except JobError:
        return ""


def json_object(path: Path) -> dict[str, Any]:
    """What a file holds, empty where that is no object.  Raises ModelError where it is no JSON."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from error
    return found if isinstance(found, dict) else {}
