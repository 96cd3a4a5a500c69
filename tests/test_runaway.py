"""What counts as running away, and what does not."""

from hypothesis import given
from hypothesis import strategies as st

from batchrun.runaway import LONGEST_NUMBER_BYTES, LONGEST_PERIOD, WINDOW_TOKENS, RunawayGuard


def noticed(tokens: list[int], *, in_number: bool = False, guard: RunawayGuard | None = None) -> int | None:
    """The number of tokens after which the guard speaks up; each is one byte of one string."""
    guard = guard or RunawayGuard()
    for count, token in enumerate(tokens, 1):
        if guard.saw(token, count, 1, in_number=in_number):
            return count
    return None


@given(st.lists(st.integers(0, 9), min_size=1, max_size=LONGEST_PERIOD))
def test_a_few_tokens_over_and_over_are_noticed_soon(period: list[int]) -> None:
    found = noticed(period * 300)
    assert found is not None
    assert found <= 2 * WINDOW_TOKENS


def test_text_that_does_not_repeat_itself_is_left_alone() -> None:
    assert noticed([number * number % 997 for number in range(900)]) is None


def test_a_refrain_is_no_runaway() -> None:
    assert noticed(([1, 2, 3] * 5 + list(range(10, 40))) * 20) is None


def test_a_number_has_an_end() -> None:
    assert noticed(list(range(200)), in_number=True) == LONGEST_NUMBER_BYTES + 1


def test_every_string_is_looked_at_by_itself() -> None:
    guard = RunawayGuard()
    for _ in range(100):
        assert not guard.saw(1, 0, 1, in_number=False)
        assert noticed([1] * 20, guard=guard) is None
