"""Other forms of a model: number formats by llama.cpp's quantiser, MLX folders by mlx-lm.

Nothing here writes a GGUF from safetensors: no library does it for all architectures, llama.cpp's own script does.
"""

import contextlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path

from batchrun.backends.probe import probe
from batchrun.byte_counts import file_size
from batchrun.catalogue.card import json_object
from batchrun.config import Settings
from batchrun.engines import Weights, check_llama_cpp, not_loaded, opened
from batchrun.errors import ModelError, OutputError, UsageError
from batchrun.models import identity, is_mlx_folder, locate, opened_folder

BITS = {"8bit": 8, "6bit": 6, "4bit": 4, "3bit": 3, "2bit": 2}
"""Formats of MLX folders."""

TO_GGUF = "python convert_hf_to_gguf.py FOLDER --outfile FILE.gguf (a script of llama.cpp's repository)"


def quantize(name: str, kind: str, output: Path, *, force: bool, say: Callable[[str], None]) -> None:
    """Writes a model in another number format: a GGUF as a GGUF, a folder of safetensors as an MLX folder.

    Raises UsageError for a format that does not fit, or a place that is taken; OutputError for one that cannot be
    written; ModelError where it fails.
    """
    original = _located(name)
    if original.is_dir():
        _folder(original, output, kind)
        return
    check_llama_cpp()
    from batchrun.backends.llamacpp_weights import FORMATS, WHOLE, format_name, write_in_format

    kind = kind.lower()
    if kind not in FORMATS:
        raise UsageError(f"--to is {kind!r}; expected {', '.join(FORMATS)} for a GGUF")
    if output.is_dir() or (output.exists() and not force):
        raise UsageError(f"{output} is there; expected another name, or --force")
    if output.exists() and output.samefile(original):
        raise UsageError(f"{output} is the model itself; expected another name")
    _check_writable(output, output.parent)
    from batchrun.backends.llamacpp_model import LlamaModel

    probe(original, identity(original), opened_folder())
    model = LlamaModel(original, original.name, "")
    now = format_name(model.file_type)
    model.close()
    if now not in WHOLE:
        say(
            f"{original.name} is {now} already, so numbers are rounded twice; an f16 or bf16 original gives better ones"
        )
    write_in_format(original, kind, output)


def convert(name: str, output: Path | None, *, say: Callable[[str], None]) -> Path:
    """Writes a folder of safetensors as an MLX folder; puts a GGUF's weights into the MLX folder that runs use.

    Raises UsageError, OutputError, ModelError.
    """
    original = _located(name)
    if original.is_dir():
        if output is None:
            raise UsageError("-o is missing; expected the MLX folder to write")
        _folder(original, output, None)
        return output
    if output is not None:
        raise UsageError(
            "a GGUF's weights are kept in the user's cache folder, where --engine mlx looks for them: no library here "
            "writes its tokenizer as a folder has it; expected no -o"
        )
    check_llama_cpp()
    probe(original, identity(original), opened_folder())
    model = opened(Settings(model=name, engine="mlx"), "mlx", original, Weights(original, "as-is"))
    from batchrun.backends.mlx_model import MlxGguf

    assert isinstance(model, MlxGguf), "a file for MLX is a GGUF"
    say(f"{original.name}: {file_size(model.card.weights_bytes)} of weights, for --engine mlx")
    try:
        return model.weights_folder()
    finally:
        model.close()


def _folder(original: Path, output: Path, kind: str | None) -> None:
    if kind is not None and kind not in BITS:
        raise UsageError(f"--to is {kind!r}; expected {', '.join(BITS)} for a folder")
    if output.suffix == ".gguf":
        raise UsageError(f"no library here writes a GGUF from safetensors; {TO_GGUF}")
    if not is_mlx_folder(original):
        raise ModelError(f"{original} is no folder of safetensors; expected config.json and model*.safetensors in it")
    config = json_object(original / "config.json")
    if kind is not None and config.get("quantization"):
        raise UsageError(f"{original} is quantised already; expected one with whole weights")
    if output.exists():
        raise UsageError(f"{output} is there; expected a folder that is not")
    _check_writable(output, next(folder for folder in output.absolute().parents if os.path.exists(folder)))
    try:
        from batchrun.backends.mlx_convert import write_folder
    except ImportError as error:
        raise not_loaded(error) from error
    write_folder(original, output, BITS[kind] if kind else None)


def _check_writable(output: Path, folder: Path) -> None:
    """Before a long work.  Raises OutputError.  Tried with a file that has no name."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise OutputError(f"{output} cannot be written: {error.strerror}") from error


def _located(name: str) -> Path:
    """Of a folder the path, though `locate` may refuse it, for a better word on it.  Raises ModelError."""
    with contextlib.suppress(OSError, RuntimeError):  # a name too long for a path, or the home of nobody
        folder = Path(name).expanduser()
        if not name.startswith("hf:") and folder.is_dir():
            return folder
    return locate(name)
