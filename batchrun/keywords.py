"""What becomes of each keyword of a schema, in words that a user can act on.  Pure.

Every keyword that stands in a schema is one of three things: enforced while decoding (no other answer can be spelled),
checked after decoding (the guide lets more through than the keyword does), or an annotation (it refuses nothing).
Whatever a keyword is, the finished answer is validated against the whole schema.
"""

from collections import Counter
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any


class Treatment(StrEnum):
    """When a keyword is looked at."""

    ENFORCED = "enforced"
    CHECKED = "checked"
    ANNOTATION = "annotation"


@dataclass(frozen=True, slots=True)
class Keyword:
    """One keyword at one place.  `place`: a JSON pointer to the schema that holds it; `note`: why, where that helps."""

    place: str
    name: str
    treatment: Treatment
    note: str = ""


KINDS = ("null", "boolean", "number", "string", "array", "object")
"""Of JSON values.  A schema may also name `integer`: numbers that are whole."""

HOLDERS = frozenset({"$defs", "definitions", "$vocabulary"})
"""Keywords that say nothing of themselves: what they hold counts where it is referred to."""

FLOW = frozenset({"then", "else", "minContains", "maxContains"})
"""Keywords that the validator reads as a part of another one (`if`, `contains`)."""

EXAMPLES = "x-examples"
"""In rewritten schemas: texts that may pass what was left to the check."""

SHOWN = 6


@dataclass(frozen=True, slots=True)
class Coverage:
    """What becomes of the keywords of one schema.  `least_tokens`: of its shortest answer; 0 where none was found."""

    schema: str
    keywords: tuple[Keyword, ...]
    least_tokens: int

    @property
    def counts(self) -> dict[str, int]:
        """How many keywords there are of each treatment."""
        counts = Counter(keyword.treatment for keyword in self.keywords)
        return {treatment.value: counts[treatment] for treatment in Treatment}

    @property
    def late(self) -> list[Keyword]:
        """The keywords that are left to the check after decoding."""
        return [keyword for keyword in self.keywords if keyword.treatment is Treatment.CHECKED]

    def lines(self) -> list[str]:
        """For a person: how many of each kind, and which are left to the check."""
        counts = self.counts
        shortest = (
            f"shortest answer {self.least_tokens} tokens" if self.least_tokens else "no shortest answer was found"
        )
        said = [
            f"{self.schema}: {counts['enforced']} keywords enforced while decoding, "
            f"{counts['checked']} checked after it, {counts['annotation']} annotations; {shortest}"
        ]
        for keyword in self.late[:SHOWN]:
            note = f" ({keyword.note})" if keyword.note else ""
            said.append(f"  checked after decoding: {keyword.name} at {keyword.place or '/'}{note}")
        if len(self.late) > SHOWN:
            said.append(f"  ... and {len(self.late) - SHOWN} more (--json lists all)")
        return said

    def as_json(self) -> dict[str, Any]:
        """For a machine."""
        kept = [asdict(keyword) for keyword in self.keywords if keyword.treatment is not Treatment.ENFORCED]
        return {"schema": self.schema, "least_tokens": self.least_tokens, **self.counts, "keywords": kept}
