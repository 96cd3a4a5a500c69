"""MLX folders from folders of safetensors as they come from the hub, written by mlx-lm."""

import contextlib
import io
import os
import shutil
from pathlib import Path

from batchrun.backends.mlx_library import convert
from batchrun.backends.mlx_load import FAILURES as LOAD_FAILURES
from batchrun.errors import ModelError, OutputError

# what mlx-lm, transformers and MLX let out where they cannot read a model
FAILURES = (*LOAD_FAILURES, ImportError)


def write_folder(source: Path, target: Path, bits: int | None) -> None:
    """Writes the model as an MLX folder, `bits` a weight; None keeps its floats.  Raises ModelError, OutputError.

    `target`: must not be there; an unfinished folder is taken away.
    """
    unfinished = target.with_name(f".{target.name}.{os.getpid()}.part")
    said = io.StringIO()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with contextlib.redirect_stdout(said):
            convert(str(source), str(unfinished), quantize=bits is not None, q_bits=bits)
        os.replace(unfinished, target)
    except FAILURES as error:
        raise ModelError(f"mlx-lm cannot convert {source}: {' '.join(str(error).split())[:200]}") from error
    except OSError as error:
        raise OutputError(f"{target} cannot be written: {error.strerror or error}") from error
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
