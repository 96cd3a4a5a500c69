"""The command for those whose run does not work, or not as fast as it should: `doctor`."""

import os
import sys
from typing import Annotated

import typer

from batchrun import model_options


def doctor(
    model: model_options.Model = None,
    engine: model_options.Engine = None,
    weights: model_options.Weights = None,
    parallel: model_options.Parallel = None,
    context: model_options.Context = None,
    threads: model_options.Threads = None,
    kv: model_options.Kv = None,
    trial: Annotated[bool, typer.Option("--trial/--no-trial", help="Load the weights and draw 16 tokens.")] = True,
    config: model_options.Config = None,
    as_json: model_options.AsJson = False,
) -> None:
    """Say what a run would find here, and name what is in its way with the command that fixes it.

    Engines and how they were built, threads, memory and the plan of slots, sensors, model and licence, what tune and
    calibrate measured, and each setting with its origin. Fetches nothing. Exit status: 0 run would work, 1 it could
    not.
    """
    flags = model_options.given(locals())
    from batchrun.doctor import command

    def tell(text: str) -> None:
        print(f"batchrun: {text}", file=sys.stderr)

    try:
        found = command.diagnose(flags, os.environ, config, tell, tries=trial)
    except KeyboardInterrupt:
        tell("stopped before all was looked at")
        raise typer.Exit(130) from None
    command.show(found, json_wanted=as_json)
    raise typer.Exit(0 if found.can_run else 1)
