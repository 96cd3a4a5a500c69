"""One record of the input as it comes, and the input that it came from."""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from batchrun.core import Problem


@dataclass(frozen=True, slots=True)
class Origin:
    """The input that a line came from.

    `name` goes into default ids and into messages where there are several inputs, else it is empty.  Files that a line
    names are looked up from `base`, and must lie below `root`.  `lines_before`: those of the inputs before this one.
    """

    name: str = ""
    base: Path = Path()
    root: Path = Path()
    lines_before: int = 0
    is_table: bool = False  # its records have columns of their own, which are no mistake


HERE = Origin()


class Line(NamedTuple):
    """One record of the input: the number of its (first) line in its own input, from 1, and its bytes.

    `problem`: why it cannot be one, found while it was cut out of the input; `data` then still tells it from others.
    """

    number: int
    data: bytes
    origin: Origin = HERE
    problem: Problem | None = None
