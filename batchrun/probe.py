"""A small fixed piece of work that tells how fast a device is now: sixteen greedy tokens, one row, the same every time.

It runs in a slot of its own, so it may run between any two steps and touches nobody's tokens.
"""

from collections.abc import Callable
from statistics import median
from typing import NamedTuple

from batchrun.backends.base import Backend, Tokenizer
from batchrun.core import Feed, Sampling

TOKENS = 16
TEXT = "one two three four five six seven"


class Probe(NamedTuple):
    """What a probe took: the median of its tokens, which one that stood still does not move, and all of it."""

    token_s: float
    total_s: float


def run_probe(backend: Backend, tokenizer: Tokenizer, slot: int, clock: Callable[[], float]) -> Probe:
    """Runs one in an empty slot, and leaves it empty.  Raises BackendError."""
    began_s = clock()
    tokens = tokenizer.with_bos(tokenizer.encode(TEXT, control=False))
    held, seconds = 0, []
    for _ in range(TOKENS + 1):
        before_s = clock()
        drawn = backend.sample(backend.forward([Feed(slot, held, tokens, Sampling())]), None)
        seconds.append(clock() - before_s)
        held += len(tokens)
        tokens = [drawn[0].token]
    backend.free(slot)
    return Probe(median(seconds[1:]), clock() - began_s)  # the first was the prompt
