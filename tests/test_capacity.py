"""How many slots of how many tokens a machine's memory holds."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.backends.base import LoadPlan, ModelCard
from batchrun.capacity import (
    CONTEXT_STEP,
    DEFAULT_ROWS,
    MOST_ROWS,
    PREFIX_SLOTS,
    SHARE_FOR_MORE,
    SHARE_OF_MEMORY,
    UNKNOWN_CONTEXT,
    WORK_BYTES,
    Machine,
    Wish,
    described,
    plan,
)
from batchrun.errors import ModelError

CARD = ModelCard("model", "identity", context_train=32768, weights_bytes=2 << 30, cell_bytes=64 << 10)
WISH = Wish(rows=None, context=None, longest_tokens=1000, batch=512, threads=None)
PLENTY = Machine(256 << 30, threads=8)


def machine_for(slots: float, context: int) -> Machine:
    """Just the memory for so many slots beside the weights."""
    needed = CARD.weights_bytes + WORK_BYTES + slots * context * CARD.cell_bytes
    return Machine(int(needed / SHARE_OF_MEMORY) + 1024, threads=8)


def test_with_plenty_of_memory_a_run_gets_the_most_rows_to_try_and_its_prefix_slots() -> None:
    assert plan(PLENTY, CARD, WISH) == LoadPlan(MOST_ROWS, MOST_ROWS + PREFIX_SLOTS, 1024, 512, 8)


def test_rows_beyond_the_usual_get_no_more_than_their_share_of_the_memory() -> None:
    enough = MOST_ROWS / SHARE_FOR_MORE
    assert plan(machine_for(enough, 1024), CARD, WISH).rows == MOST_ROWS
    assert plan(machine_for(enough - 1, 1024), CARD, WISH).rows == DEFAULT_ROWS
    assert plan(machine_for(DEFAULT_ROWS + PREFIX_SLOTS, 1024), CARD, WISH).rows == DEFAULT_ROWS


def test_the_context_is_the_longest_job_rounded_up() -> None:
    assert plan(PLENTY, CARD, replace(WISH, longest_tokens=CONTEXT_STEP)).context == CONTEXT_STEP
    assert plan(PLENTY, CARD, replace(WISH, longest_tokens=CONTEXT_STEP + 1)).context == 2 * CONTEXT_STEP


def test_a_context_that_was_asked_for_is_taken_as_it_is() -> None:
    assert plan(PLENTY, CARD, replace(WISH, context=777)).context == 777


def test_the_context_is_not_longer_than_the_model_was_trained_for() -> None:
    for wish in (replace(WISH, context=1 << 20), replace(WISH, longest_tokens=1 << 20)):
        assert plan(PLENTY, CARD, wish).context == CARD.context_train


def test_jobs_that_are_not_known_yet_get_a_usual_context() -> None:
    assert plan(PLENTY, CARD, replace(WISH, longest_tokens=None)).context == UNKNOWN_CONTEXT


def test_rows_threads_and_batch_are_as_asked_for() -> None:
    load = plan(PLENTY, CARD, Wish(rows=3, context=None, longest_tokens=1000, batch=64, threads=2))
    assert (load.rows, load.slots, load.batch, load.threads) == (3, 3 + PREFIX_SLOTS, 64, 2)


def test_a_batch_has_a_token_for_every_slot() -> None:
    assert plan(PLENTY, CARD, replace(WISH, rows=20, batch=8)).batch == 20 + PREFIX_SLOTS


@pytest.mark.parametrize(("slots", "rows"), [(9, 7), (4, 2), (3, 1)])
def test_a_machine_short_of_memory_runs_fewer_rows_of_the_same_context(slots: int, rows: int) -> None:
    load = plan(machine_for(slots, 1024), CARD, WISH)
    assert (load.rows, load.slots, load.context) == (rows, slots, 1024)


@pytest.mark.parametrize("slots", [1, 2, 2.9])
def test_where_prefix_slots_have_no_room_a_single_row_runs_without(slots: float) -> None:
    load = plan(machine_for(slots, 1024), CARD, WISH)
    assert (load.rows, load.slots) == (1, 1)


def test_where_not_even_one_row_fits_the_refusal_names_both_numbers() -> None:
    wish = replace(WISH, context=16384)  # 1 GiB of cache
    machine = machine_for(0.5, 16384)
    with pytest.raises(ModelError) as caught:
        plan(machine, CARD, wish)
    needed = (3 * 2**30 + WORK_BYTES) / SHARE_OF_MEMORY / 2**30
    message = str(caught.value)
    assert f"one row of 16384 tokens needs {needed:.1f} GiB" in message
    assert f"{machine.available_bytes / 2**30:.1f} GiB are available" in message
    assert "--context" in message


def test_a_machine_with_less_memory_than_the_weights_is_refused() -> None:
    with pytest.raises(ModelError):
        plan(Machine(1 << 30, threads=8), CARD, WISH)


@settings(deadline=None)
@given(
    st.integers(0, 64 << 30),
    st.one_of(st.none(), st.integers(1, 64)),
    st.one_of(st.none(), st.integers(1, 1 << 20)),
    st.integers(1, 4096),
)
def test_a_plan_always_fits_into_the_memory_it_was_made_for(
    available: int, rows: int | None, longest: int | None, batch: int
) -> None:
    try:
        load = plan(Machine(available, 4), CARD, Wish(rows, None, longest, batch, None))
    except ModelError:
        return
    filled = CARD.weights_bytes + WORK_BYTES + load.slots * load.context * CARD.cell_bytes
    assert filled <= SHARE_OF_MEMORY * available
    assert 1 <= load.rows <= load.slots <= load.batch
    assert load.rows <= (rows or MOST_ROWS)


@pytest.mark.parametrize(("fixed", "rows"), [(True, "4 rows"), (False, "up to 4 rows")])
def test_a_plan_is_described_in_one_line(fixed: bool, rows: str) -> None:
    line = described(LoadPlan(4, 6, 1024, 512, 8), CARD, fixed=fixed)
    assert line == (
        f"{rows} and 2 shared-prefix slots of 1024 tokens (384 MiB cache, 2.0 GiB weights, 2.8 GiB in all), 8 threads"
    )


def test_a_cache_of_8_bit_numbers_takes_about_half_and_leaves_room_for_more() -> None:
    machine = machine_for(6, 1024)
    half = plan(machine, CARD, replace(WISH, kv="q8_0"))
    assert (plan(machine, CARD, WISH).slots, half.slots, half.kv) == (6, 10, "q8_0")
    assert "340 MiB cache" in described(half, CARD, fixed=False)
