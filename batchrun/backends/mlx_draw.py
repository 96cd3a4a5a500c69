"""Draws on the device: masks, the best token, and its margin over the second."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchrun.backends.mlx_device import mx

Array = Any  # mlx.core.array, which has no types to check against


def allow(logits: Array, masks: NDArray[np.int32]) -> Array:
    """Logits `[rows, vocab]` with -inf for forbidden tokens.  `masks`: int32[rows, ceil(vocab / 32)], 1 = allowed."""
    bits = (mx.array(masks)[:, :, None] >> mx.arange(32)) & 1
    allowed = bits.reshape(len(masks), -1)[:, : logits.shape[-1]]
    return mx.where(allowed == 1, logits, -mx.inf)


def greedy(logits: Array) -> tuple[Array, Array]:
    """Best tokens `uint32[rows]` and their margins `float32[rows]`: best logit less second best, inf where alone."""
    best = mx.argmax(logits, axis=-1)
    others = mx.where(mx.arange(logits.shape[-1])[None] == best[:, None], -mx.inf, logits)
    return best, mx.max(logits, axis=-1) - mx.max(others, axis=-1)
