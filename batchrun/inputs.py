"""What a command reads: job files, streams, tables, documents; what their lines may name; how long their jobs are."""

import os
import shlex
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from batchrun.blocks import file_blocks
from batchrun.documents import DocumentSource, Pattern, document_lines, pattern
from batchrun.errors import InputError, UsageError
from batchrun.line import Line, Origin
from batchrun.lines import LINE_BYTES, LineReader, LongLine
from batchrun.source import PLAIN, ChainedSource, FileSource, Opener, Reading, Source, StreamSource
from batchrun.survey import Survey
from batchrun.tables import TableReader

STREAM = "-"
ENDINGS = (".gz", ".jsonl", ".csv", ".tsv")


@dataclass(frozen=True, slots=True)
class Input:
    """One input of job lines.  `path`: None for standard input; `is_file`: it can be read more than once."""

    name: str
    path: Path | None
    is_file: bool


@dataclass(frozen=True, slots=True)
class Inputs:
    """All inputs of a command, in their order.  `root`: what lines may name files of; None: their own folders."""

    inputs: tuple[Input, ...]
    documents: tuple[Pattern, ...] = ()
    root: Path | None = None
    reading: Reading = PLAIN
    own: frozenset[Path] = frozenset()  # what the run itself writes: no document

    @property
    def shown(self) -> str:
        """Their names, for messages."""
        names = ["standard input" if one.path is None else one.name for one in self.inputs]
        return ", ".join(names) or "--documents"

    @property
    def can_be_surveyed(self) -> bool:
        """Whether all of it can be read more than once."""
        return all(one.is_file for one in self.inputs)

    @property
    def bases(self) -> list[Path]:
        """The folders that lines look files up from."""
        return list(dict.fromkeys(self._base(one) for one in self.inputs)) or [Path()]

    def default_output(self, ending: str) -> Path | None:
        """The results file beside a single job file; None where results go to standard output by default."""
        if self.documents:
            name = self.documents[0].folder.resolve().name or "documents"
            return Path(f"{name}.results{ending}")
        if len(self.inputs) != 1 or self.inputs[0].path is None or not self.inputs[0].is_file:
            return None
        path = self.inputs[0].path
        name = path.name
        for known in ENDINGS:
            name = name.removesuffix(known)
        return path.with_name(f"{name}.results{ending}")

    def source(self, total: int | None = None) -> Source:
        """The lines, from the start.  Raises InputError where the first input cannot be read."""
        if self.documents:
            return DocumentSource(self.documents, self.root, total, self.own)
        if len(self.inputs) == 1:
            return self._opened(self.inputs[0], 0, total)
        openers: list[Opener] = [partial(self._opened, one) for one in self.inputs]
        return ChainedSource(openers, total)

    def survey(self, survey: Survey) -> Iterator[None]:
        """Looks over inputs that can be read more than once, some lines at each step."""
        if self.documents:
            for line in document_lines(self.documents, self.root, self.own):
                survey.take([line])
                yield
        for one in self.inputs:
            assert one.path is not None, "a stream cannot be looked over"
            reader = self.reading.reader(file_blocks(one.path), one.path, self._origin(one, 0))
            if isinstance(reader, TableReader):
                for batch in reader.batches():
                    survey.take(batch)
                    yield
                continue
            for raw in reader.raw_batches():
                first = reader.lines - len(raw) + 1
                survey.take_plain(raw, partial(_line_at, reader, first, raw))
                yield

    def _opened(self, one: Input, lines_before: int, total: int | None = None) -> FileSource | StreamSource:
        origin = self._origin(one, lines_before)
        if one.is_file and one.path:
            return FileSource(one.path, total, reading=self.reading, origin=origin)
        if one.path:
            return StreamSource(one.path, reading=self.reading, origin=origin, path=one.path)
        if sys.stdin is None:
            raise InputError("standard input is closed; expected job lines on it")
        return StreamSource(sys.stdin.buffer, reading=self.reading, origin=origin)

    def _origin(self, one: Input, lines_before: int) -> Origin:
        name = one.name if len(self.inputs) > 1 else ""
        base = self._base(one)
        return Origin(name, base, self.root or base, lines_before, self.reading.is_table(one.path))

    def _base(self, one: Input) -> Path:
        return one.path.parent if one.path and one.is_file else Path()


def _line_at(reader: LineReader, first: int, raw: "list[bytes | LongLine]", place: int) -> Line | None:
    return reader.line(first + place, raw[place])


def inputs(
    names: tuple[str, ...],
    documents: tuple[str, ...] = (),
    *,
    root: str | None = None,
    kind: str | None = None,
    line_bytes: int = LINE_BYTES,
    needs: frozenset[str] = frozenset(),
) -> Inputs:
    """The inputs that arguments name.  Raises UsageError for none or both kinds, InputError for what is not there."""
    if bool(names) == bool(documents):
        wrong = "both JOBS and --documents are there" if names else "no JOBS are there"
        raise UsageError(f"{wrong}; expected job files, - for standard input, or --documents")
    check_root(root)
    reading = Reading(kind, line_bytes, needs)
    patterns = tuple(map(pattern, documents))
    return Inputs(tuple(map(_input, names)), patterns, Path(root) if root else None, reading)


def check_root(root: str | None) -> None:
    """Raises UsageError where it is no folder."""
    if root is not None and not os.path.isdir(root):
        raise UsageError(f"--root {root[:200]} is no folder; expected the folder that documents and schemas lie in")


def _input(name: str) -> Input:
    if name == STREAM:
        return Input(name, None, is_file=False)
    path = Path(name)
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise InputError(f"{name}: {reason}; expected a file of job lines, or - for standard input") from error
    if stat.S_ISDIR(mode):
        instead = f"--documents {shlex.quote(name)}"
        raise InputError(f"{name} is a folder; expected a file of job lines, or {instead} for its files")
    return Input(name, path, is_file=stat.S_ISREG(mode))
