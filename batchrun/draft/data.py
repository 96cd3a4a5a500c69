"""Somebody's own data as records: the rows of a table, the objects of a JSONL file, the texts of a folder.

Read twice, once to look it over and once to write jobs, so it has to be files.  What cannot be read is told with its
place; nothing is dropped on the way.
"""

import codecs
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from batchrun.blocks import file_blocks
from batchrun.confinement import read_below
from batchrun.documents import Pattern, document_lines, pattern
from batchrun.errors import InputError, JobError, UsageError
from batchrun.inputs import STREAM
from batchrun.lines import LINE_BYTES, LineReader
from batchrun.records import parse_object
from batchrun.source import KINDS, Reading

TEXT_ENDINGS = (".txt", ".md", ".text")
WIDE_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
FILE, TEXT = "file", "text"  # keys of a record that stands for a document


@dataclass(frozen=True, slots=True)
class Record:
    """A row or a text.  `line`: where a row begins; `problem`: why it cannot be read, and then it has no values;
    `file`: of a text."""

    line: int
    values: dict[str, Any]
    problem: str | None = None
    file: str = ""

    @property
    def fault(self) -> str:
        """The problem, with the line where it names no file."""
        return f"{self.problem}" if self.file else f"line {self.line}: {self.problem}"


@dataclass(frozen=True, slots=True)
class Data:
    """`documents`: the files, where it is not one table or JSONL file; `encoding`: None for UTF-8;
    `without`: files that are no texts, though they lie among them."""

    name: str
    path: Path
    kind: str = ""
    documents: Pattern | None = None
    encoding: str | None = None
    without: frozenset[Path] = frozenset()

    def records(self) -> "Records":
        """All of them, from the start."""
        return Records(self)

    def reader(self) -> LineReader:
        """The lines of a table or a JSONL file; counts its blank ones."""
        blocks = _checked(file_blocks(self.path), self.name, self.encoding, has_header=self.kind != "jsonl")
        return Reading(self.kind, LINE_BYTES, numbers=()).reader(blocks, self.path)  # cells come back as written

    def texts(self, documents: Pattern) -> Iterator[Record]:
        """Read as a run reads them: not through links that lead out of the folder, no pipes, none without end."""
        for line in document_lines([documents], None, self.without):
            if line.problem:
                yield Record(line.number, {}, line.problem.message, os.fsdecode(line.data))
                continue
            file = str(json.loads(line.data)["document_file"])
            try:
                data = read_below(file, line.origin.base, line.origin.root, LINE_BYTES, "document_unreadable", "text")
                problem = _no_text(data) if self.encoding is None else None
                text = "" if problem else data.decode(self.encoding or "utf-8-sig")
                yield Record(line.number, {} if problem else {FILE: file, TEXT: text}, problem and file + problem, file)
            except JobError as error:
                yield Record(line.number, {}, str(error).partition(" (see --")[0], file)  # options of a run
            except UnicodeError:
                yield Record(line.number, {}, f"{file} is not {self.encoding or 'UTF-8'} text", file)


@dataclass(slots=True)
class Records:
    """Goes through data from the start.  `blank`: rows of nothing, which were passed over.

    Iterating raises InputError where nothing can be read.
    """

    data: Data
    blank: int = 0

    def __iter__(self) -> Iterator[Record]:
        if self.data.documents:
            yield from self.data.texts(self.data.documents)
            return
        reader = self.data.reader()
        for line in reader:
            if line.problem:
                yield Record(line.number, {}, line.problem.message)
                continue
            try:
                yield Record(line.number, parse_object(line.data))
            except JobError as error:
                yield Record(line.number, {}, str(error))
        self.blank = reader.blank


def data(name: str, kind: str | None, encoding: str | None) -> Data:
    """What an argument of `init` names.  Raises UsageError, InputError."""
    if encoding is not None and not _is_of_text(encoding):
        raise UsageError(f"--encoding is {encoding!r}; expected one such as cp1252, latin-1 or utf-16")
    if kind is not None and kind not in KINDS:
        raise UsageError(f"--input-format is {kind!r}; expected {', '.join(KINDS)}")
    if name == STREAM:
        raise UsageError("init reads its input twice; expected a file or a folder")
    path = Path(name)
    known = Reading(kind).kind_of(path)
    is_lines = kind or known != "jsonl" or path.name.lower().removesuffix(".gz").endswith(".jsonl")
    if path.is_file() and is_lines:
        return Data(name, path, known, encoding=encoding)
    if path.is_file() and path.suffix.lower() not in TEXT_ENDINGS:
        expected = "expected .csv, .tsv, .jsonl (see --input-format), or a folder of texts"
        hint = "; make it lines: jq -c '.[]' in.json > in.jsonl" if path.suffix.lower() == ".json" else ""
        raise InputError(f"{name} has a name that says not what it is; {expected}{hint}")
    try:
        return Data(name, path, documents=pattern(name), encoding=encoding)
    except InputError as error:
        raise InputError(f"{name}: no such file or folder; expected a CSV, TSV or JSONL file, or a folder") from error


def _is_of_text(encoding: str) -> bool:
    """Whether it writes text piece by piece: Python has others under such names, as hex, zlib and punycode."""
    try:
        pieces = "a".encode(encoding) + "b".encode(encoding)
        return pieces.decode(encoding).replace("\ufeff", "") == "ab"
    except (LookupError, UnicodeError):
        return False


def _checked(blocks: Iterable[bytes], name: str, encoding: str | None, *, has_header: bool) -> Iterator[bytes]:
    """The blocks in UTF-8.  Raises InputError where they are text of another kind."""
    if encoding is None:
        yield from _utf8(blocks, name, has_header)
        return
    try:
        for place, text in enumerate(codecs.iterdecode(blocks, encoding)):
            yield (text if place else text.removeprefix("\ufeff")).encode()
    except (UnicodeError, TypeError, AssertionError, LookupError) as error:
        raise InputError(f"{name} is not {encoding}: {error}; expected another --encoding") from error


def _utf8(blocks: Iterable[bytes], name: str, has_header: bool) -> Iterator[bytes]:
    for place, block in enumerate(blocks):
        if not place and block.startswith(WIDE_MARKS):
            raise InputError(f"{name} is UTF-16; add: --encoding utf-16")
        if not place and b"\0" in block:
            raise InputError(f"{name} holds zero bytes and is no text; expected CSV, TSV or JSONL")
        if not place and has_header and not _is_utf8(block.partition(b"\n")[0]):
            raise InputError(f"{name} is not UTF-8; give its --encoding (cp1252 is usual)")
        yield block


def _no_text(data: bytes) -> str | None:
    """What a file is that no text in UTF-8 can be: one with zero bytes."""
    if data.startswith(WIDE_MARKS):
        return " is UTF-16 text; expected UTF-8, or --encoding utf-16"
    return " holds zero bytes and is no text" if b"\0" in data else None


def _is_utf8(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True
