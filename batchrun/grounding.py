"""Finds quoted text in a document, whatever its white space and its Unicode form, and says where it stands.  Pure.

`x-verbatim: true` on a string of a schema demands that its value stands in the document.  Two texts are the same here
when they are after Unicode compatibility normalisation (NFKC, Unicode Standard Annex 15) with every run of white space
as one space; offsets are of characters in the document as it was given.
"""

import unicodedata
from functools import cached_property, lru_cache
from typing import Any, Final

from batchrun.schema_walk import rebuilt, subschemas

KEYWORD = "x-verbatim"
FORM: Final = "NFKC"


class Document:
    """A document to look things up in."""

    def __init__(self, text: str) -> None:
        self._text = text

    @cached_property
    def pieces(self) -> list[tuple[str, int, int]]:
        """The normalised text in its smallest parts, each with the characters that it came from."""
        return _pieces(self._text)

    @cached_property
    def _normalised(self) -> tuple[str, list[int]]:
        """The normalised text, and for each of its characters the number of its piece."""
        text = "".join(piece for piece, _, _ in self.pieces)
        return text, [number for number, (piece, _, _) in enumerate(self.pieces) for _ in piece]

    def find(self, value: str) -> tuple[int, int] | None:
        """Start and end of the first place where a value stands; None where it does not."""
        text, numbers = self._normalised
        wanted = normalised(value)
        at = text.find(wanted)
        if at < 0:
            wanted = wanted.strip()
            at = text.find(wanted)
        if at < 0 or not wanted:
            return None if at < 0 else (0, 0)
        return self.pieces[numbers[at]][1], self.pieces[numbers[at + len(wanted) - 1]][2]


@lru_cache(maxsize=64)
def document(text: str) -> Document:
    """A document, kept for the next look into it."""
    return Document(text)


def normalised(text: str) -> str:
    return "".join(piece for piece, _, _ in _pieces(text))


def demands_document(schema: Any) -> bool:
    """Whether a schema demands that something stands in the document."""
    return any(part.get(KEYWORD) is True for _, part in subschemas(schema))


def without_demands(schema: Any) -> Any:
    """A schema that demands nothing of the document."""
    if not isinstance(schema, dict):
        return schema
    out = rebuilt(schema, lambda _, part: without_demands(part))
    return {key: part for key, part in out.items() if key != KEYWORD or isinstance(part, dict)}


def misuse(schema: Any) -> str | None:
    """The JSON pointer of a demand that means nothing: it is neither true nor false, or stands at no string."""
    for place, part in subschemas(schema):
        wanted, kinds = part.get(KEYWORD), part.get("type", "string")
        strays = wanted is True and "string" not in (kinds if isinstance(kinds, list) else [kinds])
        if strays or not isinstance(wanted, bool | dict | None):  # an object may be the schema of something so called
            return f"{place}/{KEYWORD}"
    return None


def marked(schema: Any, name: str) -> Any:
    """A schema whose demands are said as a format of that name, beside the format that may stand there."""
    if not isinstance(schema, dict):
        return schema
    out = rebuilt(schema, lambda _, part: marked(part, name))
    if out.get(KEYWORD) is not True:
        return out
    if "format" in out:
        return {**out, "allOf": [*out.get("allOf", ()), {"format": name}]}
    return {**out, "format": name}


def _pieces(text: str) -> list[tuple[str, int, int]]:
    """Characters and what combines with them, normalised one by one; runs of white space as one."""
    pieces: list[tuple[str, int, int]] = []
    at = 0
    while at < len(text):
        end = at + 1
        if text[at].isspace():
            while end < len(text) and text[end].isspace():
                end += 1
            pieces.append((" ", at, end))
        else:
            while end < len(text) and not text[end].isascii() and _joins(text[at:end], text[end]):
                end += 1
            piece = text[at] if text[at:end].isascii() else unicodedata.normalize(FORM, text[at:end])
            pieces.append((piece, at, end))
        at = end
    return pieces


def _joins(before: str, char: str) -> bool:
    """Whether a character changes with what stands before it: accents, Hangul."""
    apart = unicodedata.normalize(FORM, before) + unicodedata.normalize(FORM, char)
    return unicodedata.combining(char) > 0 or unicodedata.normalize(FORM, before + char) != apart
