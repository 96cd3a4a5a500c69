"""Which engine runs a model, and the model opened for it.

`auto` is MLX on Apple silicon, where it is the fast one, if it can read the model; llama.cpp otherwise.
"""

import importlib.util
import platform
import sys
from dataclasses import dataclass
from pathlib import Path

from batchrun.backends.base import Model
from batchrun.config import Settings
from batchrun.errors import ModelError
from batchrun.models import EMBEDDED, cache_folder, identity, is_mlx_folder

INSTALL_MLX = "pip install 'batchrun-llm[mlx]'"
NO_LLAMA = "the llama.cpp engine is not installed; run: pip install llama-cpp-python"


@dataclass(frozen=True, slots=True)
class Weights:
    """The file or folder to load, the number format it is in, and what to say about that."""

    path: Path
    kind: str
    notices: tuple[str, ...] = ()


def engine_for(settings: Settings, path: Path) -> str:
    """The engine that runs a model: the one asked for, or the best one here.  Raises ModelError where none can."""
    engine = settings.engine
    if engine == "auto":
        apple = sys.platform == "darwin" and platform.machine() == "arm64" and bool(importlib.util.find_spec("mlx_lm"))
        engine = "mlx" if apple and _mlx_reads(path) else "llamacpp"
    if engine == "llamacpp":
        check_llama_cpp()
    if engine == "llamacpp" and is_mlx_folder(path):
        raise ModelError(f"model {settings.model} is an MLX folder, which llama.cpp cannot read; expected --engine mlx")
    return engine


def check_llama_cpp() -> None:
    """Raises ModelError where llama.cpp is not installed."""
    if importlib.util.find_spec("llama_cpp") is None:
        raise ModelError(NO_LLAMA)


def not_loaded(error: ImportError) -> ModelError:
    """Of the MLX engine, which reads GGUF files with llama.cpp: says which of its libraries is missing or broken."""
    name = (error.name or "").partition(".")[0]
    if name == "llama_cpp":
        return ModelError(f"the mlx engine needs llama.cpp: {NO_LLAMA}")
    if isinstance(error, ModuleNotFoundError):
        return ModelError(f"the mlx engine is not installed ({error}); run: {INSTALL_MLX}")
    return ModelError(f"the mlx engine cannot be loaded ({error}); run: {INSTALL_MLX} --force-reinstall")


def opened(settings: Settings, engine: str, original: Path, weights: Weights) -> Model:
    """The model, without its weights.  Raises ModelError."""
    name = settings.model if settings.model == EMBEDDED else original.name
    label = name if weights.path == original else f"{name} as {weights.kind}"
    if engine == "mlx":
        return _mlx_model(settings, label, weights)
    from batchrun.backends.llamacpp_model import LlamaModel

    return LlamaModel(weights.path, label, identity(weights.path), weights.notices)


def _mlx_model(settings: Settings, label: str, weights: Weights) -> Model:
    if settings.kv == "q8_0" or settings.flash is False:
        raise ModelError("the mlx engine has one cache format and one attention; expected no --kv q8_0 or --no-flash")
    try:
        from batchrun.backends.mlx_device import MlxOptions
        from batchrun.backends.mlx_model import MlxFolder, MlxGguf
    except ImportError as error:
        raise not_loaded(error) from error
    wired_bytes = None if settings.mlx_wired_mib is None else settings.mlx_wired_mib << 20
    options = MlxOptions(settings.chain, settings.mlx_cache_mib << 20, wired_bytes)
    if weights.path.is_dir():
        return MlxFolder(weights.path, label, identity(weights.path), options)
    from batchrun.backends.llamacpp_model import LlamaModel

    llama = LlamaModel(weights.path, label, identity(weights.path), weights.notices)
    return MlxGguf(llama, weights.path, cache_folder(), options)


def _mlx_reads(path: Path) -> bool:
    if path.is_dir():
        return True
    from batchrun.backends.gguf_config import refusal
    from batchrun.backends.llamacpp_model import LlamaModel

    llama = LlamaModel(path, path.name, "")
    try:
        return refusal(llama.architecture, llama.file_type) is None
    finally:
        llama.close()
