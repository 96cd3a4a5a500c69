"""Documents of a folder or a glob as job lines: one file, one job, named by its path.

Folders are walked name by name and not through links, so the order is the same on every machine and no list of all
files is held.  `*` and `?` stay inside one name, `**` stands for any number of folders; hidden names are passed over
unless a pattern names them.  What a document holds is read later, like any `document_file`.
"""

import fnmatch
import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchrun.core import Problem
from batchrun.errors import InputError
from batchrun.line import Line, Origin

WILD = frozenset("*?[")


@dataclass(frozen=True, slots=True)
class Pattern:
    """What `--documents` names: a folder to start from, and the names below it that are wanted."""

    folder: Path
    parts: tuple[str, ...]

    def files(self) -> Iterator[Path]:
        """The files, folder by folder, in the order of their names."""
        if not self.parts:
            yield self.folder
            return
        deep = "**" in self.parts
        for folder, folders, names in os.walk(self.folder, onerror=_refuse):
            inside = Path(folder).relative_to(self.folder).parts
            folders[:] = sorted(folders) if deep or len(inside) + 1 < len(self.parts) else []
            for name in sorted(names):
                if _matches((*inside, name), self.parts):
                    yield Path(folder, name)


def pattern(text: str) -> Pattern:
    """A folder stands for all files in it and below it.  Raises InputError where there is no such place."""
    path = Path(text)
    parts = path.parts
    fixed = next((place for place, part in enumerate(parts) if WILD & set(part)), len(parts))
    folder = Path(*parts[:fixed])
    if fixed == len(parts) and not folder.is_dir():
        if not folder.is_file():
            raise InputError(f"--documents {text}: no such file or folder; expected a folder, a file, or a glob")
        return Pattern(folder, ())
    return Pattern(folder, parts[fixed:] or ("**", "*"))


class DocumentSource:
    """A job line for each file of some patterns; a file that two of them name comes once for each."""

    blank = 0

    def __init__(
        self,
        patterns: Sequence[Pattern],
        root: Path | None = None,
        total: int | None = None,
        own: frozenset[Path] = frozenset(),
    ) -> None:
        self.total = total
        self.ended = False
        self._lines = iter(document_lines(patterns, root, own))

    def next(self, wait_s: float) -> Line | None:
        line = next(self._lines, None)
        self.ended = line is None
        return line


def document_lines(
    patterns: Sequence[Pattern], root: Path | None, own: frozenset[Path] = frozenset()
) -> Iterator[Line]:
    """`root`: what links may not lead out of; else the folder of each pattern.  `own`: files that are none.

    Raises InputError for a folder that cannot be read: passed over, its documents would look as if they were gone.
    """
    number = 0
    for wanted in patterns:
        folder = wanted.folder if wanted.parts else wanted.folder.parent
        origin = Origin(base=Path(), root=root or folder)
        for path in wanted.files():
            if own and Path(os.path.realpath(path)) in own:
                continue
            number += 1
            yield _line(number, path, origin)


def _line(number: int, path: Path, origin: Origin) -> Line:
    name = path.as_posix()
    try:
        return Line(number, json.dumps({"id": name, "document_file": name}, ensure_ascii=False).encode(), origin)
    except UnicodeEncodeError:
        problem = Problem("bad_encoding", f"the name of file {name!r} is not UTF-8")
        return Line(number, os.fsencode(name), origin, problem)


def _refuse(error: OSError) -> None:
    raise InputError(f"--documents: {error.filename}: {error.strerror}") from error


def _matches(names: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    if not parts:
        return not names
    if parts[0] == "**":
        deeper = bool(names) and not names[0].startswith(".") and _matches(names[1:], parts)
        return _matches(names, parts[1:]) or deeper
    if not names or (names[0].startswith(".") and not parts[0].startswith(".")):
        return False
    return fnmatch.fnmatchcase(names[0], parts[0]) and _matches(names[1:], parts[1:])
