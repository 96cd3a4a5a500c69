"""The commands for people who look: `report` and `swarm`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from batchrun import model_options
from batchrun.errors import UsageError


def report(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS [LATER]", help="Results of a run, or of two.")],
    stats: Annotated[Path | None, typer.Option(help="The run's stats. Default: those beside the results.")] = None,
    html: Annotated[Path | None, typer.Option(help="Write one HTML page that opens offline.")] = None,
    as_json: model_options.AsJson = False,
) -> None:
    """Say what a run came to: statuses, speed, what went wrong, what the answers hold. Of two runs: what changed.

    Reads the results and the stats beside them, changes nothing, and needs no model.
    """
    from batchrun.report import command

    command.show(results, stats, html, as_json=as_json)


def swarm(
    question: Annotated[str, typer.Argument(metavar="QUESTION", help="What all agents are asked.")],
    document: Annotated[Path | None, typer.Option(help="A text that all agents read first.")] = None,
    roles: Annotated[Path | None, typer.Option(help="Agents of your own: one 'name: task' a line.")] = None,
    agents: Annotated[int | None, typer.Option(help="Only the first so many roles.", min=1)] = None,
    synthesize: Annotated[bool, typer.Option("--synthesize", help="A last step reads all answers.")] = False,
    keep: Annotated[str | None, typer.Option(help="first:N ends the rest after N good answers.")] = None,
    schema: model_options.SchemaName = None,
    max_tokens: Annotated[int, typer.Option(help="Budget of each agent.", min=1)] = 128,
    model: model_options.Model = None,
    engine: model_options.Engine = None,
    schemas: model_options.Schemas = None,
    temperature: model_options.Temperature = None,
    seed: model_options.Seed = None,
    config: model_options.Config = None,
    as_json: model_options.AsJson = False,
) -> None:
    """Ask one question of up to eight specialists at once, and watch their cards fill.

    Document and question are computed once; all agents decode in one batch and leave it as they finish.
    """
    flags = model_options.given(locals()) | {"document": None}
    from batchrun.config import resolve
    from batchrun.swarm import command
    from batchrun.swarm.fan_out import Question
    from batchrun.swarm.roles import ROLES, read_roles

    asked = Question(question, _text(document), schema, max_tokens, _kept(keep))
    chosen = (read_roles(roles) if roles else ROLES)[:agents]
    command.ask(resolve(flags, os.environ, config), asked, chosen, synthesize=synthesize, as_json=as_json)


def _text(path: Path | None) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path else None
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--document {path} cannot be read: {error}") from error


def _kept(text: str | None) -> int | None:
    """The number of `first:N`."""
    if text is None:
        return None
    word, _, number = text.partition(":")
    if word != "first" or not number.isdecimal() or number == "0":
        raise UsageError(f"--keep is {text!r}; expected first:N with N from 1")
    return int(number)
