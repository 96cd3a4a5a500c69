"""The rules at `base.Backend`, on every backend: the toy referee, llama.cpp, and MLX, the same tests unchanged.

The real ones run a 2-layer model with random weights, both from the same GGUF file.  Where two runs may round
differently, tokens may differ at a near-tie and nowhere else.
"""

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from building import limits
from gguf_models import CONTEXT, Tiny, write_gguf

from batchrun.backends.base import Backend, LoadPlan
from batchrun.backends.fake import VOCAB, FakeBackend
from batchrun.backends.llamacpp_model import LlamaModel
from batchrun.core import Copy, Drawn, Feed, Sampling
from batchrun.engine import NEAR_TIE_LOGITS
from batchrun.errors import BackendError

SLOTS, SLOT_TOKENS, BATCH, CHAIN = 5, 512, 256, 8
GREEDY = Sampling()
TEXT = list(b"Every slot is a sequence of its own, whoever runs beside it and in how many pieces it came.")
OTHER = list(b"Another text.")


class BrokenFake(FakeBackend):
    """A referee whose device fails when it is told to."""

    fails = False

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> list[Feed]:
        pending = super().forward(feeds, chain)
        if self.fails:
            super().sample(pending, None)
            raise BackendError("the device is gone")
        return pending


def break_fake(backend: BrokenFake, feeds: Sequence[Feed]) -> None:
    backend.fails = True
    try:
        backend.forward(feeds)
    finally:
        backend.fails = False


def break_llamacpp(backend: Backend, feeds: Sequence[Feed]) -> None:
    """Feeds a slot beyond what it holds: llama.cpp finds no place."""
    for start in range(0, 8 * CONTEXT, BATCH):
        backend.sample(backend.forward([Feed(feeds[0].slot, start, [65] * BATCH, None)]), None)


def break_mlx(backend: Any, feeds: Sequence[Feed]) -> None:
    """The device fails after the caches of some layers were changed."""
    whole = type(backend._model)

    class Gone(whole):  # type: ignore[misc, valid-type]
        def __call__(self, tokens: Any, cache: Any) -> None:
            super().__call__(tokens, cache=cache)
            raise RuntimeError("the device is gone")

    backend._model.__class__ = Gone
    try:
        backend.sample(backend.forward(feeds), None)
    finally:
        backend._model.__class__ = whole


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = write_gguf(tmp_path_factory.mktemp("gguf") / "tiny.gguf", Tiny())
    model = LlamaModel(path, "tiny", "tiny")
    yield model
    model.close()


def loaded(kind: str, llama: LlamaModel, folder: Path) -> Any:
    plan = LoadPlan(3, SLOTS, SLOT_TOKENS, BATCH, 1)
    if kind == "fake":
        return BrokenFake(limits(SLOTS, SLOT_TOKENS, batch=BATCH, chain=CHAIN))
    if kind == "llamacpp":
        return llama.load(plan, lambda: False)
    from batchrun.backends.mlx_device import MlxOptions
    from batchrun.backends.mlx_model import MlxGguf

    assert llama.card.path
    return MlxGguf(llama, llama.card.path, folder, MlxOptions(chain=CHAIN)).load(plan, lambda: False)


KINDS = [
    "fake",
    "llamacpp",
    pytest.param("mlx", marks=pytest.mark.skipif(not importlib.util.find_spec("mlx_lm"), reason="needs the mlx extra")),
]


@pytest.fixture(scope="module", params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def opened(kind: str, llama: LlamaModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Backend]:
    backend = loaded(kind, llama, tmp_path_factory.mktemp("mlx"))
    yield backend
    backend.close()


@pytest.fixture
def backend(opened: Backend) -> Iterator[Backend]:
    """All slots empty."""
    for slot in range(SLOTS):
        opened.free(slot)
    yield opened
    for slot in range(SLOTS):
        opened.free(slot)


Reference = Callable[[Sequence[int], Sampling], Drawn]


@pytest.fixture
def alone(kind: str, llama: LlamaModel, tmp_path: Path) -> Iterator[Reference]:
    """What a sequence draws that has a backend to itself and comes in one piece."""
    backend = loaded(kind, llama, tmp_path)

    def draw(tokens: Sequence[int], sampling: Sampling = GREEDY) -> Drawn:
        backend.free(0)
        return backend.sample(backend.forward([Feed(0, 0, list(tokens), sampling)]), None)[0]

    yield draw
    backend.close()


def feed(slot: int, start: int, tokens: Sequence[int], sampling: Sampling | None = GREEDY) -> Feed:
    return Feed(slot, start, list(tokens), sampling)


def step(backend: Backend, *feeds: Feed, masks: Any = None, chain: int = 1) -> list[Drawn]:
    return backend.sample(backend.forward(feeds, chain), masks)


def agree(one: Drawn, other: Drawn) -> bool:
    return one.token == other.token or min(one.margin, other.margin) < NEAR_TIE_LOGITS


def masks(backend: Backend, *allowed: Sequence[int] | None) -> Any:
    """A mask a row; None allows all."""
    made = np.full((len(allowed), -(-backend.limits.vocab // 32)), -1, np.int32)
    for row, tokens in enumerate(allowed):
        if tokens is not None:
            made[row] = 0
            for token in tokens:
                made[row, token // 32] |= np.int32(np.uint32(1 << token % 32).astype(np.int32))
    return made


# -- what lies in a slot


def test_a_sequence_says_the_same_in_any_slot_and_in_any_pieces(backend: Backend, alone: Reference) -> None:
    wanted = alone(TEXT)
    for slot, cuts in ((0, [0]), (2, [0, 1]), (1, [0, 40]), (4, [0, 7, 8, 60])):
        for start, end in zip(cuts, [*cuts[1:], len(TEXT)], strict=True):
            drawn = step(backend, feed(slot, start, TEXT[start:end], GREEDY if end == len(TEXT) else None))
        assert agree(drawn[0], wanted)


def test_another_content_says_something_else(backend: Backend) -> None:
    said = [step(backend, feed(0, 0, TEXT[:n]))[0].token for n in range(5, 40) if backend.free(0) is None]
    assert len(set(said)) > 5


def test_rows_do_not_depend_on_the_rows_beside_them(backend: Backend, alone: Reference) -> None:
    """Rows of all lengths, joining one after the other, each with its own next token."""
    texts = {0: TEXT, 1: TEXT[:3], 2: OTHER, 4: TEXT[20:70]}
    held: dict[int, list[int]] = {}
    for slot, text in texts.items():
        feeds = [feed(other, len(held[other]), [66 + other]) for other in held]
        for drawn in step(backend, *feeds, feed(slot, 0, text)):
            said = held.setdefault(drawn.slot, list(texts[drawn.slot]))
            said += [66 + drawn.slot] if drawn.slot != slot else []
            assert agree(drawn, alone(said))


def test_a_step_may_mix_prompt_pieces_runs_and_single_tokens(backend: Backend, alone: Reference) -> None:
    step(backend, feed(0, 0, TEXT[:10]), feed(1, 0, OTHER), feed(3, 0, TEXT[:1]))
    drawn = step(
        backend,
        feed(0, 10, TEXT[10:11]),
        feed(1, len(OTHER), TEXT[:20]),
        feed(2, 0, TEXT[:30], None),
        feed(3, 1, TEXT[1:2], None),
    )
    assert [one.slot for one in drawn] == [0, 1]
    assert agree(drawn[0], alone(TEXT[:11]))
    assert agree(drawn[1], alone(OTHER + TEXT[:20]))
    drawn = step(backend, feed(2, 30, TEXT[30:31]), feed(3, 2, TEXT[2:5]))
    assert agree(drawn[0], alone(TEXT[:31]))
    assert agree(drawn[1], alone(TEXT[:5]))


def test_a_row_that_rests_for_some_steps_goes_on_where_it_was(backend: Backend, alone: Reference) -> None:
    step(backend, feed(0, 0, TEXT[:20]), feed(1, 0, OTHER), feed(2, 0, TEXT[:5]))
    for place in range(4):
        step(backend, feed(1, len(OTHER) + place, [70 + place]))
    drawn = step(backend, feed(0, 20, TEXT[20:21]), feed(1, len(OTHER) + 4, [80]))
    assert agree(drawn[0], alone(TEXT[:21]))
    assert agree(drawn[1], alone([*OTHER, 70, 71, 72, 73, 80]))


def test_a_drawn_token_is_not_appended(backend: Backend, alone: Reference) -> None:
    first = step(backend, feed(0, 0, TEXT))[0].token
    another = (first + 1) % 200
    assert agree(step(backend, feed(0, len(TEXT), [another]))[0], alone([*TEXT, another]))


def test_a_slot_holds_as_much_as_it_promises(backend: Backend) -> None:
    full = (TEXT * 4)[: backend.limits.context]
    for start in range(0, len(full), BATCH):
        drawn = step(backend, feed(2, start, full[start : start + BATCH]))
    assert len(drawn) == 1


# -- frees and copies


def test_a_freed_slot_is_empty(backend: Backend, alone: Reference) -> None:
    step(backend, feed(0, 0, TEXT), feed(1, 0, OTHER))
    step(backend, feed(0, len(TEXT), [65]), feed(1, len(OTHER), [65]))
    backend.free(0)
    drawn = step(backend, feed(0, 0, OTHER), feed(1, len(OTHER) + 1, [66]))
    assert agree(drawn[0], alone(OTHER))
    assert agree(drawn[1], alone([*OTHER, 65, 66]))


def test_freeing_an_empty_slot_is_nothing(backend: Backend) -> None:
    for _ in range(2):
        backend.free(3)
    assert step(backend, feed(3, 0, OTHER))


def test_a_copy_equals_its_source_and_goes_its_own_way(backend: Backend, alone: Reference) -> None:
    step(backend, feed(4, 0, TEXT, None))
    backend.copy(Copy(4, 0, len(TEXT)))
    backend.copy(Copy(4, 1, len(TEXT)))
    drawn = step(backend, feed(0, len(TEXT), [65]), feed(1, len(TEXT), [66, 67]))
    assert agree(drawn[0], alone([*TEXT, 65]))
    assert agree(drawn[1], alone([*TEXT, 66, 67]))
    backend.free(0)
    assert agree(step(backend, feed(4, len(TEXT), [68]))[0], alone([*TEXT, 68]))
    assert agree(step(backend, feed(1, len(TEXT) + 2, [69]))[0], alone([*TEXT, 66, 67, 69]))


def test_a_copy_of_a_row_that_decodes_equals_it(backend: Backend, alone: Reference) -> None:
    step(backend, feed(0, 0, OTHER), feed(1, 0, TEXT[:30]))
    step(backend, feed(0, len(OTHER), [65]), feed(1, 30, [66]))
    backend.copy(Copy(1, 2, 31))
    drawn = step(backend, feed(0, len(OTHER) + 1, [67]), feed(2, 31, [68]))
    assert agree(drawn[0], alone([*OTHER, 65, 67]))
    assert agree(drawn[1], alone([*TEXT[:30], 66, 68]))


def test_a_copy_takes_a_beginning_where_it_may(backend: Backend, alone: Reference) -> None:
    if not backend.limits.cut:
        pytest.skip("this backend copies whole sequences only")
    step(backend, feed(4, 0, TEXT, None))
    for target, tokens in ((0, 1), (1, 17), (2, len(TEXT) - 1)):
        backend.copy(Copy(4, target, tokens))
    drawn = step(backend, *(feed(slot, tokens, [65]) for slot, tokens in ((0, 1), (1, 17), (2, len(TEXT) - 1))))
    for one, tokens in zip(drawn, (1, 17, len(TEXT) - 1), strict=True):
        assert agree(one, alone([*TEXT[:tokens], 65]))


# -- draws


def test_only_feeds_that_want_a_token_get_one_in_feed_order(backend: Backend) -> None:
    drawn = step(backend, feed(0, 0, OTHER), feed(1, 0, OTHER, None), feed(2, 0, TEXT), feed(4, 0, OTHER))
    assert [one.slot for one in drawn] == [0, 2, 4]
    assert step(backend, feed(3, 0, OTHER, None)) == []


def test_a_mask_is_obeyed_and_leaves_the_other_rows_alone(backend: Backend, alone: Reference) -> None:
    forms = masks(backend, None, [90, 91], [40], None)
    drawn = step(backend, *(feed(slot, 0, text) for slot, text in enumerate((TEXT, OTHER, TEXT, OTHER))), masks=forms)
    assert agree(drawn[0], alone(TEXT))
    assert drawn[1].token in (90, 91)
    assert drawn[2].token == 40
    assert agree(drawn[3], alone(OTHER))


def test_the_first_and_the_last_token_can_be_allowed_alone(backend: Backend, kind: str) -> None:
    last = (VOCAB if kind == "fake" else backend.limits.vocab) - 1
    drawn = step(backend, feed(0, 0, OTHER), feed(1, 0, OTHER), masks=masks(backend, [0], [last]))
    assert [one.token for one in drawn] == [0, last]


def test_noise_is_a_matter_of_seed_and_position_alone(backend: Backend, kind: str, alone: Reference) -> None:
    hot = [Sampling(temperature=50.0, seed=seed) for seed in range(4)]
    drawn = step(backend, *(feed(slot, 0, OTHER, sampling) for slot, sampling in enumerate(hot)))
    assert [one.token for one in drawn] == [alone(OTHER, sampling).token for sampling in hot]
    if kind != "fake":
        assert len({one.token for one in drawn}) > 1


def test_a_margin_tells_the_best_from_the_second_best(backend: Backend) -> None:
    drawn = step(backend, feed(0, 0, TEXT), feed(1, 0, OTHER))
    assert all(one.margin >= 0 for one in drawn)


# -- chains


def test_a_chain_says_what_single_steps_say(backend: Backend) -> None:
    if backend.limits.chain == 1:
        pytest.skip("this backend does not chain")
    texts = {0: TEXT, 1: OTHER, 3: TEXT[:30]}
    last = {drawn.slot: drawn for drawn in step(backend, *(feed(slot, 0, text) for slot, text in texts.items()))}
    singly: dict[int, list[Drawn]] = {slot: [] for slot in texts}
    for place in range(CHAIN + 1):
        for drawn in step(backend, *(feed(s, len(texts[s]) + place, [last[s].token]) for s in texts)):
            singly[drawn.slot].append(drawn)
            last[drawn.slot] = drawn
    for slot in texts:
        backend.free(slot)
    first = {drawn.slot: drawn.token for drawn in step(backend, *(feed(s, 0, texts[s]) for s in texts))}
    chained = step(backend, *(feed(s, len(texts[s]), [first[s]]) for s in texts), chain=CHAIN)
    assert [drawn.slot for drawn in chained] == [slot for slot in texts for _ in range(CHAIN)]
    for slot in texts:
        rows = [drawn for drawn in chained if drawn.slot == slot]
        assert all(agree(one, other) for one, other in zip(rows, singly[slot][:-1], strict=True))
    after = step(backend, *(feed(s, len(texts[s]) + CHAIN, [singly[s][CHAIN - 1].token]) for s in texts))
    assert all(agree(one, singly[one.slot][CHAIN]) for one in after)


def test_a_chain_of_one_row_alone(backend: Backend, alone: Reference) -> None:
    if backend.limits.chain == 1:
        pytest.skip("this backend does not chain")
    first = step(backend, feed(2, 0, OTHER))[0].token
    said = [first]
    for drawn in step(backend, feed(2, len(OTHER), [first]), chain=4):
        assert agree(drawn, alone([*OTHER, *said]))
        said.append(drawn.token)


# -- failures, and the count of what was done besides


BREAKERS = {"fake": break_fake, "llamacpp": break_llamacpp, "mlx": break_mlx}


def test_after_a_failed_step_and_a_free_all_slots_work_again(backend: Backend, kind: str, alone: Reference) -> None:
    step(backend, feed(0, 0, TEXT), feed(1, 0, OTHER))
    feeds = [feed(0, len(TEXT), [65]), feed(1, len(OTHER), [66]), feed(2, 0, OTHER, None)]
    if kind == "llamacpp":
        for slot in range(SLOTS):
            backend.free(slot)
    with pytest.raises(BackendError):
        BREAKERS[kind](backend, feeds)
    for slot in range(SLOTS):
        backend.free(slot)
    drawn = step(backend, feed(0, 0, OTHER), feed(1, 0, TEXT))
    assert agree(drawn[0], alone(OTHER))
    assert agree(drawn[1], alone(TEXT))


def test_waits_for_the_device_are_counted_once(backend: Backend) -> None:
    backend.take_upkeep()
    step(backend, feed(0, 0, OTHER))
    assert backend.take_upkeep().synchronisations >= 1
    assert backend.take_upkeep() == (0, 0, 0.0, 0)
