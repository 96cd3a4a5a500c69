"""Other number formats of the same weights, made by llama.cpp's own quantiser.

The same model can be twice as fast in another format on the same processor, because not every format has fast kernels
everywhere.  The original is never touched.  `copy_in_format` keeps a copy in the user's cache folder, under a name that
holds the original's identity; `write_in_format` writes one where it is told.
"""

import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import llama_cpp

from batchrun.backends.apart import run_apart
from batchrun.backends.llamacpp import quiet_log
from batchrun.errors import ModelError, OutputError

FORMATS: Mapping[str, int] = {
    "f32": llama_cpp.LLAMA_FTYPE_ALL_F32,
    "f16": llama_cpp.LLAMA_FTYPE_MOSTLY_F16,
    "bf16": llama_cpp.LLAMA_FTYPE_MOSTLY_BF16,
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q6_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q6_K,
    "q5_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_K_M,
    "q5_k_s": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_K_S,
    "q5_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_1,
    "q5_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q5_0,
    "q4_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_M,
    "q4_k_s": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_K_S,
    "q4_1": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_1,
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
    "iq4_nl": llama_cpp.LLAMA_FTYPE_MOSTLY_IQ4_NL,
    "iq4_xs": llama_cpp.LLAMA_FTYPE_MOSTLY_IQ4_XS,
    "q3_k_l": llama_cpp.LLAMA_FTYPE_MOSTLY_Q3_K_L,
    "q3_k_m": llama_cpp.LLAMA_FTYPE_MOSTLY_Q3_K_M,
    "q3_k_s": llama_cpp.LLAMA_FTYPE_MOSTLY_Q3_K_S,
    "q2_k": llama_cpp.LLAMA_FTYPE_MOSTLY_Q2_K,
}
"""What the quantiser writes without a matrix of importances, which smaller formats need; finest first."""

WHOLE = frozenset({"f32", "f16", "bf16"})
"""Formats that nothing was rounded off for."""


class WeightsCopy(NamedTuple):
    """A copy, and whether it was made just now."""

    path: Path
    made: bool


def format_name(file_type: int | None) -> str:
    """The name of a `general.file_type`, in small letters; `unknown` where it has none."""
    prefixes = ("LLAMA_FTYPE_MOSTLY_", "LLAMA_FTYPE_ALL_")
    names = (
        name.removeprefix(prefix).lower()
        for name, value in vars(llama_cpp).items()
        for prefix in prefixes
        if name.startswith(prefix) and value == file_type
    )
    return next(names, "unknown")


def copy_in_format(original: Path, identity: str, kind: str, folder: Path) -> WeightsCopy:
    """The file's weights in another format: from the folder, or made now.  Raises ModelError where that fails."""
    copy = folder / f"{original.stem}-{identity[:16]}-{kind}.gguf"
    if copy.is_file():
        return WeightsCopy(copy, made=False)
    unfinished = copy.with_suffix(f".{os.getpid()}.part")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _quantize(original, unfinished, kind)
        os.replace(unfinished, copy)
    except OSError as error:
        raise ModelError(f"{folder} cannot hold a copy of {original.name}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
    return WeightsCopy(copy, made=True)


def write_in_format(original: Path, kind: str, target: Path) -> None:
    """Writes the weights in another format, in a process of its own: the quantiser knows no signals, and a damaged file
    can end it.  Raises ModelError, OutputError; an unfinished file is taken away."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        done = run_apart("llamacpp_weights", original, unfinished, kind)
        if done.by:
            raise ModelError(f"{original.name} makes llama.cpp end by {done.by}; expected a sound GGUF file")
        if done.status:
            raise ModelError(done.words or f"llama.cpp could not write {original.name} as {kind}")
        os.replace(unfinished, target)
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def _quantize(original: Path, target: Path, kind: str) -> None:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FORMATS[kind]
    params.allow_requantize = True
    log = quiet_log()
    log.clear()
    code = llama_cpp.llama_model_quantize(os.fsencode(original), os.fsencode(target), params)
    if code:
        raise ModelError(f"llama.cpp could not write {original.name} as {kind}: {log.reason()}")


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    original, target, kind = sys.argv[1:]
    try:
        _quantize(Path(original), Path(target), kind)
    except ModelError as error:
        print(error, file=sys.stderr)
        sys.exit(ModelError.exit_code)


if __name__ == "__main__":
    main()
