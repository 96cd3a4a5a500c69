"""The commands that measure speed: `bench` and `tune`."""

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from batchrun import model_options
from batchrun.errors import UsageError


def bench(
    workload: Annotated[str, typer.Argument(help="research, swarm, classify, pairs, staggered, levers, or plain.")],
    jobs: Annotated[int | None, typer.Option(help="How many jobs. Default: the workload's own number.", min=1)] = None,
    repeat: Annotated[int, typer.Option(help="Runs of each mode, in turn; medians are shown.", min=1)] = 3,
    mode: Annotated[str, typer.Option(help="Of serial, static, continuous; joined by commas.")] = "continuous",
    peer: Annotated[str | None, typer.Option(help="llama-server=PATH or mlx-lm: run the same through it.")] = None,
    streams: Annotated[str, typer.Option(help="Widths to sweep over, such as 1,2,4,8.")] = "",
    sweep_weights: Annotated[str, typer.Option(help="Formats or .gguf paths to sweep over: q8_0,q4_0.")] = "",
    model: model_options.Model = None,
    engine: model_options.Engine = None,
    weights: model_options.Weights = None,
    parallel: model_options.Parallel = None,
    prefix: model_options.Prefix = None,
    layout: model_options.Layout = None,
    lookup: model_options.Lookup = None,
    batch_tokens: model_options.BatchTokens = None,
    threads: model_options.Threads = None,
    flash: model_options.Flash = None,
    kv: model_options.Kv = None,
    chain: model_options.Chain = None,
    seed: model_options.Seed = None,
    config: model_options.Config = None,
    as_json: model_options.AsJson = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")] = False,
) -> None:
    """Time a generated workload and print medians: wall, tokens, validated results a minute, shares of the time.

    Modes run in turn on the same weights. Under the table stands how near batchrun came to the bare kernels.
    """
    flags = model_options.given(locals())
    if as_json and markdown:
        raise UsageError("--json and --markdown are two ways to print one table; expected one of them")
    from batchrun.bench import board, figures
    from batchrun.config import resolve

    plan = board.Plan(
        workload,
        jobs,
        repeat,
        _listed(mode),
        peer,
        tuple(_whole(text) for text in _listed(streams)),
        _listed(sweep_weights),
    )
    found = board.measure(resolve(flags, os.environ, config), plan, lambda text: print(text, file=sys.stderr))
    if as_json:
        typer.echo(json.dumps(figures.as_json(found.rows) | {"notes": found.notes}, indent=2))
    else:
        typer.echo("\n".join([figures.table(found.rows, markdown=markdown), *(f"\n{note}" for note in found.notes)]))


def tune(
    jobs: Annotated[Path, typer.Argument(metavar="JOBS", help="Job file to take a sample of.")],
    sample: Annotated[int, typer.Option(help="How many jobs to run with each setting.", min=1)] = 16,
    model: model_options.Model = None,
    engine: model_options.Engine = None,
    config: model_options.Config = None,
) -> None:
    """Find the fastest weights format, attention, cache, width and threads on this machine; later runs use them.

    Takes some minutes: a sample of the jobs is run with each setting. What it finds fills only what you leave open.
    """
    flags = model_options.given(locals())
    from batchrun.bench import tune as tuning
    from batchrun.config import resolve

    found = tuning.tune(resolve(flags, os.environ, config), jobs, sample, lambda text: print(text, file=sys.stderr))
    first, best = found.trials[0].figures, found.best.figures
    typer.echo(
        f"best: {found.best.label}: {first.wall_s / best.wall_s:.2f} times the speed, "
        f"{found.best.changed} of {best.jobs} answers changed, {best.valid} valid (before: {first.valid})"
    )
    typer.echo(f"kept in {found.path}")


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _whole(text: str) -> int:
    if not text.isdigit() or not int(text):
        raise UsageError(f"--streams holds {text!r}; expected whole numbers of at least 1, joined by commas")
    return int(text)
