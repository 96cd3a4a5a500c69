"""How much a folder of safetensors files holds, from their headers alone."""

import json
import math
import struct
from pathlib import Path
from typing import NamedTuple

from batchrun.errors import ModelError

PACKED = "U32"  # what MLX packs quantised weights into


class Size(NamedTuple):
    """Bytes of the files, and weights in them: packed ones counted one by one."""

    bytes: int
    weights: int


def weights_in(folder: Path, bits: int) -> Size:
    """`bits`: of a packed weight.  Raises ModelError where a file is broken, or none is there."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelError(f"{folder} holds no model*.safetensors; expected a folder as mlx_lm.convert writes it")
    weights = 0
    for path in files:
        try:
            with path.open("rb") as file:
                header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        except (OSError, ValueError, struct.error, MemoryError) as error:
            raise ModelError(f"{path} is no safetensors file: {error}") from error
        for name, entry in header.items():
            if name != "__metadata__":
                weights += math.prod(entry["shape"]) * (32 // bits if entry["dtype"] == PACKED else 1)
    return Size(sum(path.stat().st_size for path in files), weights)
