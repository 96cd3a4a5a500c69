"""The figures of a burst."""

import pytest

from batchrun.stats import percentile, spread


@pytest.mark.parametrize(
    ("values", "share", "wanted"),
    [
        ([1], 0.5, 1),
        ([1, 2], 0.5, 1),
        ([1, 2, 3, 4, 5, 6], 0.5, 3),
        ([3, 1, 2], 0.95, 3),
        (list(range(1, 101)), 0.95, 95),
    ],
)
def test_a_percentile_is_the_value_at_the_nearest_rank(values: list[float], share: float, wanted: float) -> None:
    assert percentile(values, share) == wanted


def test_nothing_has_no_percentile() -> None:
    assert percentile([], 0.5) is None
    assert spread([]) == {"p50": None, "p95": None}
