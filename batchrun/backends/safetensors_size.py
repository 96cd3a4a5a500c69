"""How much a folder of safetensors files holds, from their headers alone."""

import json
import math
import struct
from pathlib import Path
from typing import Any, NamedTuple

from batchrun.errors import ModelError

PACKED, WORD_BITS = "U32", 32  # what MLX packs quantised weights into
LENGTH_BYTES = 8  # of the number that says how long the header is


class Size(NamedTuple):
    """Bytes of the files, and weights in them: packed ones counted one by one."""

    bytes: int
    weights: int


def weights_in(folder: Path, bits: int) -> Size:
    """`bits`: of a packed weight.  Raises ModelError where a file is broken, or none is there."""
    files = sorted(folder.glob("model*.safetensors"))
    if not files:
        raise ModelError(f"{folder} holds no model*.safetensors; expected a folder as mlx_lm.convert writes it")
    if not isinstance(bits, int) or not 1 <= bits <= WORD_BITS:
        raise ModelError(f"{folder / 'config.json'}: quantization bits is {bits!r}; expected 1 to {WORD_BITS}")
    size_bytes = weights = 0
    for path in files:
        try:
            size_bytes += path.stat().st_size
            weights += _weights(_header(path), bits)
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError, struct.error) as error:
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise ModelError(f"{path} is no safetensors file: {reason}") from error
    return Size(size_bytes, weights)


def _header(path: Path) -> dict[str, Any]:
    """What a file says of its tensors.  Raises ValueError, or whatever reading it raises, where it says nothing."""
    with path.open("rb") as file:
        length = struct.unpack("<Q", file.read(LENGTH_BYTES))[0]
        most = path.stat().st_size - LENGTH_BYTES
        if length > most:
            raise ValueError(f"its header is said to be {length} bytes long, of {most} that there are")
        header = json.loads(file.read(length))
    if not isinstance(header, dict):
        raise ValueError("its header is no JSON object")
    return header


def _weights(header: dict[str, Any], bits: int) -> int:
    """Raises ValueError for a tensor without a shape."""
    weights = 0
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        shape = entry["shape"]
        if not all(isinstance(side, int) and side >= 0 for side in shape):
            raise ValueError(f"the shape of {name[:50]} is {str(shape)[:50]}")
        weights += math.prod(shape) * (WORD_BITS // bits if entry["dtype"] == PACKED else 1)
    return weights
