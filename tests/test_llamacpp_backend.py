"""llama.cpp behind proposals and cuts: what is drawn there is what single steps draw, as far as no two tokens tie."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from batchrun.assembly import open_parts
from batchrun.backends import llamacpp as llamacpp_module
from batchrun.backends.base import Backend, LoadPlan, Model
from batchrun.config import Settings
from batchrun.core import Copy, Cut, Drawn, Feed, Message, Sampling
from batchrun.engine import NEAR_TIE_LOGITS

GREEDY = Sampling()
TOKENS = 12
QUESTIONS = ["Name three animals that live in the sea.", "Why is the sky blue? Answer in two sentences."]


@pytest.fixture(scope="module")
def model() -> Iterator[Model]:
    opened = open_parts(Settings()).model
    yield opened
    opened.close()


@pytest.fixture(scope="module")
def backend(model: Model) -> Iterator[Backend]:
    loaded = model.load(LoadPlan(3, 4, 256, 256, threads=2), lambda: False)
    yield loaded
    loaded.close()


@pytest.fixture(autouse=True)
def _empty_slots(backend: Backend) -> Iterator[None]:
    yield
    for slot in range(backend.limits.slots):
        backend.free(slot)


@pytest.fixture(scope="module")
def prompts(model: Model) -> list[list[int]]:
    rendered = [model.template.render([Message("user", question)]) for question in QUESTIONS]
    return [model.tokenizer.with_bos(model.tokenizer.encode(text, control=True)) for text in rendered]


def step(backend: Backend, *feeds: Feed, masks: np.ndarray | None = None) -> list[Drawn]:
    return backend.sample(backend.forward(feeds), masks)


def singly(backend: Backend, slot: int, prompt: Sequence[int], tokens: int = TOKENS) -> list[Drawn]:
    """The answer to a prompt, a step for each token."""
    drawn = step(backend, Feed(slot, 0, prompt, GREEDY))
    while len(drawn) < tokens:
        drawn += step(backend, Feed(slot, len(prompt) + len(drawn) - 1, [drawn[-1].token], GREEDY))
    return drawn


def check_same(found: Sequence[Drawn], wanted: Sequence[Drawn]) -> None:
    """The same tokens, up to the first near-tie at which they part."""
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if one.token != other.token:
            assert min(one.margin, other.margin) < NEAR_TIE_LOGITS
            return
        assert abs(one.margin - other.margin) < NEAR_TIE_LOGITS


def tokens_of(drawn: Sequence[Drawn]) -> list[int]:
    return [one.token for one in drawn]


def test_draws_behind_a_proposal_are_those_of_single_steps(backend: Backend, prompts: list[list[int]]) -> None:
    wanted = singly(backend, 0, prompts[0])
    said = tokens_of(wanted)
    found = step(backend, Feed(1, 0, [*prompts[0], *said[:-1]], GREEDY, TOKENS - 1))
    check_same(found, wanted)


def test_proposals_of_several_rows_beside_a_plain_one_come_in_feed_order(
    backend: Backend, prompts: list[list[int]]
) -> None:
    first, second = (singly(backend, slot, prompt) for slot, prompt in enumerate(prompts))
    for slot in (0, 1):
        backend.free(slot)
    step(backend, Feed(0, 0, prompts[0], None), Feed(1, 0, prompts[1], None), Feed(2, 0, prompts[1], None))
    found = step(
        backend,
        Feed(0, len(prompts[0]), tokens_of(first[:5]), GREEDY, 4),
        Feed(1, len(prompts[1]), tokens_of(second[:1]), GREEDY),
        Feed(2, len(prompts[1]), tokens_of(second[:3]), GREEDY, 2),
    )
    assert [drawn.slot for drawn in found] == [0] * 5 + [1] + [2] * 3
    check_same(found[:5], first[1:6])
    check_same(found[5:6], second[1:2])
    check_same(found[6:], second[1:4])


def test_what_was_drawn_before_a_wrong_token_stands(backend: Backend, prompts: list[list[int]]) -> None:
    wanted = singly(backend, 0, prompts[0])
    wrong = [*tokens_of(wanted[:3]), wanted[3].token + 1, *tokens_of(wanted[4:8])]
    found = step(backend, Feed(1, 0, [*prompts[0], *wrong], GREEDY, len(wrong)))
    check_same(found[:4], wanted[:4])


def test_cut_and_then_fed_is_as_never_having_been_fed(backend: Backend, prompts: list[list[int]]) -> None:
    wanted = singly(backend, 0, prompts[0])
    said, length = tokens_of(wanted), len(prompts[0])
    step(backend, Feed(1, 0, [*prompts[0], *said[:3], *[said[3] + 1] * 6], GREEDY, 9))
    backend.cut(Cut(1, length + 3))
    found = list(wanted[:4])
    for place in range(3, TOKENS - 1):
        found += step(backend, Feed(1, length + place, [said[place]], GREEDY))
    check_same(found, wanted)


def test_a_row_that_is_cut_time_and_again_says_what_it_says_alone(backend: Backend, prompts: list[list[int]]) -> None:
    """Half of every proposal is wrong, and another row decodes beside it."""
    wanted, length = singly(backend, 0, prompts[0]), len(prompts[0])
    said = tokens_of(wanted)
    beside = step(backend, Feed(1, 0, prompts[0], None), Feed(2, 0, prompts[1], GREEDY))
    found, fed = [], length
    backend.free(1)
    found += step(backend, Feed(1, 0, prompts[0], GREEDY))
    while len(found) < TOKENS - 2:
        place = len(found)
        feed = Feed(1, fed, [said[place - 1], said[place], said[place] + 1], GREEDY, 2)
        drawn = step(backend, feed, Feed(2, len(prompts[1]) + len(beside) - 1, [beside[-1].token], GREEDY))
        found += drawn[:2]
        beside += drawn[3:]
        fed += 2
        backend.cut(Cut(1, fed))
    check_same(found, wanted[: len(found)])
    check_same(beside, singly(backend, 3, prompts[1], len(beside)))


def test_a_copy_of_a_slot_that_was_cut_holds_what_was_left(backend: Backend, prompts: list[list[int]]) -> None:
    wanted, length = singly(backend, 0, prompts[0], 3), len(prompts[0])
    step(backend, Feed(1, 0, [*prompts[0], 5, 6, 7], None))
    backend.cut(Cut(1, length - 1))
    backend.copy(Copy(1, 2, length - 1))
    found = step(backend, Feed(2, length - 1, prompts[0][-1:], GREEDY))
    check_same(found, wanted[:1])


def test_each_draw_of_a_proposal_keeps_to_its_own_mask(backend: Backend, prompts: list[list[int]]) -> None:
    masks = np.zeros((3, (backend.limits.vocab + 31) // 32), np.int32)
    for row, token in enumerate((70, 500, 3000)):
        masks[row, token // 32] = 1 << (token % 32)
    found = step(backend, Feed(0, 0, [*prompts[0], 70, 500], GREEDY, 2), masks=masks)
    assert tokens_of(found) == [70, 500, 3000]
    assert [drawn.margin for drawn in found] == [np.inf] * 3


def test_draws_behind_a_proposal_take_their_noise_from_their_own_places(
    backend: Backend, prompts: list[list[int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    places: list[int] = []
    real = llamacpp_module.draw

    def seen(logits: np.ndarray, sampling: Sampling, position: int) -> tuple[int, float]:
        places.append(position)
        return real(logits, sampling, position)

    monkeypatch.setattr(llamacpp_module, "draw", seen)
    said = tokens_of(singly(backend, 0, prompts[0], 4))
    singles, places[:] = list(places), []
    step(backend, Feed(1, 0, [*prompts[0], *said[:3]], GREEDY, 3))
    assert places == singles == list(range(len(prompts[0]), len(prompts[0]) + 4))
