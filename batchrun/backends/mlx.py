"""MLX as a backend: rows decode in one batch, prompts are prefilled apart, greedy steps are chained.

The loop is our own, over a loaded model of mlx-lm, its call, and its cache classes; nothing of mlx-lm is patched.  The
last token of every feed that draws goes through the batch; what stands before it is prefilled apart, and only the state
of its cache is computed, so no logits exist for prompt positions.  A row joins the batch with its first draw
(`mlx_batch.py`).

MLX computes lazily: `forward` builds the graph and starts it, masks are filled meanwhile, `sample` waits.  A chain is
one graph of several steps and one wait.
"""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from batchrun.backends.base import LoadPlan, Upkeep
from batchrun.backends.mlx_batch import Batch, Cache, Newcomer, append, can_be_cut, copied
from batchrun.backends.mlx_device import mx
from batchrun.backends.mlx_draw import Array, allow, greedy
from batchrun.backends.mlx_library import make_prompt_cache
from batchrun.core import Copy, Cut, Drawn, Feed, Limits
from batchrun.errors import BackendError
from batchrun.sampling import draw


@dataclass(slots=True)
class Slot:
    """A sequence: how many tokens it holds, and its cache while it is not in the batch."""

    tokens: int = 0
    cache: Cache | None = None


@dataclass(frozen=True, slots=True)
class Lane:
    """Rows that are computed in one pass: the batch, or one row alone.  `inputs`: their next tokens, uint32[rows]."""

    rows: Sequence[int | None]
    cache: Cache
    inputs: Array


@dataclass(frozen=True, slots=True, eq=False)
class Pending:
    """A step on its way.  Of every lane its logits `[rows, vocab]`, or, in a chain, tokens and margins by round."""

    draws: Sequence[Feed]
    lanes: Sequence[Lane]
    logits: Sequence[Array]
    rounds: Sequence[Sequence[tuple[Array, Array]]]
    states: Sequence[Any]  # what prefill has to compute
    chain: int
    began_s: float


class MlxBackend:
    """A model of mlx-lm with its slots.  `batched`: whether rows may share a pass; if not, each has its own."""

    def __init__(
        self, model: Any, plan: LoadPlan, vocab: int, *, chain: int, batched: bool = True, notices: tuple[str, ...] = ()
    ) -> None:
        self.limits = Limits(
            plan.slots,
            plan.context,
            plan.slots * plan.context,
            plan.batch,
            vocab,
            cut=can_be_cut(make_prompt_cache(model)),
            chain=chain,
        )
        self.notices = notices
        self._model = model
        self._batched = batched
        self._slots = [Slot() for _ in range(plan.slots)]
        self._batch = Batch(model)
        self._waits = 0

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> Pending:
        began_s = time.perf_counter()
        with self._guarded():
            together = self._together(feeds)
            states = [self._prefill(feed) for feed in feeds if feed not in together]
            lanes = self._lanes(feeds, together)
            logits, rounds = self._compute(lanes, chain)
            for feed in feeds:
                self._slots[feed.slot].tokens += len(feed.tokens) + chain - 1
            mx.async_eval(logits, rounds, states)
            draws = [feed for feed in feeds if feed.sampling is not None]
            return Pending(draws, lanes, logits, rounds, states, chain, began_s)

    def sample(self, pending: Pending, masks: NDArray[np.int32] | None) -> list[Drawn]:
        with self._guarded():
            if pending.chain > 1:
                drawn = self._chained(pending)
            elif pending.draws:
                drawn = self._drawn(pending, masks)
            else:
                mx.eval(pending.states)
                drawn = []
            self._waits += 1
        seconds = time.perf_counter() - pending.began_s
        if self._batch.ended and any(lane.cache is self._batch.cache for lane in pending.lanes):
            self._batch.wave.saw_step(seconds, len(self._batch.rows), self._batch.ended)
        return drawn

    def cut(self, cut: Cut) -> None:
        raise AssertionError("nothing is proposed to a backend whose limits say `ahead` is off")

    def copy(self, copy: Copy) -> None:
        with self._guarded():
            source = self._slots[copy.source]
            cache = self._batch.look(copy.source) if copy.source in self._batch else source.cache
            assert cache is not None, "the source of a copy holds tokens"
            self._slots[copy.target] = Slot(copy.tokens, copied(cache, source.tokens - copy.tokens))

    def free(self, slot: int) -> None:
        self._slots[slot] = Slot()
        if slot in self._batch:
            self._batch.drop(slot)

    def take_upkeep(self) -> Upkeep:
        upkeep = self._batch.take_upkeep()
        waits, self._waits = self._waits + upkeep.synchronisations, 0
        return upkeep._replace(synchronisations=waits)

    def close(self) -> None:
        self._reset()
        self._model = None
        mx.clear_cache()

    # -- the parts of a forward

    def _together(self, feeds: Sequence[Feed]) -> list[Feed]:
        """Feeds whose last token goes through the batch: all that draw, and single tokens of rows that are in it."""
        if not self._batched:
            return []
        found = [
            feed
            for feed in feeds
            if (feed.sampling and feed.start + len(feed.tokens) > 1)
            or (feed.slot in self._batch and len(feed.tokens) == 1)
        ]
        return [] if len(found) == 1 and found[0].slot not in self._batch else found

    def _prefill(self, feed: Feed) -> list[Any]:
        """Appends what stands before the token whose logits are wanted; gives the state that has to be computed."""
        cache = self._own_cache(feed.slot)
        append(self._model, cache, feed.tokens[:-1] if feed.sampling else feed.tokens)
        return [layer.state for layer in cache]

    def _own_cache(self, slot: int) -> Cache:
        """The cache of a slot outside the batch, which it leaves if it is in there."""
        held = self._slots[slot]
        if slot in self._batch:
            held.cache = self._batch.take_out(slot)
        elif held.cache is None:
            held.cache = make_prompt_cache(self._model)
        return held.cache

    def _lanes(self, feeds: Sequence[Feed], together: Sequence[Feed]) -> list[Lane]:
        """The passes that this step's last tokens need: the batch, and a pass for each row outside of it that draws."""
        lanes = [self._joint_lane(together)] if together else []
        joint = {feed.slot for feed in together}
        for feed in feeds:
            if feed.sampling and feed.slot not in joint:
                lanes.append(Lane((feed.slot,), self._own_cache(feed.slot), mx.array([feed.tokens[-1]])))
        return lanes

    def _joint_lane(self, together: Sequence[Feed]) -> Lane:
        """The batch with these feeds in it and nobody else.  It is not touched by steps that it has no part in, such as
        those of a probe."""
        last = {feed.slot: feed.tokens[-1] for feed in together}
        for slot in set(self._batch.slots) - last.keys():
            self._own_cache(slot)
        newcomers = [
            Newcomer(feed.slot, self._own_cache(feed.slot), feed.tokens[:-1])
            for feed in together
            if len(feed.tokens) > 1 or feed.slot not in self._batch
        ]
        if newcomers:
            self._batch.join(newcomers)
            for newcomer in newcomers:
                self._slots[newcomer.slot].cache = None
        elif self._batch.ended and self._batch.wave.due:
            self._batch.slice()
        inputs = mx.array([last[slot] if slot is not None else 0 for slot in self._batch.rows])
        return Lane(tuple(self._batch.rows), self._batch.cache, inputs)

    def _compute(self, lanes: Sequence[Lane], chain: int) -> tuple[list[Array], list[list[tuple[Array, Array]]]]:
        """Logits of each lane; for a chain, the tokens and margins of each of its rounds instead."""
        if chain == 1:
            return [self._logits(lane, lane.inputs) for lane in lanes], []
        rounds = []
        for lane in lanes:
            inputs, drawn = lane.inputs, []
            for _ in range(chain):
                drawn.append(greedy(self._logits(lane, inputs)))
                inputs = drawn[-1][0]
            rounds.append(drawn)
        return [], rounds

    def _logits(self, lane: Lane, inputs: Array) -> Array:
        return self._model(inputs[:, None], cache=lane.cache)[:, -1, :].astype(mx.float32)

    # -- the parts of a sample

    def _chained(self, pending: Pending) -> list[Drawn]:
        mx.eval(pending.rounds)
        found: dict[int, list[Drawn]] = {}
        for lane, rounds in zip(pending.lanes, pending.rounds, strict=True):
            for tokens, margins in rounds:
                for slot, token, margin in zip(lane.rows, tokens.tolist(), margins.tolist(), strict=True):
                    if slot is not None:
                        found.setdefault(slot, []).append(Drawn(slot, token, margin))
        return [drawn for feed in pending.draws for drawn in found[feed.slot]]

    def _drawn(self, pending: Pending, masks: NDArray[np.int32] | None) -> list[Drawn]:
        place = {slot: number for number, slot in enumerate(slot for lane in pending.lanes for slot in lane.rows)}
        logits = mx.concatenate(pending.logits) if len(pending.logits) > 1 else pending.logits[0]
        wanted = [place[feed.slot] for feed in pending.draws]
        if wanted != list(range(len(logits))):
            logits = logits[mx.array(wanted)]
        if masks is not None:
            logits = allow(logits, masks)
        best, margins = greedy(logits)
        mx.eval(best, margins, logits)
        found = zip(pending.draws, best.tolist(), margins.tolist(), strict=True)
        return [self._one(logits, number, *one) for number, one in enumerate(found)]

    def _one(self, logits: Array, number: int, feed: Feed, token: int, margin: float) -> Drawn:
        """The token of one row; a random draw is made by the reference sampler, as in every backend."""
        assert feed.sampling is not None, "chosen for having one"
        if feed.sampling.temperature > 0:
            row = np.array(logits[number])
            token, margin = draw(row, feed.sampling, feed.start + len(feed.tokens))
        return Drawn(feed.slot, token, margin)

    # -- when it fails

    @contextmanager
    def _guarded(self) -> Iterator[None]:
        """Turns what MLX raises into a BackendError, and forgets all slots: none of them is to be trusted."""
        try:
            yield
        except (RuntimeError, ValueError, MemoryError) as error:
            self._reset()
            reason = " ".join(str(error).split())[:200] or type(error).__name__
            raise BackendError(f"MLX: {reason}") from error

    def _reset(self) -> None:
        self._slots = [Slot() for _ in self._slots]
        self._batch = Batch(self._model)
