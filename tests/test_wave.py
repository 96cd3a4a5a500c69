"""Rows that ended are sliced out when what they wasted comes to the price of slicing."""

from hypothesis import given
from hypothesis import strategies as st

from batchrun.backends.wave import Wave

STEPS = st.lists(st.tuples(st.floats(0.001, 1), st.integers(1, 16)), min_size=1, max_size=200)


def test_an_unknown_price_is_paid_to_know_it() -> None:
    assert Wave().due


def test_a_known_price_is_paid_once_as_much_was_wasted() -> None:
    wave = Wave()
    wave.saw_slicing(1.0)
    for _ in range(3):
        wave.saw_step(0.5, rows=2, ended=1)
        assert not wave.due
    wave.saw_step(0.5, rows=2, ended=1)
    assert wave.due


def test_slicing_begins_a_new_account() -> None:
    wave = Wave()
    wave.saw_slicing(1.0)
    wave.saw_step(8.0, rows=2, ended=1)
    wave.saw_slicing(1.0)
    assert not wave.due


@given(price_s=st.floats(0.01, 10), steps=STEPS)
def test_waiting_never_costs_more_than_the_price_and_one_step(price_s: float, steps: list[tuple[float, int]]) -> None:
    wave = Wave()
    wave.saw_slicing(price_s)
    for seconds, rows in steps:
        before_s = wave.wasted_s
        wave.saw_step(seconds, rows, ended=1)
        if wave.due:
            assert before_s < wave.price_s
            wave.saw_slicing(price_s)
