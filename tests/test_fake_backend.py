"""The toy model tells one content from another, and its referee refuses every broken rule of the seam."""

import numpy as np
import pytest
from building import limits

from batchrun.backends.base import LoadPlan
from batchrun.backends.fake import (
    END_OF_TEXT,
    MESSAGE_END,
    MESSAGE_START,
    VOCAB,
    FakeBackend,
    FakeModel,
    FakeTemplate,
    FakeTokenizer,
)
from batchrun.core import Copy, Cut, Feed, Message, Sampling

DRAW = Sampling()
WORDS = (VOCAB + 31) // 32


def backend(**other) -> FakeBackend:
    return FakeBackend(limits(**{"slots": 4, "context": 16, "batch": 12} | other))


def feed(slot: int, start: int, *tokens: int, draws: bool = True, proposed: int = 0) -> Feed:
    return Feed(slot, start, list(tokens), DRAW if draws else None, proposed)


def step(model: FakeBackend, *feeds: Feed) -> list[int]:
    """One forward and its sample; the tokens drawn."""
    return [drawn.token for drawn in model.sample(model.forward(feeds), None)]


# -- what it says


def test_the_same_content_says_the_same_in_any_slot_and_in_any_pieces() -> None:
    model = backend()
    step(model, feed(2, 0, 1, 2, draws=False))
    assert step(model, feed(0, 0, 1, 2, 3), feed(2, 2, 3)) == [step(backend(), feed(3, 0, 1, 2, 3))[0]] * 2


def test_another_content_or_order_says_something_else() -> None:
    said = {
        tuple(step(model := backend(), feed(0, 0, *tokens)) + step(model, feed(0, 3, 7)))
        for tokens in ((1, 2, 3), (2, 1, 3), (1, 2, 4))
    }
    assert len(said) == 3


def test_a_copy_says_what_its_source_says() -> None:
    model = backend()
    step(model, feed(3, 0, 1, 2, 3, draws=False))
    model.copy(Copy(3, 0, 3))
    model.copy(Copy(3, 1, 2))
    assert step(model, feed(0, 3, 9), feed(1, 2, 3, 9)) == step(backend(), feed(0, 0, 1, 2, 3, 9)) * 2


def test_a_freed_slot_is_empty() -> None:
    model = backend()
    step(model, feed(0, 0, 1, 2))
    model.free(0)
    assert model.tokens_in(0) == 0
    assert step(model, feed(0, 0, 5)) == step(backend(), feed(0, 0, 5))


def test_a_row_whose_mask_allows_all_says_what_it_says_without_masks() -> None:
    masks = np.full((2, WORDS), -1, np.int32)
    masks[1] = 0
    masks[1, 2] = 1 << 1
    model = backend()
    free, guided = model.sample(model.forward([feed(0, 0, 1, 2), feed(1, 0, 1, 2)]), masks)
    assert [free.token] == step(backend(), feed(0, 0, 1, 2))
    assert guided.token == 65


def test_only_feeds_that_want_a_token_get_one_in_feed_order() -> None:
    model = backend()
    feeds = [feed(0, 0, 1), feed(1, 0, 1, draws=False), feed(3, 0, 1)]
    assert [drawn.slot for drawn in model.sample(model.forward(feeds), None)] == [0, 3]


def test_draws_behind_a_proposal_are_those_of_its_tokens_fed_one_by_one() -> None:
    single = backend()
    said = step(single, feed(1, 0, 1, 2)) + step(single, feed(1, 2, 3)) + step(single, feed(1, 3, 4))
    assert step(backend(), feed(0, 0, 1, 2, 3, 4, proposed=2)) == said


def test_draws_of_proposals_come_in_feed_order() -> None:
    model = backend()
    feeds = [feed(0, 0, 1), feed(1, 0, 1, 2, proposed=1), feed(2, 0, 1, draws=False), feed(3, 0, 1, 2, 3, proposed=2)]
    assert [drawn.slot for drawn in model.sample(model.forward(feeds), None)] == [0, 1, 1, 3, 3, 3]
    assert [model.tokens_in(slot) for slot in range(4)] == [1, 2, 1, 3]


def test_each_draw_of_a_proposal_keeps_to_its_own_mask() -> None:
    masks = np.zeros((3, WORDS), np.int32)
    masks[0, 2], masks[1, 2], masks[2] = 1 << 1, 1 << 2, -1
    model = backend()
    said = [drawn.token for drawn in model.sample(model.forward([feed(0, 0, 1, 2, 3, proposed=2)]), masks)]
    assert said == [65, 66, *step(backend(), feed(0, 0, 1, 2, 3))]


def test_a_slot_that_was_cut_is_as_if_the_rest_had_never_been_fed() -> None:
    model = backend()
    step(model, feed(0, 0, 1, 2, 3, 4, proposed=2))
    model.cut(Cut(0, 2))
    assert model.tokens_in(0) == 2
    assert step(model, feed(0, 2, 9)) == step(backend(), feed(0, 0, 1, 2, 9))


def test_a_cut_leaves_the_other_slots_and_the_copies_of_a_slot_alone() -> None:
    model = backend()
    step(model, feed(0, 0, 1, 2, 3), feed(1, 0, 1, 2, 3))
    model.copy(Copy(0, 2, 3))
    step(model, feed(3, 0, 1))
    model.cut(Cut(0, 1))
    assert [model.tokens_in(slot) for slot in range(4)] == [1, 3, 3, 1]


# -- what it refuses


@pytest.mark.parametrize("tokens", [0, 3, 4])
def test_cutting_nothing_or_all_away_is_refused(tokens: int) -> None:
    model = backend()
    step(model, feed(0, 0, 1, 2, 3))
    with pytest.raises(AssertionError, match="takes nothing away, or all"):
        model.cut(Cut(0, tokens))


def test_cutting_where_that_is_not_allowed_is_refused() -> None:
    model = backend(cut=False)
    step(model, feed(0, 0, 1, 2, 3))
    with pytest.raises(AssertionError, match="cuts nothing"):
        model.cut(Cut(0, 1))


def test_cutting_the_source_of_a_copy_before_it_was_carried_out_is_refused() -> None:
    model = backend()
    step(model, feed(0, 0, 1, 2, 3))
    model.copy(Copy(0, 1, 3))
    with pytest.raises(AssertionError, match="cut before its copy"):
        model.cut(Cut(0, 1))


@pytest.mark.parametrize(
    "wrong", [feed(0, 0, 1, 2, proposed=2), feed(0, 0, 1, 2, draws=False, proposed=1), feed(0, 0, 1, proposed=5)]
)
def test_a_proposal_without_a_token_before_it_or_without_a_draw_is_refused(wrong: Feed) -> None:
    with pytest.raises(AssertionError, match="proposal out of place"):
        backend().forward([wrong])


def test_a_proposal_where_nothing_can_be_cut_is_refused() -> None:
    with pytest.raises(AssertionError, match="proposal out of place"):
        backend(cut=False).forward([feed(0, 0, 1, 2, proposed=1)])


def test_a_proposal_counts_as_tokens_of_the_batch_the_slot_and_the_cells() -> None:
    with pytest.raises(AssertionError, match="more tokens than a batch"):
        backend().forward([feed(0, 0, *range(13), proposed=12)])
    with pytest.raises(AssertionError, match="is full"):
        backend(context=4).forward([feed(0, 0, *range(5), proposed=4)])
    with pytest.raises(AssertionError, match="more tokens than there are cells"):
        backend(cells=4).forward([feed(0, 0, *range(5), proposed=4)])


@pytest.mark.parametrize("draws", [1, 2, 4])
def test_masks_for_less_or_more_than_the_draws_of_a_proposal_are_refused(draws: int) -> None:
    model = backend()
    pending = model.forward([feed(0, 0, 1, 2, 3, proposed=2)])
    with pytest.raises(AssertionError, match="one mask for each draw"):
        model.sample(pending, np.full((draws, WORDS), -1, np.int32))


def test_freeing_a_source_before_its_copy_was_carried_out_is_refused() -> None:
    model = backend()
    step(model, feed(0, 0, 1))
    model.copy(Copy(0, 1, 1))
    with pytest.raises(AssertionError, match="freed before its copy"):
        model.free(0)


def test_copying_onto_tokens_is_refused() -> None:
    model = backend()
    step(model, feed(0, 0, 1), feed(1, 0, 1))
    with pytest.raises(AssertionError, match="not empty"):
        model.copy(Copy(0, 1, 1))


def test_copying_a_slot_onto_itself_is_refused() -> None:
    with pytest.raises(AssertionError, match="onto itself"):
        backend().copy(Copy(0, 0, 1))


@pytest.mark.parametrize("tokens", [0, 2])
def test_copying_nothing_or_more_than_there_is_is_refused(tokens: int) -> None:
    model = backend()
    step(model, feed(0, 0, 1))
    with pytest.raises(AssertionError, match="more than there is"):
        model.copy(Copy(0, 1, tokens))


def test_cutting_a_copy_is_refused_where_that_is_not_allowed() -> None:
    model = backend(cut=False)
    step(model, feed(0, 0, 1, 2))
    with pytest.raises(AssertionError, match="cuts, and may not"):
        model.copy(Copy(0, 1, 1))


def test_a_forward_before_the_last_one_was_sampled_is_refused() -> None:
    model = backend()
    model.forward([feed(0, 0, 1)])
    with pytest.raises(AssertionError, match="not sampled"):
        model.forward([feed(1, 0, 1)])


def test_a_forward_of_nothing_is_refused() -> None:
    with pytest.raises(AssertionError, match="no feed"):
        backend().forward([])


def test_more_tokens_than_a_batch_holds_are_refused() -> None:
    with pytest.raises(AssertionError, match="more tokens than a batch"):
        backend().forward([feed(0, 0, *range(7)), feed(1, 0, *range(6))])


@pytest.mark.parametrize("slots", [(1, 0), (1, 1)])
def test_feeds_out_of_order_or_two_for_a_slot_are_refused(slots: tuple[int, int]) -> None:
    with pytest.raises(AssertionError, match="not ordered by slot"):
        backend().forward([feed(slot, 0, 1) for slot in slots])


def test_feeding_the_source_of_a_copy_in_the_same_step_is_refused() -> None:
    model = backend()
    step(model, feed(0, 0, 1))
    model.copy(Copy(0, 1, 1))
    with pytest.raises(AssertionError, match="copied and fed"):
        model.forward([feed(0, 1, 2)])


def test_a_feed_that_does_not_start_where_its_slot_ends_is_refused() -> None:
    model = backend()
    step(model, feed(0, 0, 1))
    with pytest.raises(AssertionError, match="holds 1 tokens, not 2"):
        model.forward([feed(0, 2, 1)])


def test_an_empty_feed_is_refused() -> None:
    with pytest.raises(AssertionError, match="empty feed"):
        backend().forward([feed(0, 0)])


def test_a_feed_beyond_the_context_is_refused() -> None:
    model = backend(context=4)
    step(model, feed(0, 0, 1, 2, 3))
    with pytest.raises(AssertionError, match="is full"):
        model.forward([feed(0, 3, 4, 5)])


def test_more_tokens_than_cells_are_refused() -> None:
    model = backend(cells=5)
    step(model, feed(0, 0, 1, 2, 3))
    with pytest.raises(AssertionError, match="more tokens than there are cells"):
        model.forward([feed(1, 0, 1, 2, 3)])


def test_sampling_what_is_not_pending_is_refused() -> None:
    model = backend()
    pending = model.forward([feed(0, 0, 1)])
    with pytest.raises(AssertionError, match="another forward"):
        model.sample([feed(0, 0, 1)], None)
    model.sample(pending, None)
    with pytest.raises(AssertionError, match="another forward"):
        model.sample(pending, None)


@pytest.mark.parametrize("shape", [(1, WORDS), (3, WORDS), (2, WORDS - 1)])
def test_masks_of_another_shape_than_the_draws_are_refused(shape: tuple[int, int]) -> None:
    model = backend()
    pending = model.forward([feed(0, 0, 1), feed(1, 0, 1), feed(2, 0, 1, draws=False)])
    with pytest.raises(AssertionError, match="one mask for each draw"):
        model.sample(pending, np.full(shape, -1, np.int32))


def test_a_mask_that_allows_nothing_is_refused() -> None:
    model = backend()
    with pytest.raises(AssertionError, match="allows nothing"):
        model.sample(model.forward([feed(0, 0, 1)]), np.zeros((1, WORDS), np.int32))


# -- its tokenizer and its template


def test_control_texts_become_control_tokens_only_where_that_is_asked_for() -> None:
    tokenizer = FakeTokenizer()
    text = "a<|start|>b<|end|><|end|>c<|"
    tokens = [97, MESSAGE_START, 98, MESSAGE_END, MESSAGE_END, 99, *b"<|"]
    assert tokenizer.encode(text, control=True) == tokens
    assert tokenizer.encode(text, control=False) == list(text.encode())


def test_decoding_gives_the_bytes_back_and_says_nothing_of_control_tokens() -> None:
    tokenizer = FakeTokenizer()
    assert tokenizer.decode([*"gr\u00fcn".encode(), MESSAGE_END, END_OF_TEXT]) == "gr\u00fcn".encode()


def test_the_template_writes_turns_down_and_opens_the_answer() -> None:
    rendered = FakeTemplate().render([Message("system", "Be brief."), Message("user", "Why?")])
    assert rendered == "<|start|>system\nBe brief.<|end|>\n<|start|>user\nWhy?<|end|>\n<|start|>assistant\n"


def test_a_loaded_model_has_the_slots_of_its_plan() -> None:
    loaded = FakeModel().load(LoadPlan(rows=2, slots=4, context=100, batch=32, threads=1), lambda: False)
    held = loaded.limits
    assert (held.slots, held.context, held.cells, held.batch, held.vocab) == (4, 100, 400, 32, VOCAB)
