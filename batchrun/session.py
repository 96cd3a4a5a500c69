"""One command on real files: opens both ends, keeps them in order, says what it came to, and gives the exit status."""

import shlex
import stat
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from batchrun import check as checking
from batchrun.assembly import job_reader, open_parts, original_identity, preview
from batchrun.config import Settings
from batchrun.errors import InputError, UsageError
from batchrun.journal import Journal
from batchrun.profile import told_once
from batchrun.progress import Progress, say
from batchrun.runner import Ends, Runner, StatsSink
from batchrun.signals import StopSignals
from batchrun.sink import StreamSink
from batchrun.source import FileSource, Source, StreamSource
from batchrun.stats_file import NoStatsFile, StatsFile
from batchrun.summary import Summary, lines

NOT_ALL_OK = 3
WORTH_TUNING = 64  # jobs: below, measuring takes longer than it saves
STREAM = "-"
NO_JOBS = "holds no jobs; expected one JSON object a line"


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a command as they were given; `-` is a stream, None the default."""

    jobs: str
    output: str | None
    stats: Path | None

    def input_path(self) -> Path | None:
        """The job file, or None where it can be read only once: standard input, a pipe.  Raises InputError."""
        if self.jobs == STREAM:
            return None
        path = Path(self.jobs)
        try:
            mode = path.stat().st_mode
        except OSError as error:
            expected = "expected a file of job lines, or - for standard input"
            raise InputError(f"{self.jobs}: {error.strerror}; {expected}") from error
        if stat.S_ISDIR(mode):
            raise InputError(f"{self.jobs} is a folder; expected a file of job lines")
        return path if stat.S_ISREG(mode) else None

    def output_path(self) -> Path | None:
        """The results file, or None for standard output.  Raises UsageError where it can be neither."""
        if self.output is not None:
            if not self.output or Path(self.output).is_dir():
                raise UsageError(f"-o {self.output!r} is no file; expected a results file, or - for standard output")
            return None if self.output == STREAM else Path(self.output)
        path = self.input_path()
        return path.with_name(path.name.removesuffix(".jsonl") + ".results.jsonl") if path else None

    def stats_path(self) -> Path | None:
        """The stats file: beside the results, unless it is named.  Raises UsageError where it is the results file."""
        results = self.output_path()
        if self.stats and (str(self.stats) == STREAM or self.stats.is_dir()):
            raise UsageError(f"--stats {self.stats} is no file; expected one")
        if results and self.stats and results.resolve() == self.stats.resolve():
            raise UsageError(f"{self.stats} is named by -o and by --stats; expected a file for each")
        beside = results and results.with_name(results.name.removesuffix(".jsonl") + ".stats.jsonl")
        return self.stats or beside

    def source(self, total: int | None) -> Source:
        """The lines, from the start."""
        path = self.input_path()
        if path:
            return FileSource(path, total)
        if self.jobs != STREAM:
            return StreamSource(Path(self.jobs))
        if sys.stdin is None:
            raise InputError("standard input is closed; expected job lines on it")
        return StreamSource(sys.stdin.buffer)


def run(settings: Settings, files: Files, *, fresh: bool, force: bool) -> int:
    """Runs the jobs and gives the exit status.  Raises what ends a run before or in the middle of it."""
    if force and not fresh:
        raise UsageError("--force is for --fresh, which starts over; without it a run resumes and overwrites nothing")
    path, results, stats_path = files.input_path(), files.output_path(), files.stats_path()
    with StopSignals(say) as stop:
        sink = Journal(results, fresh=fresh, force=force) if results else StreamSink()
        try:
            if isinstance(sink, Journal) and sink.torn_bytes:
                say(f"{results}: a torn last line of {sink.torn_bytes} bytes was cut off; its job runs again")
            if isinstance(sink, Journal) and sink.damaged:
                say(f"{results}: {sink.damaged} damaged lines go to {sink.replaced_path}; their jobs run again")
            stats = StatsFile(stats_path, fresh=fresh) if stats_path else NoStatsFile()
            try:
                summary = _run_line(settings, files, path, sink, stats, stop)
                if isinstance(sink, Journal):
                    sink.complete = not summary.interrupted
            finally:
                stats.close()
        finally:
            sink.close()
        if not summary.jobs and not summary.interrupted:
            raise InputError(f"{'standard input' if files.jobs == STREAM else files.jobs} {NO_JOBS}")
        for text in lines(summary, str(results or "standard output")):
            say(text)
        if isinstance(sink, Journal) and sink.replaced:
            say(f"{sink.replaced} older results of the same ids were moved to {sink.replaced_path}")
        if summary.interrupted and stop.number:
            hint = f"resume with: {_resume_command()}" if results else "with -o FILE a run can be resumed"
            say(f"stopped early; {hint}")
            return 128 + stop.number
    return 0 if summary.all_ok else NOT_ALL_OK


def check(settings: Settings, files: Files) -> checking.Report:
    """Looks at the jobs without running them.  Raises InputError where there are none."""
    path = files.input_path()
    report = checking.check(open_parts(settings), path, files.source(None), files.output_path())
    if not report.jobs:
        raise InputError(f"{files.jobs} {NO_JOBS}")
    return report


def _run_line(
    settings: Settings, files: Files, path: Path | None, sink: Journal | StreamSink, stats: StatsSink, stop: StopSignals
) -> Summary:
    parts = open_parts(settings)
    try:
        seen = preview(path, parts)
        many = (seen.lines or 0) >= WORTH_TUNING and settings.engine != "fake"
        if many and not parts.profiled and not told_once(original_identity(settings)):
            say(f"`batchrun tune {files.jobs}` may make runs of this model faster on this machine (said once)")
        progress = Progress(seen.lines, time.monotonic)
        try:
            ends = Ends(files.source(seen.lines), sink, stats, stop, progress, time.monotonic)
            return Runner(parts, job_reader(settings, path), ends, seen.longest_tokens).run()
        finally:
            progress.close()
    finally:
        parts.model.close()


def _resume_command() -> str:
    """This very command, less what would start it over."""
    return shlex.join(["batchrun", *(word for word in sys.argv[1:] if word not in ("--fresh", "--force"))])
