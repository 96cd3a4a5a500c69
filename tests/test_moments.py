"""Spans and moments as people write them."""

import contextlib
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.errors import UsageError
from batchrun.moments import clock, seconds_until, span_s

NOON = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("1h30m", 5400), ("2d", 172800), ("1.5h", 5400), ("1w", 604800), ("45s", 45)]
)
def test_a_span_is_a_number_of_seconds(text: str, seconds: float) -> None:
    assert span_s(text, "--every") == seconds
    assert seconds_until(text, NOON, "--deadline") == seconds


@pytest.mark.parametrize("text", ["", "90", "m", "90 m", "-1h", "0s", "1y", "1h x", "9999w"])
def test_what_is_no_span_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--every is"):
        span_s(text, "--every")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("12:01", 60),
        ("06:00", 18 * 3600),
        ("12:00", 24 * 3600),
        ("2026-11-30T13:00", 3600),
        ("2026-11-30 12:00:05", 5),
        ("2026-11-30T13:00+01:00", None),
        ("2026-12-01", 12 * 3600),
    ],
)
def test_a_moment_is_so_many_seconds_away(text: str, seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(UsageError, match="has passed"):
            seconds_until(text, NOON, "--deadline")
    else:
        assert seconds_until(text, NOON, "--deadline") == seconds


@pytest.mark.parametrize("text", ["25:00", "noon", "6", "", "12:60", "2026-13-01"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--deadline"):
        seconds_until(text, NOON, "--deadline")


def test_a_clock_has_hours_and_minutes() -> None:
    assert clock("2:05", "--at") == (2, 5)
    with pytest.raises(UsageError, match="--at is '24:00'"):
        clock("24:00", "--at")


@given(st.text(max_size=12))
def test_any_text_is_a_moment_or_refused(text: str) -> None:
    with contextlib.suppress(UsageError):
        assert seconds_until(text, NOON, "--deadline") > 0
