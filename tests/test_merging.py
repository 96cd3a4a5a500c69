"""One answer of many: lists joined, single values by majority, objects key by key."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.merging import merged, with_scalars_of

ANSWERS = st.recursive(
    st.none() | st.integers(0, 3) | st.text(alphabet="ab", max_size=2),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("kl"), inner, max_size=2),
    max_leaves=5,
)


@pytest.mark.parametrize(
    ("answers", "wanted"),
    [
        ([], None),
        ([None, None], None),
        (["a"], "a"),
        (["a", "b", "b"], "b"),
        (["a", "b"], "a"),
        ([None, None, "x"], "x"),
        ([[1, 2], [2, 3], []], [1, 2, 3]),
        ([[{"n": 1, "m": 2}], [{"m": 2, "n": 1}]], [{"n": 1, "m": 2}]),
        ([[1, True], [1.5]], [1, True, 1.5]),
        (
            [{"names": ["a"], "kind": "x"}, {"names": ["b", "a"], "kind": "y"}, {"kind": "y", "n": None}],
            {"names": ["a", "b"], "kind": "y", "n": None},
        ),
        ([{"a": {"b": [1]}}, {"a": {"b": [2]}}], {"a": {"b": [1, 2]}}),
        ([{"a": 1}, "text", "text"], "text"),
    ],
)
def test_answers_are_merged(answers: list[Any], wanted: Any) -> None:
    assert merged(answers) == wanted


def test_a_reduced_answer_gives_the_single_values_and_not_the_lists() -> None:
    answer = {"names": ["a", "b"], "title": "x", "inner": {"n": 1, "l": [1]}}
    reduced = {"names": ["a"], "title": "better", "inner": {"n": 2, "l": []}, "new": 5}
    assert with_scalars_of(answer, reduced) == {
        "names": ["a", "b"],
        "title": "better",
        "inner": {"n": 2, "l": [1]},
        "new": 5,
    }


@given(st.lists(ANSWERS, max_size=5))
def test_merging_again_changes_nothing(answers: list[Any]) -> None:
    twice = merged([merged(answers)] * 2)
    assert merged([twice, twice]) == twice


@given(st.lists(st.lists(st.integers(0, 5)), min_size=1))
def test_a_merged_list_holds_everything_once(answers: list[list[int]]) -> None:
    found = merged(answers)
    assert sorted(found) == sorted({item for answer in answers for item in answer})
