"""The reference sampler: from a row of logits to a token, in numpy.

The noise of a draw depends on the job's seed and the position in the sequence only, never on the row, the batch or the
clock, so a job draws the same tokens whoever runs beside it (as far as the logits are the same).
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from batchrun.core import Sampling


def allow(logits: NDArray[np.float32], mask: NDArray[np.int32]) -> None:
    """Sets the logits of forbidden tokens to -inf, in place.  `mask`: int32[ceil(vocab / 32)], bit 1 = allowed."""
    forbidden = np.unpackbits(np.invert(mask).view(np.uint8), bitorder="little")[: len(logits)]
    logits[forbidden.view(np.bool_)] = -np.inf


class Draw(NamedTuple):
    """A token and its margin: the best logit less the second best (inf where only one is allowed); and the second."""

    token: int
    margin: float
    second: int


def draw(logits: NDArray[np.float32], sampling: Sampling, position: int) -> Draw:
    """The next token.

    `logits`: float32[vocab], may be overwritten and restored.  `position`: tokens that stand before the drawn one.
    """
    best = int(logits.argmax())
    top = logits[best]
    logits[best] = -np.inf
    second = int(logits.argmax())
    margin = float(top - logits[second])
    logits[best] = top
    token = best if sampling.temperature <= 0 else _draw_random(logits, sampling, position)
    return Draw(token, margin, second)


def _draw_random(logits: NDArray[np.float32], sampling: Sampling, position: int) -> int:
    order = np.argsort(-logits, kind="stable")
    if sampling.top_k > 0:
        order = order[: sampling.top_k]
    kept = logits[order].astype(np.float64)
    weights = np.exp((kept - kept[0]) / sampling.temperature)
    weights /= weights.sum()
    if sampling.top_p < 1:
        before = np.cumsum(weights) - weights
        weights = np.where(before < sampling.top_p, weights, 0)
    if sampling.min_p > 0:
        weights = np.where(weights >= sampling.min_p * weights[0], weights, 0)
    cumulative = np.cumsum(weights)
    place = np.searchsorted(cumulative, uniform(sampling.seed, position) * cumulative[-1], side="right")
    return int(order[min(int(place), int(np.flatnonzero(weights)[-1]))])


def uniform(seed: int, position: int) -> float:
    """A number in [0, 1) from a seed and a position alone (Philox, a counter-based generator: Salmon et al., 2011)."""
    return float(np.random.Generator(np.random.Philox(key=seed, counter=position)).random())
