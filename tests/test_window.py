"""Requests read ahead: sharers stand side by side, nobody is lost, and no more than so many are held."""

from collections.abc import Sequence

import pytest
from building import request
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun import window as window_module
from batchrun.core import Request
from batchrun.prefix import Planned, plan
from batchrun.window import MOST_JOBS, MOST_TOKENS, Window

quick = settings(deadline=None, max_examples=200)


def planned(requests: Sequence[Request], last: bool = False) -> list[Planned]:
    return plan(requests, (), cut=True, long_first=last)


def filled(requests: Sequence[Request]) -> Window:
    window = Window(planned)
    for wanted in requests:
        window.add(wanted)
    return window


def taken(window: Window, count: int = 10_000) -> list[Request]:
    """Takes so many out, or all."""
    out = []
    while len(out) < count and (entry := window.first(last=False)):
        out.append(entry.request)
        window.pop()
    return out


def group(number: int, size: int) -> list[Request]:
    return [request([number] * 40 + [100 + member]) for member in range(size)]


# -- order


def test_sharers_that_came_far_apart_stand_side_by_side() -> None:
    one, two, three = group(1, 4), group(2, 4), group(3, 4)
    mixed = [wanted for members in zip(one, two, three, strict=True) for wanted in members]
    assert taken(filled(mixed)) == [*one, *two, *three]


def test_who_shares_nothing_keeps_the_order_of_arrival() -> None:
    requests = [request([number] * 40) for number in (5, 3, 9, 1)]
    assert taken(filled(requests)) == requests


def test_a_request_that_comes_later_joins_its_group_if_that_still_waits() -> None:
    first, second = group(1, 3), group(2, 2)
    window = filled([first[0], second[0], first[1], second[1]])
    assert taken(window, 1) == [first[0]]
    window.add(first[2])
    assert taken(window) == [first[1], first[2], *second]


def test_the_group_of_who_waits_longest_is_first_also_where_newer_groups_are_larger() -> None:
    old = request([9] * 40)
    window = filled([request([1] * 40), old])
    taken(window, 1)
    for number in range(2, 8):
        for wanted in group(number, 5):
            window.add(wanted)
    assert taken(window, 1) == [old]


def test_what_is_first_stays_first_until_it_is_taken() -> None:
    window = filled(group(1, 3))
    entry = window.first(last=False)
    assert window.first(last=False) is entry
    assert len(window) == 3


def test_who_is_next_is_planned_with_the_others_that_wait() -> None:
    window = filled(group(1, 3))
    entry = window.first(last=False)
    assert entry
    assert entry.share
    assert entry.share.tokens == 40


def test_an_empty_window_asks_for_no_plan_at_the_end_of_the_input() -> None:
    """Who plans has loaded the weights; where all is done, nobody should."""

    def never(requests: Sequence[Request], last: bool) -> list[Planned]:
        raise AssertionError("there is nothing to plan")

    assert Window(never).first(last=True) is None


def test_an_empty_window_has_no_first() -> None:
    assert Window(planned).first(last=False) is None
    assert not Window(planned)


def test_a_small_budget_is_not_overtaken_for_ever_by_larger_ones_under_the_same_instruction() -> None:
    small = request([1] * 40 + [2], 4)
    window = filled([small])
    out: list[Request] = []
    for _ in range(50):
        for tail in range(10):
            window.add(request([1] * 40 + [3, tail], 100))
        out += taken(window, 10)
    assert small in out


def test_long_answers_lead_once_nothing_more_will_come() -> None:
    short, long = request([1] * 40 + [2], 4), request([1] * 40 + [3], 100)
    window = filled([short, long])
    first = [window.first(last=last) for last in (False, True)]
    assert [entry.request for entry in first if entry] == [short, long]


# -- nothing lost, nothing doubled


@quick
@given(st.lists(st.one_of(st.integers(0, 5), st.sampled_from(["take", "look"])), max_size=80))
def test_nothing_is_lost_or_doubled(moves: list[int | str]) -> None:
    window, added, out = Window(planned), [], []
    for number, move in enumerate(moves):
        if move == "take":
            out += taken(window, 1)
        elif move == "look":
            window.first(last=False)
        else:
            added.append(request([int(move)] * 40 + [number]))
            window.add(added[-1])
        assert len(window) == len(added) - len(out)
        assert bool(window) == (len(added) > len(out))
    out += taken(window)
    assert len(out) == len(added)
    assert set(out) == set(added)
    assert len(window) == 0


# -- bounds


def test_an_empty_window_wants_as_many_as_it_may_hold() -> None:
    window = Window(planned)
    assert (window.wants, window.full) == (MOST_JOBS, False)


def test_a_window_is_full_at_its_most_jobs_and_wants_more_when_half_are_gone() -> None:
    window = filled([request([1, number]) for number in range(MOST_JOBS)])
    assert (window.wants, window.full) == (0, True)
    taken(window, MOST_JOBS // 2 - 1)
    assert (window.wants, window.full) == (0, False)
    taken(window, 1)
    assert window.wants == MOST_JOBS // 2


def test_a_window_is_full_at_its_most_tokens_and_holds_one_request_however_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(window_module, "MOST_TOKENS", 100)
    window = filled([request("x" * 200)])
    assert (window.wants, window.full, len(window)) == (0, True, 1)
    taken(window, 1)
    assert (window.wants, window.full) == (MOST_JOBS, False)
    for _ in range(5):
        window.add(request("x" * 10))
    assert window.wants == MOST_JOBS - 5
    window.add(request("x"))
    assert (window.wants, window.full) == (0, False)


@quick
@given(st.lists(st.integers(1, 90), max_size=60), st.integers(0, 40))
def test_the_bounds_count_what_waits_and_not_what_was_taken(lengths: list[int], count: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(window_module, "MOST_TOKENS", 400)
        patch.setattr(window_module, "MOST_JOBS", 20)
        window = filled([request("x" * length) for length in lengths])
        out = taken(window, count)
        left = sum(lengths) - sum(len(wanted.tokens) for wanted in out)
        waiting = len(lengths) - len(out)
        assert window.full == (waiting >= 20 or left >= 400)
        assert window.wants == (20 - waiting if waiting <= 10 and left <= 200 else 0)


def test_the_bounds_are_sane() -> None:
    assert 0 < MOST_JOBS < MOST_TOKENS
