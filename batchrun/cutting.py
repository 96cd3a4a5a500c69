"""Cuts a text to what a slot holds: one beginning, a beginning and an end, or pieces that overlap.

Borders are looked for where people put them: between paragraphs, then lines, then sentences, then words.  Pure: how
much room a text takes is asked of `fits`, which must say yes to the empty text.
"""

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

Fits = Callable[[str], bool]

GAP = "\n\n[...]\n\n"
BORDERS = (re.compile(r"\n[ \t]*\n\s*"), re.compile(r"\n"), re.compile(r"[.!?。！？]\s+"), re.compile(r"\s+"))
SHARE_FOR_BORDER = 0.3
"""Of a piece may be given up so that it ends at a better border: what it loses, the next piece reads."""

SHARE_FOR_CUT = 0.03
"""The same where what is given up is lost."""

FIRST_GUESS_CHARACTERS = 4096
CLOSE_ENOUGH = 16  # characters: a border is looked for anyway


class Span(NamedTuple):
    """Characters `start` to `end` of a text."""

    start: int
    end: int


def beginning(text: str, fits: Fits) -> list[Span]:
    """As much from the start as fits."""
    end = _longest(len(text), lambda count: fits(text[:count]))
    return [Span(0, border_before(text, 0, end, SHARE_FOR_CUT))]


def both_ends(text: str, fits: Fits) -> list[Span]:
    """As much from both ends as fits with a gap between them."""

    def cut(count: int) -> tuple[int, int]:
        return count - count // 2, len(text) - count // 2

    def fits_both(count: int) -> bool:
        head, tail = cut(count)
        return fits(text[:head] + GAP + text[tail:])

    head, tail = cut(_longest(len(text), fits_both))
    first, last = border_before(text, 0, head, SHARE_FOR_CUT), border_after(text, tail, len(text), SHARE_FOR_CUT)
    return [Span(0, first), Span(last, len(text))]


def pieces(text: str, fits: Fits, overlap: int) -> list[Span]:
    """Pieces that cover the text, each beginning about `overlap` characters before the one before it ends.

    Gives no pieces where not even a single character fits.
    """
    spans: list[Span] = []
    start, guess = 0, FIRST_GUESS_CHARACTERS
    while True:
        size = _longest(len(text) - start, lambda count: fits(text[start : start + count]), guess)  # noqa: B023
        if not size:
            return []
        whole = start + size >= len(text)
        end = len(text) if whole else border_before(text, start, start + size)
        spans.append(Span(start, end))
        if whole:
            return spans
        guess = size
        back = max(end - overlap, start + 1, start + (end - start) // 2)
        start = min(border_after(text, back, end), end) if overlap else end


def joined(text: str, spans: list[Span]) -> str:
    """The text that some spans leave."""
    return GAP.join(text[start:end] for start, end in spans)


def place_in_whole(spans: Sequence[Span], part: Span) -> Span | None:
    """Where a part of the joined text stands in the text that was cut; None where it holds some of a gap."""
    at = 0
    for start, end in spans:
        if at <= part.start and part.end <= at + end - start:
            return Span(part.start - at + start, part.end - at + start)
        at += end - start + len(GAP)
    return None


def border_before(text: str, start: int, end: int, share: float = SHARE_FOR_BORDER) -> int:
    """The best place to end a piece at or before `end`; `end` itself where there is no border near."""
    if end >= len(text):
        return len(text)
    least = end - int((end - start) * share)
    for border in BORDERS:
        places = [found.end() for found in border.finditer(text, least, end)]
        if places:
            return places[-1]
    return end


def border_after(text: str, start: int, end: int, share: float = 0.5) -> int:
    """The best place to begin a piece at or after `start`; `start` itself where there is no border near."""
    if not start:
        return 0
    for border in BORDERS:
        found = border.search(text, start, min(end, start + max(1, int((end - start) * share))))
        if found:
            return found.end()
    return start


def _longest(most: int, fits: Callable[[int], bool], guess: int = FIRST_GUESS_CHARACTERS) -> int:
    """The largest count, about, that fits; doubling from a guess and then halving the doubt."""
    low, high = 0, min(guess, most)
    while fits(high):
        if high == most:
            return most
        low, high = high, min(2 * high, most)
    while high - low > CLOSE_ENOUGH or not low:
        middle = (low + high) // 2
        if middle == low:
            break
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low
