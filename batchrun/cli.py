"""The command line: arguments in, exit status out.  What a command does lives in the modules it calls."""

import contextlib
import os
import sys
import warnings
from typing import Annotated, NoReturn

import typer

from batchrun import (
    bench_commands,
    cli_pace,
    doctor_command,
    init_command,
    look_commands,
    model_commands,
    model_options,
    options,
    side_commands,
)
from batchrun.errors import BatchrunError, OutputError, UsageError
from batchrun.printable import printable, without_credentials

app = typer.Typer(
    name="batchrun",
    help="Run a file of prompts through a local model, many at a time, and write one validated result a line.",
    epilog="Start with:  batchrun run jobs.jsonl       See what would run:  batchrun check jobs.jsonl",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def _version(wanted: bool) -> None:
    if wanted:
        from batchrun import versions

        typer.echo("\n".join(versions.lines()))
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print versions, of engines too.")
    ] = False,
) -> None:
    pass


@app.command(epilog="Example:  batchrun run jobs/contacts.jsonl -o results.jsonl")
def run(
    jobs: options.JobFiles = None,
    output: model_options.Output = None,
    documents: options.Documents = None,
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    document: options.Document = None,
    id_column: options.IdColumn = None,
    input_format: options.InputFormat = None,
    model: model_options.Model = None,
    schema: model_options.SchemaName = None,
    system: model_options.System = None,
    max_tokens: model_options.MaxTokens = None,
    parallel: model_options.Parallel = None,
    context: model_options.Context = None,
    temperature: model_options.Temperature = None,
    top_p: model_options.TopP = None,
    top_k: model_options.TopK = None,
    min_p: model_options.MinP = None,
    seed: model_options.Seed = None,
    stop: model_options.Stop = None,
    schemas: model_options.Schemas = None,
    schema_in_prompt: model_options.SchemaInPrompt = None,
    on_budget: model_options.OnBudget = None,
    retries: model_options.Retries = None,
    thinking: model_options.Thinking = None,
    engine: model_options.Engine = None,
    weights: model_options.Weights = None,
    prefix: model_options.Prefix = None,
    layout: model_options.Layout = None,
    lookup: model_options.Lookup = None,
    batch_tokens: model_options.BatchTokens = None,
    threads: model_options.Threads = None,
    flash: model_options.Flash = None,
    kv: model_options.Kv = None,
    chain: model_options.Chain = None,
    mlx_cache_mib: model_options.MlxCacheMib = None,
    mlx_wired_mib: model_options.MlxWiredMib = None,
    burst_seconds: cli_pace.BurstSeconds = None,
    rest_seconds: cli_pace.RestSeconds = None,
    duty: cli_pace.Duty = None,
    only_on_ac: cli_pace.OnlyOnAc = None,
    min_battery: cli_pace.MinBattery = None,
    quiet_hours: cli_pace.QuietHours = None,
    until: cli_pace.Until = None,
    max_energy: cli_pace.MaxEnergy = None,
    priority: cli_pace.Priority = None,
    keep_awake: cli_pace.Awake = None,
    grace_seconds: model_options.GraceSeconds = None,
    only: options.Only = None,
    where: options.Where = None,
    shard: options.ShardOf = None,
    limit: options.Limit = None,
    sample: options.Sample = None,
    retry_failed: options.RetryFailed = False,
    on_overflow: options.OnOverflow = None,
    overlap_characters: options.Overlap = None,
    reduce_prompt: options.ReducePrompt = None,
    output_format: options.OutputFormat = None,
    order: options.Order = None,
    state: options.State = None,
    prune: options.Prune = False,
    max_failures: options.MaxFailures = None,
    deadline: options.DeadlineAt = None,
    isolate: options.Isolate = None,
    audit: options.Audit = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
    worker_resources: options.WorkerResources = None,
    root: options.Root = None,
    line_bytes: options.LineBytes = None,
    stats: model_options.Stats = None,
    fresh: model_options.Fresh = False,
    force: model_options.Force = False,
    live: options.Live = False,
    config: model_options.Config = None,
) -> None:
    """Run the jobs of JOBS and write one result a line.

    An existing results file is resumed: jobs with a final result are skipped.  Exit status: 0 all ok, 3 some are not,
    2 usage, 4 input refused, 5 no model or engine, 6 output not written, 7 --max-failures, 75 stopped early by
    --deadline or a rule such as --until (the same command goes on), 130 or 143 stopped by a signal.
    """
    flags = model_options.given(locals())
    from batchrun import selection, session
    from batchrun.config import resolve

    settings = resolve(flags, os.environ, config)
    taken = selection.Selection(
        frozenset(only or ()),
        tuple(map(selection.condition, where or ())),
        selection.shard(shard) if shard is not None else None,
        limit,
        sample,
        settings.seed,
        retry_failed,
    )
    files = session.Files(tuple(jobs or ()), output, stats, state, tuple(documents or ()))
    raise typer.Exit(session.run(settings, files, session.Options(taken, fresh, force, prune, live)))


@app.command(epilog="Example:  batchrun check jobs/contacts.jsonl")
def check(
    jobs: options.JobFiles = None,
    output: model_options.Output = None,
    documents: options.Documents = None,
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    document: options.Document = None,
    id_column: options.IdColumn = None,
    input_format: options.InputFormat = None,
    model: model_options.Model = None,
    schema: model_options.SchemaName = None,
    system: model_options.System = None,
    max_tokens: model_options.MaxTokens = None,
    parallel: model_options.Parallel = None,
    context: model_options.Context = None,
    temperature: model_options.Temperature = None,
    top_p: model_options.TopP = None,
    top_k: model_options.TopK = None,
    min_p: model_options.MinP = None,
    seed: model_options.Seed = None,
    stop: model_options.Stop = None,
    schemas: model_options.Schemas = None,
    schema_in_prompt: model_options.SchemaInPrompt = None,
    on_budget: model_options.OnBudget = None,
    retries: model_options.Retries = None,
    thinking: model_options.Thinking = None,
    engine: model_options.Engine = None,
    weights: model_options.Weights = None,
    prefix: model_options.Prefix = None,
    layout: model_options.Layout = None,
    batch_tokens: model_options.BatchTokens = None,
    on_overflow: options.OnOverflow = None,
    state: options.State = None,
    root: options.Root = None,
    line_bytes: options.LineBytes = None,
    threads: model_options.Threads = None,
    burst_seconds: cli_pace.BurstSeconds = None,
    rest_seconds: cli_pace.RestSeconds = None,
    duty: cli_pace.Duty = None,
    estimate: Annotated[bool, typer.Option("--estimate", help="Also how long it would take, by calibrate.")] = False,
    config: model_options.Config = None,
    as_json: model_options.AsJson = False,
) -> None:
    """Say what would run, without running it: rejected lines, tokens, shared prefixes, the plan of slots.

    Exit status: 0 all lines would run, 3 some would be rejected, 4 none can run.
    """
    flags = model_options.given(locals())
    from batchrun import check as checking
    from batchrun import session
    from batchrun.config import resolve
    from batchrun.results import as_json as as_json_text

    files = session.Files(tuple(jobs or ()), output, None, state, tuple(documents or ()))
    report = session.check(resolve(flags, os.environ, config), files, estimated=estimate)
    if as_json:
        typer.echo(as_json_text(checking.as_json(report), indent=2))
    else:
        typer.echo("\n".join(checking.lines(report)))
    raise typer.Exit(checking.exit_status(report))


app.command(epilog="Example:  batchrun bench research --mode serial,continuous --repeat 3")(bench_commands.bench)
app.command(epilog="Example:  batchrun tune jobs/contacts.jsonl")(bench_commands.tune)
app.command(epilog="Example:  batchrun merge jobs.*.results.jsonl -o all.jsonl")(side_commands.merge)
app.command(epilog="Example:  batchrun schedule --every 1d --at 02:00 -- run jobs.jsonl")(side_commands.schedule)
app.command(epilog="Example:  batchrun report results.jsonl --html report.html")(look_commands.report)
app.command(epilog="Example:  batchrun audit results.jsonl --jobs jobs.jsonl --share 2%")(look_commands.audit)
app.command(epilog='Example:  batchrun swarm "What should we do next?" --document report.txt')(look_commands.swarm)
app.command(epilog="Example:  batchrun doctor --model ~/models/qwen3-4b.gguf")(doctor_command.doctor)
app.command(epilog="Example:  batchrun calibrate --quick jobs/contacts.jsonl")(cli_pace.calibrate)
app.command(epilog=init_command.EXAMPLE)(init_command.init)
app.add_typer(model_commands.app, name="models")


def main() -> None:
    """The command's entry: an error becomes one line and its exit status."""
    warnings.simplefilter("ignore")  # what a library thinks of a user's regular expression is not the user's affair
    try:
        app()
    except BatchrunError as error:
        _end(error)
    except KeyboardInterrupt:  # before the run has its own way with signals
        print("batchrun: stopped before anything ran", file=sys.stderr)
        sys.exit(130)
    except OSError as error:  # of printing, or of a path that can be none: files and models raise errors of their own
        if error.filename is not None:
            _end(UsageError(f"{str(error.filename)[:200]}: {error.strerror}; expected another path"))
        _end(OutputError(f"standard output could not be written: {error.strerror}"))


def _end(error: BatchrunError) -> NoReturn:
    if str(error) and sys.stderr is not None:
        with contextlib.suppress(OSError):
            print(f"batchrun: {printable(without_credentials(str(error)))}", file=sys.stderr)
    sys.exit(error.exit_code)
