"""The commands for people who look: `report`, `audit` and `swarm`."""

import os
from pathlib import Path
from typing import Annotated

import typer

from batchrun import model_options, options
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


def audit(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Results of a run.")],
    jobs: Annotated[
        list[str] | None, typer.Option(help="The run's job file. Default: the one beside RESULTS.", metavar="JOBS")
    ] = None,
    share: Annotated[str, typer.Option(help="How many of the results: 2%, or 0.02.")] = "2%",
    documents: options.Documents = None,
    prompt: options.Prompt = None,
    prompt_file: options.PromptFile = None,
    document: options.Document = None,
    id_column: options.IdColumn = None,
    input_format: options.InputFormat = None,
    model: model_options.Model = None,
    engine: model_options.Engine = None,
    weights: model_options.Weights = None,
    schema: model_options.SchemaName = None,
    system: model_options.System = None,
    max_tokens: model_options.MaxTokens = None,
    temperature: model_options.Temperature = None,
    top_p: model_options.TopP = None,
    top_k: model_options.TopK = None,
    min_p: model_options.MinP = None,
    seed: model_options.Seed = None,
    stop: model_options.Stop = None,
    schemas: model_options.Schemas = None,
    schema_in_prompt: model_options.SchemaInPrompt = None,
    on_budget: model_options.OnBudget = None,
    layout: model_options.Layout = None,
    threads: model_options.Threads = None,
    root: options.Root = None,
    config: model_options.Config = None,
    as_json: model_options.AsJson = False,
) -> None:
    """Run a seeded sample of a run's jobs again, each alone, and compare: identical, near-tie, different.

    Rows of a batch must not change each other's answers. Near-ties part where two tokens were nearly as likely. Give
    the settings of the run; jobs that differ are passed over and counted. Exit status: 0 none is different, 3 some are,
    4 nothing could be compared.
    """
    flags = model_options.given(locals())
    from batchrun import audit as auditing
    from batchrun.config import resolve

    found = auditing.command(resolve(flags, os.environ, config), results, jobs or [], documents or [], share)
    typer.echo(auditing.shown(found, as_json=as_json))
    raise typer.Exit(auditing.exit_status(found))


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

    Document and question are computed once; all agents decode in one batch and leave it as they finish. Ctrl-C prints
    what was said so far. Exit status: 0 all answers are good, 3 some are not.
    """
    if not question.strip():
        raise UsageError("QUESTION is empty; expected what all agents are asked")
    flags = model_options.given(locals()) | {"document": None}
    from batchrun.config import resolve
    from batchrun.swarm import command
    from batchrun.swarm.fan_out import Question
    from batchrun.swarm.roles import ROLES, read_roles

    asked = Question(question, _text(document), schema, max_tokens, _kept(keep))
    chosen = (read_roles(roles) if roles else ROLES)[:agents]
    settings = resolve(flags, os.environ, config)
    raise typer.Exit(command.ask(settings, asked, chosen, synthesize=synthesize, as_json=as_json))


def _text(path: Path | None) -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig") if path else None
    except UnicodeDecodeError as error:
        raise UsageError(f"--document {path} is not UTF-8; expected UTF-8 text") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UsageError(f"--document {path} cannot be read: {reason}; expected a text file") from error


def _kept(text: str | None) -> int | None:
    """The number of `first:N`."""
    if text is None:
        return None
    word, _, number = text.partition(":")
    if word != "first" or not number.isdecimal() or number == "0":
        raise UsageError(f"--keep is {text!r}; expected first:N with N from 1")
    return int(number)
