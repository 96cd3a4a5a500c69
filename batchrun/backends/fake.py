"""A toy model and a strict referee: `--engine fake`.

The next token is a hash of everything that lies in the slot, so a wrong slot, a wrong copy or a wrong order changes
the text that comes out.  Every rule of `base.Backend` is asserted.  There are no weights and no waiting: what a run
costs here is what batchrun itself costs.

Tokens are bytes; free rows say printable ASCII, guided rows any byte their mask allows.
"""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from batchrun.backends.base import LoadPlan, ModelCard, Upkeep
from batchrun.core import Copy, Cut, Drawn, Feed, Limits, Message

MESSAGE_START, MESSAGE_END = 256, 257  # written <|start|> and <|end|>
VOCAB = 262  # 256 bytes and the six specials of llguidance's byte tokenizer
END_OF_TEXT = 261
CONTROL = {"<|start|>": MESSAGE_START, "<|end|>": MESSAGE_END}

_WORD = (1 << 64) - 1
_NUMBERS = np.arange(VOCAB, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


class FakeTokenizer:
    """A byte is a token."""

    vocab = VOCAB
    stop_tokens = frozenset({END_OF_TEXT, MESSAGE_END})
    control_texts = tuple(CONTROL)

    def encode(self, text: str, *, control: bool) -> list[int]:
        if not control or "<|" not in text:
            return list(text.encode())
        for spelling, token in CONTROL.items():
            before, found, after = text.partition(spelling)
            if found:
                return [*self.encode(before, control=True), token, *self.encode(after, control=True)]
        return list(text.encode())

    def decode(self, tokens: Sequence[int]) -> bytes:
        return bytes(token for token in tokens if token < 256)

    def with_bos(self, tokens: list[int]) -> list[int]:
        return tokens

    def for_guide(self) -> LLTokenizer:
        return LLTokenizer("byte")


class FakeTemplate:
    """A chat template in the manner of ChatML."""

    text = "<|start|>role\ncontent<|end|>"

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        turns = (f"<|start|>{message.role}\n{message.content}<|end|>\n" for message in messages)
        return "".join(turns) + "<|start|>assistant\n"


class FakeModel:
    """The toy model, opened."""

    def __init__(self, context_train: int = 1 << 16) -> None:
        self.card = ModelCard("fake", "fake-1", context_train, weights_bytes=0, cell_bytes=8)
        self.tokenizer = FakeTokenizer()
        self.template = FakeTemplate()

    def recipe(self, plan: LoadPlan) -> "Callable[[Callable[[], bool]], FakeBackend]":
        return partial(_loaded, plan)

    def load(self, plan: LoadPlan, stopped: Callable[[], bool]) -> "FakeBackend":
        return _loaded(plan, stopped)

    def close(self) -> None:
        pass


def _loaded(plan: LoadPlan, stopped: Callable[[], bool]) -> "FakeBackend":
    return FakeBackend(
        Limits(plan.slots, plan.context, cells=plan.slots * plan.context, batch=plan.batch, vocab=VOCAB, ahead=True)
    )


class FakeBackend:
    """Slots whose content is a running hash, and a referee who looks at every move."""

    notices: tuple[str, ...] = ()

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._waits = 0
        self._chained: list[Drawn] = []  # drawn by a chain, ready for `sample`
        self._hashes: list[list[int]] = [[0] for _ in range(limits.slots)]  # after 0, 1, 2 ... tokens
        self._copied: set[int] = set()  # sources of copies that the next forward carries out
        self._pending: list[Feed] | None = None

    def tokens_in(self, slot: int) -> int:
        return len(self._hashes[slot]) - 1

    def free(self, slot: int) -> None:
        assert slot not in self._copied, f"slot {slot} is freed before its copy was carried out"
        del self._hashes[slot][1:]

    def cut(self, cut: Cut) -> None:
        assert self.limits.ahead, "this backend cuts nothing"
        assert cut.slot not in self._copied, f"slot {cut.slot} is cut before its copy was carried out"
        assert 0 < cut.tokens < self.tokens_in(cut.slot), f"{cut} takes nothing away, or all"
        del self._hashes[cut.slot][cut.tokens + 1 :]

    def copy(self, copy: Copy) -> None:
        assert self.tokens_in(copy.target) == 0, f"the target of {copy} is not empty"
        assert copy.source != copy.target, f"{copy} is onto itself"
        assert 0 < copy.tokens <= self.tokens_in(copy.source), f"{copy} takes more than there is"
        assert self.limits.cut or copy.tokens == self.tokens_in(copy.source), f"{copy} cuts, and may not"
        self._hashes[copy.target] = self._hashes[copy.source][: copy.tokens + 1]
        self._copied.add(copy.source)

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> list[Feed]:
        assert self._pending is None, "a forward was not sampled"
        assert feeds, "a step with no feed"
        assert sum(len(feed.tokens) for feed in feeds) <= self.limits.batch, "more tokens than a batch holds"
        assert 1 <= chain <= self.limits.chain, f"a chain of {chain}"
        greedy = all(feed.sampling and feed.sampling.temperature <= 0 for feed in feeds)
        assert chain == 1 or greedy, "a chain with a feed that is not drawn from, or not greedily"
        last = -1
        for slot, start, tokens, sampling, proposed in feeds:
            assert not proposed or (self.limits.ahead and sampling and proposed < len(tokens)), (
                "a proposal out of place"
            )
            hashes = self._hashes[slot]
            assert slot > last, "feeds are not ordered by slot"
            assert slot not in self._copied, f"slot {slot} is copied and fed in one step"
            assert start == len(hashes) - 1, f"slot {slot} holds {len(hashes) - 1} tokens, not {start}"
            assert tokens, f"an empty feed for slot {slot}"
            assert start + len(tokens) + chain - 1 <= self.limits.context, f"slot {slot} is full"
            _append(hashes, tokens)
            self._chained += self._chain(slot, chain)
            last = slot
        assert sum(len(hashes) - 1 for hashes in self._hashes) <= self.limits.cells, "more tokens than there are cells"
        self._copied.clear()
        self._pending = list(feeds)
        return self._pending

    def sample(self, pending: list[Feed], masks: NDArray[np.int32] | None) -> list[Drawn]:
        assert pending is self._pending, "sampling another forward's feeds"
        self._pending = None
        self._waits += 1
        chained, self._chained = self._chained, []
        assert masks is None or not chained, "a chain with masks"
        if chained:
            return chained
        states = [
            (feed.slot, state) for feed in pending if feed.draws for state in self._hashes[feed.slot][-feed.draws :]
        ]
        assert masks is None or masks.shape == (len(states), (VOCAB + 31) // 32), "one mask for each draw"
        if masks is None:
            return [Drawn(slot, _free_token(state), 1.0) for slot, state in states]
        return [Drawn(slot, _guided_token(state, mask), 1.0) for (slot, state), mask in zip(states, masks, strict=True)]

    def take_upkeep(self) -> Upkeep:
        waits, self._waits = self._waits, 0
        return Upkeep(synchronisations=waits)

    def close(self) -> None:
        pass

    def _chain(self, slot: int, chain: int) -> list[Drawn]:
        """All that a slot draws in a chain; nothing where there is none."""
        hashes = self._hashes[slot]
        drawn: list[Drawn] = []
        for place in range(chain if chain > 1 else 0):
            if place:
                _append(hashes, [drawn[-1].token])
            drawn.append(Drawn(slot, _free_token(hashes[-1]), 1.0))
        return drawn


def _append(hashes: list[int], tokens: Sequence[int]) -> None:
    state = hashes[-1]
    for token in tokens:
        state = ((state ^ token) * 0xD6E8FEB86659FD93 + 0x9E3779B97F4A7C15) & _WORD
        state ^= state >> 32
        hashes.append(state)


def _free_token(state: int) -> int:
    """Printable ASCII, and an end about every fiftieth token."""
    number = (state >> 7) % 97
    return 32 + number if number < 95 else END_OF_TEXT


def _guided_token(state: int, mask: NDArray[np.int32]) -> int:
    """The allowed token that this state ranks first; a row whose mask allows everything is a free row.

    One draw in six closes what is open, if it may: a model that never ends a string would only ever be truncated.
    """
    if (mask == -1).all():
        return _free_token(state)
    if state % 6 == 0:
        for token in b'"}]':
            if mask[token // 32] >> (token % 32) & 1:
                return token
    allowed = np.unpackbits(mask.view(np.uint8), bitorder="little")[:VOCAB].astype(np.bool_)
    assert allowed.any(), "a mask that allows nothing"
    ranks = (_NUMBERS ^ np.uint64(state)) * np.uint64(0xD6E8FEB86659FD93)
    return int(np.where(allowed, ranks >> np.uint64(1), 0).argmax())
