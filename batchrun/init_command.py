"""The command `init`."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from batchrun import options

EXAMPLE = """Example:  batchrun init reviews.csv --example '{"product": "kettle", "mood": "good|bad|mixed"}'"""


def init(
    data: Annotated[
        str, typer.Argument(metavar="DATA", help="A CSV, TSV or JSONL file (.gz too), or a folder or glob of texts.")
    ],
    example: Annotated[
        list[str] | None,
        typer.Option(
            "--example",
            help='An answer as you want it: a JSON object, or a file of one or more. "good|bad" offers a choice. '
            "May be given again: keys that not all have may be left out.",
            show_default=False,
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Job file to write. Default: DATA.jobs.jsonl, here.")
    ] = None,
    text_column: Annotated[
        list[str] | None, typer.Option(help="Column that is the text; several are joined. Default: the longest.")
    ] = None,
    id_column: Annotated[
        str | None, typer.Option(help="Column that names each row. Default: id or the like, else line numbers.")
    ] = None,
    prompt: Annotated[str | None, typer.Option(help="What to do with each text. Default: names the keys.")] = None,
    max_tokens: Annotated[
        int | None, typer.Option(help="Longest answer. Default: several times the example.", min=1)
    ] = None,
    input_format: options.InputFormat = None,
    encoding: Annotated[str | None, typer.Option(help="Of DATA: cp1252, utf-16, ... Default: utf-8.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Leave out rows that are unreadable or empty.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that are there.")] = False,
) -> None:
    """Make a job file and a schema from your own data and one example of the answer you want.

    Each row, object or text becomes one job; other columns come back as meta. The schema goes into schemas/ beside the
    job file: look it over, tighten it, and run the command that is printed. Needs no model.
    """
    from batchrun.draft.command import Wish
    from batchrun.draft.command import init as make

    wish = Wish(
        data,
        tuple(example or ()),
        output,
        tuple(text_column or ()),
        id_column,
        prompt,
        max_tokens,
        input_format,
        encoding,
        skip_bad,
        force,
    )
    typer.echo(shlex.join(make(wish)))
