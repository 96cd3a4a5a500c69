"""The number of rows that run together is tried out, and settles where more rows bring no more."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.width import GAIN, STEPS_A_TRIAL, Width

quick = settings(deadline=None, max_examples=200)
ENOUGH_STEPS = 20 * STEPS_A_TRIAL
"""For more trials than there are widths to try."""

Machine = Callable[[int], float]
"""Tokens a second, by the number of rows."""


def run(width: Width, machine: Machine, steps: int = ENOUGH_STEPS, *, waiting: bool = True) -> list[int]:
    """Steps at full width, on a machine that is always as fast.  Gives the widths that were run."""
    ran = []
    for _ in range(steps):
        ran.append(width.rows)
        width.saw(width.rows, width.rows, width.rows / machine(width.rows), waiting=waiting)
    return ran


def peaks_at(peak: int) -> Machine:
    """Twice the rows are 1.5 times as fast up to the peak, and 0.9 times beyond."""

    def tokens_per_s(rows: int) -> float:
        speed = 10.0
        while rows > 1:
            speed *= 1.5 if rows <= peak else 0.9
            rows //= 2
        return speed

    return tokens_per_s


@pytest.mark.parametrize("peak", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("first", [1, 2, 4, 8, 16])
def test_the_peak_of_a_machine_is_found_wherever_the_search_begins(peak: int, first: int) -> None:
    width = Width(16, first, fixed=False)
    ran = run(width, peaks_at(peak))
    assert width.rows == peak
    assert len(set(ran[-10 * STEPS_A_TRIAL :])) == 1


def test_a_width_that_is_hardly_faster_than_half_of_it_is_not_taken() -> None:
    width = Width(16, 8, fixed=False)
    run(width, lambda rows: 100.0 * (1 + rows / 1000))
    assert width.rows == 1
    width = Width(16, 8, fixed=False)
    run(width, lambda rows: 100.0 * GAIN**rows)
    assert width.rows == 16


def test_one_slow_step_does_not_decide() -> None:
    width = Width(16, 8, fixed=False)
    machine = peaks_at(16)
    for number in range(ENOUGH_STEPS):
        slow = 10 if number % STEPS_A_TRIAL == 3 else 1
        width.saw(width.rows, width.rows, slow * width.rows / machine(width.rows), waiting=True)
    assert width.rows == 16


@quick
@given(st.dictionaries(st.integers(1, 64), st.floats(0.1, 1000)), st.integers(1, 64), st.integers(1, 64))
def test_any_machine_is_settled_on_and_no_width_beyond_the_most_is_run(
    speeds: dict[int, float], most: int, first: int
) -> None:
    width = Width(most, first, fixed=False)
    ran = run(width, lambda rows: speeds.get(rows, 1.0))
    assert all(1 <= rows <= most for rows in ran)
    assert len(set(ran[-5 * STEPS_A_TRIAL :])) == 1
    assert width.reason


@quick
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 40), st.floats(-1, 10), st.booleans()), max_size=300))
def test_whatever_is_observed_the_width_stays_within_its_bounds(seen: list[tuple[int, int, float, bool]]) -> None:
    width = Width(16, 8, fixed=False)
    for rows, tokens, seconds, waiting in seen:
        width.saw(rows, tokens, seconds, waiting=waiting)
        width.saw(width.rows, tokens, seconds, waiting=waiting)
        assert 1 <= width.rows <= 16


def test_a_fixed_width_is_kept_whatever_is_observed() -> None:
    width = Width(16, 8, fixed=True)
    assert (width.rows, width.reason) == (16, "as asked")
    assert set(run(width, peaks_at(2))) == {16}
    assert (width.rows, width.reason) == (16, "as asked")


def test_the_first_width_is_no_more_than_there_is_room_for() -> None:
    assert Width(3, 8, fixed=False).rows == 3
    assert Width(16, 8, fixed=False).rows == 8


def test_only_steps_at_full_width_count() -> None:
    width = Width(16, 8, fixed=False)
    for rows in (*range(1, 8), *range(9, 17)):
        for _ in range(2 * STEPS_A_TRIAL):
            width.saw(rows, rows, 1.0, waiting=True)
    run(width, peaks_at(16), STEPS_A_TRIAL - 1)
    assert (width.rows, width.reason) == (8, "not compared yet")
    run(width, peaks_at(16), 1)
    assert width.rows == 16


def test_nothing_is_tried_while_no_work_waits() -> None:
    width = Width(16, 8, fixed=False)
    run(width, peaks_at(16), 10 * STEPS_A_TRIAL, waiting=False)
    assert width.rows == 8
    run(width, peaks_at(16), 1)
    assert width.rows == 16


def test_a_step_that_took_no_time_teaches_nothing() -> None:
    width = Width(16, 8, fixed=False)
    for _ in range(ENOUGH_STEPS):
        width.saw(8, 8, 0.0, waiting=True)
    assert width.rows == 8


def test_the_reason_names_the_widths_that_were_compared() -> None:
    width = Width(16, 8, fixed=False)
    run(width, peaks_at(8))
    assert width.reason.startswith("16 rows gave 0.90 of the tokens/s of 8")
    assert width.reason.endswith("8 gave 1.50 of the tokens/s of 4")
    width = Width(8, 8, fixed=False)
    run(width, peaks_at(8))
    assert "there is room for 8" in width.reason
