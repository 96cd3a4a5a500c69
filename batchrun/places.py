"""Where a run writes: the journal, which keeps every result at once, what is made of it, and what stands beside it."""

import os
from dataclasses import dataclass
from pathlib import Path

from batchrun.errors import OutputError, UsageError
from batchrun.inputs import STREAM, Inputs
from batchrun.replaced import replaced_path

ENDINGS = {"jsonl": ".jsonl", "openai": ".jsonl", "csv": ".csv"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command was told of its output.  `output`: a path, `-`, or None for the default."""

    output: str | None = None
    stats: Path | None = None
    state: Path | None = None
    form: str = "jsonl"
    ordered: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the journal itself is what was asked for."""
        return self.form == "jsonl" and not self.ordered and self.state is None


@dataclass(frozen=True, slots=True)
class Places:
    """`journal`: None where nothing is kept; `view`: what is made of the journal at the end; neither of them being
    asked for, or `to_stdout`, results go to standard output too."""

    journal: Path | None
    view: Path | None
    to_stdout: bool
    stats: Path | None

    @property
    def own(self) -> frozenset[Path]:
        """All files that the run writes, less what stands hidden beside them: no documents of its own."""
        journal = self.journal and replaced_path(self.journal)
        files = (self.journal, self.view, self.stats, self.pieces, journal)
        return frozenset(file.resolve() for file in files if file)

    @property
    def shown(self) -> str:
        """Where the results are, for messages."""
        return str(self.view or (None if self.to_stdout else self.journal) or "standard output")

    @property
    def pieces(self) -> Path | None:
        """The journal of answers to pieces of documents."""
        return self.journal and self.journal.with_name(f"{self.journal.name.removesuffix('.jsonl')}.pieces.jsonl")


def places(asked: Asked, inputs: Inputs) -> Places:
    """Raises UsageError where a path can be no file, or two are the same."""
    output = asked.output
    if output is not None and output != STREAM and (not output or Path(output).is_dir()):
        raise UsageError(f"-o {output!r} is no file; expected a results file, or - for standard output")
    path = inputs.default_output(ENDINGS[asked.form]) if output is None else None if output == STREAM else Path(output)
    journal = path
    if asked.state is not None:
        _make_folder(asked.state)
        journal = asked.state / "results.jsonl"
    elif path and not asked.is_plain:
        journal = path.with_name(f"{path.name.removesuffix('.jsonl')}.journal.jsonl")
    view = None if asked.is_plain else path
    found = Places(journal, view, path is None, _stats(asked, journal, path))
    for one in inputs.inputs:
        if one.path and one.is_file and one.path.resolve() in found.own:
            raise UsageError(f"{one.name} would be read and written; expected another -o")
    return found


def _stats(asked: Asked, journal: Path | None, path: Path | None) -> Path | None:
    """The stats file: beside the results, unless it is named."""
    stats = asked.stats
    if stats and (str(stats) == STREAM or stats.is_dir()):
        raise UsageError(f"--stats {stats} is no file; expected one")
    for results in (journal, path):
        if results and stats and results.resolve() == stats.resolve():
            raise UsageError(f"{stats} is named by -o and by --stats; expected a file for each")
    beside = journal if asked.state is not None else path
    return stats or (beside and stats_beside(beside))


def stats_beside(results: Path) -> Path:
    """Where the stats of a results file, or of its journal, lie unless they are named."""
    return results.with_name(f"{_stem(results)}.stats.jsonl")


def _stem(path: Path) -> str:
    return path.name.removesuffix(".jsonl").removesuffix(".journal")


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(f"--state {path} cannot be made: {error.strerror}") from error
    if not os.access(path, os.W_OK):
        raise OutputError(f"--state {path} is no folder that we may write to")
