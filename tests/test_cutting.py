"""Long texts are cut at good borders, and nothing of what is kept is lost or doubled by accident."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.cutting import GAP, Span, beginning, both_ends, joined, pieces

TEXT = "\n\n".join(f"Paragraph {number}. It has some sentences. They are short." for number in range(60))
TEXTS = st.text(alphabet="ab .\n", max_size=300)


def up_to(most: int):  # type: ignore[no-untyped-def]
    return lambda text: len(text) <= most


def test_a_text_that_fits_is_left_whole() -> None:
    for cut in (beginning, both_ends):
        assert joined(TEXT, cut(TEXT, up_to(10_000))) == TEXT or cut is both_ends
    assert pieces(TEXT, up_to(10_000), 50) == [Span(0, len(TEXT))]


def test_a_beginning_is_as_long_as_may_be_and_ends_behind_a_word() -> None:
    (span,) = beginning(TEXT, up_to(1000))
    assert 950 <= span.end <= 1000
    assert TEXT[span.end - 1].isspace()


def test_both_ends_are_kept_with_a_gap_between() -> None:
    first, last = both_ends(TEXT, up_to(1000))
    kept = joined(TEXT, [first, last])
    assert kept == TEXT[: first.end] + GAP + TEXT[last.start :]
    assert 900 <= len(kept) <= 1000
    assert last.end == len(TEXT)


def test_pieces_end_between_paragraphs() -> None:
    spans = pieces(TEXT, up_to(1000), 0)
    assert all(TEXT[: span.end].endswith("\n\n") for span in spans[:-1])
    assert "".join(TEXT[span.start : span.end] for span in spans) == TEXT


def test_pieces_overlap_from_a_border_on() -> None:
    spans = pieces(TEXT, up_to(1000), 100)
    for before, after in itertools.pairwise(spans):
        assert 0 < before.end - after.start <= 100
        assert TEXT[after.start : after.start + 9] == "Paragraph" or TEXT[after.start - 1].isspace()


def test_a_text_without_borders_is_cut_anywhere() -> None:
    spans = pieces("x" * 5000, up_to(1000), 10)
    assert spans[0].start == 0
    assert spans[-1].end == 5000
    assert all(span.end - span.start <= 1000 for span in spans)


def test_where_nothing_fits_there_are_no_pieces() -> None:
    assert pieces(TEXT, up_to(0), 10) == []


@given(TEXTS, st.integers(1, 80), st.integers(0, 60))
def test_pieces_cover_the_text_and_each_fits(text: str, most: int, overlap: int) -> None:
    spans = pieces(text, up_to(most), overlap)
    if not text:
        assert len(spans) <= 1
        return
    assert spans[0].start == 0
    assert spans[-1].end == len(text)
    for before, after in itertools.pairwise(spans):
        assert before.start < after.start <= before.end
    assert all(span.end - span.start <= most for span in spans)


@pytest.mark.parametrize("cut", [beginning, both_ends])
@given(text=TEXTS, most=st.integers(len(GAP), 80))
def test_what_is_kept_fits(cut, text: str, most: int) -> None:  # type: ignore[no-untyped-def]
    spans = cut(text, up_to(most))
    assert len(joined(text, spans)) <= most or len(text) <= most
    assert all(0 <= span.start <= span.end <= len(text) for span in spans)
