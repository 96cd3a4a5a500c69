"""Rows that decode together: one batched cache a layer, of mlx-lm's own classes.

A row that joins is prefilled apart, alone or with others that join in the same step and bring about as many tokens; its
cache is padded on the left to the length of the longest and spliced in along the batch axis.  Padding is masked by the
caches themselves and never attended to.  A row that ended is left where it is until a wave is due (`wave.py`) or the
next row joins, and sliced out then.
"""

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from batchrun.backends.base import Upkeep
from batchrun.backends.mlx_device import mx
from batchrun.backends.mlx_library import CacheList, KVCache
from batchrun.backends.wave import Wave

Cache = list[Any]  # a cache object of mlx-lm for each layer

SHORTEST = 0.75  # of the longest in a pass, the least that a newcomer brings who shares it


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


class Newcomer(NamedTuple):
    """A row that is to join: its own cache, and tokens to append to it before."""

    slot: int
    cache: Cache
    tokens: Sequence[int]


class Batch:
    """Slots whose next tokens are computed in one pass.  Counts what joining and leaving costs."""

    def __init__(self, model: Any, clock: Callable[[], float] = time.perf_counter) -> None:
        self._model = model
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
        made: Cache = []
        with self._timed(made):
            made += self.look(slot)
        self.drop(slot)
        return made

    def join(self, newcomers: Sequence[Newcomer]) -> None:
        """Computes what newcomers bring along and splices them in, behind those that are there."""
        if self.ended:
            self.slice()
        for alike in passes(newcomers):
            made = self._prefilled(alike)
            if self.cache:
                with self._timed(self.cache):
                    for layer, more in zip(self.cache, made, strict=True):
                        layer.extend(more)
            else:
                self.cache = made
            self.rows += [newcomer.slot for newcomer in alike]
        self._joins += len(newcomers)

    def _prefilled(self, alike: Sequence[Newcomer]) -> Cache:
        """One batched cache of rows that bring about as many tokens, which are computed in one pass."""
        if len(alike) == 1:  # a row's own cache has the faster masks
            append(self._model, alike[0].cache, alike[0].tokens)
        made: Cache = []
        if any(not layer.empty() for newcomer in alike for layer in newcomer.cache[:1]):
            settle(layer for newcomer in alike for layer in newcomer.cache)
            self._waits += 1
            with self._timed(made):
                made += merged(alike)
        else:
            made += merged(alike)
        if len(alike) > 1:
            append_padded(self._model, made, [newcomer.tokens for newcomer in alike])
            settle(made)
            self._waits += 1
        return made

    def slice(self) -> None:
        """Cuts the rows out that ended."""
        keep = [place for place, slot in enumerate(self.rows) if slot is not None]
        before_s = self._seconds
        with self._timed(self.cache):
            for layer in self.cache:
                layer.filter(keep)
        self.rows = [self.rows[place] for place in keep]
        self.wave.saw_slicing(self._seconds - before_s)

    def take_upkeep(self) -> Upkeep:
        upkeep = Upkeep(self._joins, self._leaves, self._seconds, self._waits)
        self._joins = self._leaves = self._waits = 0
        self._seconds = 0.0
        return upkeep

    @contextmanager
    def _timed(self, cache: Cache) -> Iterator[None]:
        """Adds the seconds until a cache is there; it may be filled meanwhile."""
        began_s = self._clock()
        yield
        settle(cache)
        self._waits += 1
        self._seconds += self._clock() - began_s


def passes(newcomers: Sequence[Newcomer]) -> list[list[Newcomer]]:
    """Parts newcomers so that those of one pass bring about as many tokens: padding is computed like any token."""
    found: list[list[Newcomer]] = []
    for newcomer in sorted(newcomers, key=lambda one: len(one.tokens), reverse=True):
        if found and len(newcomer.tokens) >= SHORTEST * len(found[-1][0].tokens):
            found[-1].append(newcomer)
        else:
            found.append([newcomer])
    return found


def merged(alike: Sequence[Newcomer]) -> Cache:
    """One batched cache with the content of all."""
    layers = zip(*(newcomer.cache for newcomer in alike), strict=True)
    return [rows[0].merge(list(rows)) for rows in layers]


def append(model: Any, cache: Cache, tokens: Sequence[int]) -> None:
    """Appends tokens to a row's own cache; computes no logits."""
    if tokens:
        model(mx.array([tokens]), cache=cache)


def append_padded(model: Any, cache: Cache, rows: Sequence[Sequence[int]]) -> None:
    """Appends tokens to each row of a batch.  Shorter ones are padded on the right; the padding then moves left."""
    longest = max(map(len, rows))
    padding = [longest - len(tokens) for tokens in rows]
    if not longest:
        return
    if any(padding):
        for layer in cache:
            layer.prepare(lengths=[len(tokens) for tokens in rows], right_padding=padding)
    model(mx.array([[*tokens, *[0] * more] for tokens, more in zip(rows, padding, strict=True)]), cache=cache)
    if any(padding):
        for layer in cache:
            layer.finalize()


def settle(cache: Iterable[Any]) -> None:
    """Waits until the caches are computed."""
    mx.eval([layer.state for layer in cache])
