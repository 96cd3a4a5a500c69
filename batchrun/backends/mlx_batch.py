"""Rows that decode together: one batched cache a layer, of mlx-lm's own classes.

A row that joins was prefilled alone; its cache is padded on the left to the length of the longest and spliced in along
the batch axis.  Padding is masked by the caches themselves and never attended to.  A row that ended is left where it is
until a wave is due (`wave.py`) or the next row joins, and sliced out then.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from batchrun.backends.base import Upkeep
from batchrun.backends.mlx_device import mx
from batchrun.backends.mlx_library import CacheList, KVCache
from batchrun.backends.wave import Wave

Cache = list[Any]  # a cache object of mlx-lm for each layer


def never_batched(cache: Cache) -> str | None:
    """The name of a kind of cache, among a model's, whose rows mlx-lm cannot put together; None if it can all."""
    for layer in cache:
        if isinstance(layer, CacheList):
            found = never_batched(list(layer.caches))
            if found:
                return found
        elif not hasattr(layer, "merge"):
            return type(layer).__name__
    return None


def can_be_cut(cache: Cache) -> bool:
    """Whether the end of any sequence can be taken off again, whatever its length."""
    return all(type(layer) is KVCache for layer in cache)


def copied(cache: Cache, drop_tokens: int = 0) -> Cache:
    """A cache of its own with the same content, less the last tokens."""
    made: Cache = copy.deepcopy(cache)
    if drop_tokens:
        for layer in made:
            layer.trim(drop_tokens)
    return made


class Batch:
    """Slots whose next tokens are computed in one pass.  Counts what joining and leaving costs."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.rows: list[int | None] = []  # the slot of each; None has ended and is not sliced out yet
        self.cache: Cache = []
        self.wave = Wave()
        self._clock = clock
        self._joins = self._leaves = self._waits = 0
        self._seconds = 0.0

    def __contains__(self, slot: int) -> bool:
        return slot in self.rows

    @property
    def slots(self) -> list[int]:
        return [slot for slot in self.rows if slot is not None]

    @property
    def ended(self) -> int:
        """Rows that are still computed and no longer wanted."""
        return self.rows.count(None)

    def drop(self, slot: int) -> None:
        """The row is not wanted any more.  Never fails."""
        self.rows[self.rows.index(slot)] = None
        self._leaves += 1
        if not self.slots:
            self.rows, self.cache = [], []

    def look(self, slot: int) -> Cache:
        """A copy of a row's own cache."""
        place = self.rows.index(slot)
        return [layer.extract(place) for layer in self.cache]

    def take_out(self, slot: int) -> Cache:
        """A row's own cache; the row leaves."""
        with self._timed() as made:
            made += self.look(slot)
        self.drop(slot)
        return made

    def join(self, newcomers: Sequence[tuple[int, Cache]]) -> None:
        """Splices rows in, behind those that are there."""
        if self.ended:
            self.slice()
        mx.eval([layer.state for _, cache in newcomers for layer in cache])  # what their prompts cost is not our price
        self._waits += 1
        with self._timed() as made:
            caches = [cache for _, cache in newcomers]
            made += [layers[0].merge(list(layers)) for layers in zip(*caches, strict=True)]
            if self.cache:
                for layer, more in zip(self.cache, made, strict=True):
                    layer.extend(more)
                made[:] = self.cache
        self.cache = made
        self.rows += [slot for slot, _ in newcomers]
        self._joins += len(newcomers)

    def slice(self) -> None:
        """Cuts the rows out that ended."""
        keep = [place for place, slot in enumerate(self.rows) if slot is not None]
        before_s = self._seconds
        with self._timed() as made:
            for layer in self.cache:
                layer.filter(keep)
            made += self.cache
        self.rows = [self.rows[place] for place in keep]
        self.wave.saw_slicing(self._seconds - before_s)

    def take_upkeep(self) -> Upkeep:
        upkeep = Upkeep(self._joins, self._leaves, self._seconds, self._waits)
        self._joins = self._leaves = self._waits = 0
        self._seconds = 0.0
        return upkeep

    @contextmanager
    def _timed(self) -> Iterator[Cache]:
        """The seconds until the caches that are put into the given list are there."""
        began_s = self._clock()
        made: Cache = []
        yield made
        settle(made)
        self._waits += 1
        self._seconds += self._clock() - began_s


def settle(cache: Iterable[Any]) -> None:
    """Waits until the caches are computed."""
    mx.eval([layer.state for layer in cache])
