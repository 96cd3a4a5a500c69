"""Other number formats of the same weights, made by llama.cpp's own quantiser and kept in the user's cache folder.

The same model can be twice as fast in another format on the same processor, because not every format has fast kernels
everywhere.  The original is never touched; a copy is made once, under a name that holds the original's identity.
"""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import llama_cpp

from batchrun.backends.llamacpp import quiet_log
from batchrun.errors import ModelError

FORMATS: Mapping[str, int] = {
    "q8_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q8_0,
    "q4_0": llama_cpp.LLAMA_FTYPE_MOSTLY_Q4_0,
}


class WeightsCopy(NamedTuple):
    """A copy, and whether it was made just now."""

    path: Path
    made: bool


def copy_in_format(original: Path, identity: str, kind: str, folder: Path) -> WeightsCopy:
    """The file's weights in another format: from the folder, or made now.  Raises ModelError where that fails."""
    copy = folder / f"{original.stem}-{identity[:16]}-{kind}.gguf"
    if copy.is_file():
        return WeightsCopy(copy, made=False)
    unfinished = copy.with_suffix(f".{os.getpid()}.part")
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FORMATS[kind]
    params.allow_requantize = True
    log = quiet_log()
    log.clear()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        code = llama_cpp.llama_model_quantize(os.fsencode(original), os.fsencode(unfinished), params)
        if code:
            raise ModelError(f"llama.cpp could not write {original.name} as {kind}: {log.reason()}")
        os.replace(unfinished, copy)
    except OSError as error:
        raise ModelError(f"{folder} cannot hold a copy of {original.name}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()
    return WeightsCopy(copy, made=True)
