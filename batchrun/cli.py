"""The command line: arguments in, exit status out.  What a command does lives in the modules it calls."""

import json
import os
import shlex
import stat
import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from batchrun import __version__
from batchrun.errors import BatchrunError, InputError

EXIT_NOT_ALL_OK = 3
EXIT_PIPE_CLOSED = 141
STREAM = "-"

app = typer.Typer(
    name="batchrun",
    help="Run a file of prompts through a local model, many at a time, and write one validated result a line.",
    epilog="Start with:  batchrun run jobs.jsonl       See what would run:  batchrun check jobs.jsonl",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

JobsFile = Annotated[
    str, typer.Argument(metavar="JOBS", help="Job file, one JSON object a line; - reads standard input.")
]
Model = Annotated[str | None, typer.Option(help="A .gguf path, smollm2 (default), or hf:owner/repository/file.gguf.")]
Engine = Annotated[str | None, typer.Option(help="auto (default), llamacpp, or fake (a toy that checks the rules).")]
Parallel = Annotated[int | None, typer.Option(help="Rows that decode together. Default: 8, or what memory holds.")]
Context = Annotated[int | None, typer.Option(help="Tokens in one slot. Default: what the longest job needs.")]
BatchTokens = Annotated[int | None, typer.Option(help="Tokens in one forward. Default: 512.")]
Threads = Annotated[int | None, typer.Option(help="Processor threads. Default: one a physical core.")]
Prefix = Annotated[
    bool | None, typer.Option("--prefix/--no-prefix", help="Compute shared prefixes once (default) or not.")
]
BurstSeconds = Annotated[float | None, typer.Option(help="Predicted seconds of work in one burst. Default: 20.")]
RestSeconds = Annotated[float | None, typer.Option(help="Seconds of rest between bursts. Default: 0.")]
GraceSeconds = Annotated[float | None, typer.Option(help="Seconds that running rows get after Ctrl-C. Default: 10.")]
MaxTokens = Annotated[int | None, typer.Option(help="Longest answer, for jobs that do not say. Default: 512.")]
Temperature = Annotated[float | None, typer.Option(help="0 (default) is greedy.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus: draw from this share of probability. Default: 1.")]
TopK = Annotated[int | None, typer.Option(help="Draw from this many best tokens. Default: 0, no limit.")]
MinP = Annotated[float | None, typer.Option(help="Drop tokens below this share of the best. Default: 0.")]
Seed = Annotated[int | None, typer.Option(help="Of every draw. Default: 0.")]
Stop = Annotated[list[str] | None, typer.Option(help="End a free-text answer at this string; may be given again.")]
System = Annotated[str | None, typer.Option(help="System turn of jobs that have none.")]
SchemaName = Annotated[str | None, typer.Option("--schema", help="Schema of jobs that name none.")]
Schemas = Annotated[str | None, typer.Option(help="Folder of schemas. Default: schemas/ here or beside the job file.")]
Config = Annotated[Path | None, typer.Option(help="Settings file. Default: batchrun.toml here, or the user's own.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="Results file; - is standard output. Default: JOBS.results.jsonl.")
]
Stats = Annotated[Path | None, typer.Option(help="Stats file. Default: beside the results, with .stats in its name.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming; refuses to overwrite.")]
Force = Annotated[bool, typer.Option("--force", help="With --fresh: overwrite.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"batchrun {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example:  batchrun run jobs/contacts.jsonl -o results.jsonl")
def run(
    jobs: JobsFile,
    output: Output = None,
    model: Model = None,
    schema: SchemaName = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    parallel: Parallel = None,
    context: Context = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    schemas: Schemas = None,
    engine: Engine = None,
    prefix: Prefix = None,
    batch_tokens: BatchTokens = None,
    threads: Threads = None,
    burst_seconds: BurstSeconds = None,
    rest_seconds: RestSeconds = None,
    grace_seconds: GraceSeconds = None,
    stats: Stats = None,
    fresh: Fresh = False,
    force: Force = False,
    config: Config = None,
) -> None:
    """Run the jobs of JOBS and write one result a line.

    An existing results file is resumed: jobs with a final result are skipped.  Exit status: 0 all ok, 3 some are not,
    2 usage, 4 input refused, 5 no model or engine, 6 output not written, 130 or 143 stopped by a signal.
    """
    flags = _flags(locals())
    raise typer.Exit(_run(jobs, output, stats, fresh, force, config, flags))


@app.command(epilog="Example:  batchrun check jobs/contacts.jsonl")
def check(
    jobs: JobsFile,
    output: Output = None,
    model: Model = None,
    schema: SchemaName = None,
    system: System = None,
    max_tokens: MaxTokens = None,
    parallel: Parallel = None,
    context: Context = None,
    temperature: Temperature = None,
    top_p: TopP = None,
    top_k: TopK = None,
    min_p: MinP = None,
    seed: Seed = None,
    stop: Stop = None,
    schemas: Schemas = None,
    engine: Engine = None,
    prefix: Prefix = None,
    batch_tokens: BatchTokens = None,
    config: Config = None,
    as_json: AsJson = False,
) -> None:
    """Say what would run, without running it: rejected lines, tokens, shared prefixes, the plan of slots.

    Exit status: 0 all lines would run, 3 some would be rejected, 4 none can run.
    """
    flags = _flags(locals())
    from batchrun import check as checking
    from batchrun.assembly import open_parts
    from batchrun.config import resolve

    path = _input_path(jobs)
    parts = open_parts(resolve(flags, os.environ, config))
    results = _output_path(output, path)
    report = checking.check(parts, path, _source(jobs, path, None), results)
    if not report.jobs:
        raise InputError(f"{jobs} holds no jobs; expected one JSON object a line")
    if as_json:
        typer.echo(json.dumps(checking.as_json(report), ensure_ascii=False, indent=2))
    else:
        typer.echo("\n".join(checking.lines(report)))
    nothing = len(report.rejected) == report.jobs
    raise typer.Exit(InputError.exit_code if nothing else EXIT_NOT_ALL_OK if report.rejected else 0)


def main() -> None:
    """The command's entry: an error becomes one line and its exit status."""
    try:
        app()
    except BatchrunError as error:
        print(f"batchrun: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # the reader of our output left: `batchrun run - | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(EXIT_PIPE_CLOSED)


def _run(
    jobs: str,
    output: str | None,
    stats: Path | None,
    fresh: bool,
    force: bool,
    config: Path | None,
    flags: dict[str, Any],
) -> int:
    """One run from its arguments to its exit status."""
    from batchrun import summary as summaries
    from batchrun.assembly import job_reader, open_parts, preview
    from batchrun.config import resolve
    from batchrun.journal import Journal, StreamSink
    from batchrun.progress import Progress, say
    from batchrun.runner import Ends, Runner
    from batchrun.signals import StopSignals
    from batchrun.stats_file import NoStatsFile, StatsFile

    settings = resolve(flags, os.environ, config)
    path = _input_path(jobs)
    results = _output_path(output, path)
    with StopSignals(say) as stop:
        sink = Journal(results, fresh=fresh, force=force) if results else StreamSink()
        try:
            if isinstance(sink, Journal) and sink.torn_bytes:
                say(f"{results}: a torn last line of {sink.torn_bytes} bytes was cut off; its job runs again")
            parts = open_parts(settings)
            seen = preview(path, parts)
            stats_path = stats or (results and results.with_name(results.name.removesuffix(".jsonl") + ".stats.jsonl"))
            stats_file = StatsFile(stats_path, fresh=fresh) if stats_path else NoStatsFile()
            progress = Progress(seen.lines, time.monotonic)
            source = _source(jobs, path, seen.lines)
            ends = Ends(source, sink, stats_file, stop, progress, time.monotonic)
            try:
                summary = Runner(parts, job_reader(settings, path), ends, seen.longest_tokens).run()
            finally:
                progress.close()
                stats_file.close()
                parts.model.close()
        finally:
            sink.close()
        for text in summaries.lines(summary, str(results or "standard output")):
            say(text)
        if isinstance(sink, Journal) and sink.replaced:
            say(f"{sink.replaced} older results of the same ids were moved to {sink.replaced_path}")
        if summary.interrupted and stop.number:
            say(
                f"stopped early; resume with: {_resume_command()}"
                if results
                else "stopped early; -o FILE makes runs resumable"
            )
            return 128 + stop.number
    return 0 if summary.all_ok else EXIT_NOT_ALL_OK


def _flags(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings among a command's arguments."""
    others = ("jobs", "output", "stats", "fresh", "force", "config", "as_json")
    return {name: value or None if name == "stop" else value for name, value in arguments.items() if name not in others}


def _input_path(jobs: str) -> Path | None:
    """The job file, or None where it can be read only once: standard input, a pipe."""
    if jobs == STREAM:
        return None
    path = Path(jobs)
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise InputError(f"{jobs}: {error.strerror}; expected a file of job lines, or - for standard input") from error
    if stat.S_ISDIR(mode):
        raise InputError(f"{jobs} is a folder; expected a file of job lines")
    return path if stat.S_ISREG(mode) else None


def _output_path(output: str | None, path: Path | None) -> Path | None:
    """The results file, or None for standard output."""
    if output:
        return None if output == STREAM else Path(output)
    return path.with_name(path.name.removesuffix(".jsonl") + ".results.jsonl") if path else None


def _source(jobs: str, path: Path | None, total: int | None) -> Any:
    from batchrun.source import FileSource, StreamSource

    if path:
        return FileSource(path, total)
    return StreamSource(sys.stdin.buffer if jobs == STREAM else Path(jobs).open("rb"))


def _resume_command() -> str:
    """This very command, less what would start it over."""
    return shlex.join(["batchrun", *(word for word in sys.argv[1:] if word not in ("--fresh", "--force"))])
