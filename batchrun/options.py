"""Flags that say what is read, which jobs of it are taken, what becomes of long ones, and where results go."""

from pathlib import Path
from typing import Annotated

import typer

from batchrun import completions

JobFiles = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="JOBS...",
        help="Job files: JSONL, OpenAI batch lines, CSV or TSV, .gz too; - reads standard input as it comes.",
        show_default=False,
    ),
]
Documents = Annotated[
    list[str] | None,
    typer.Option(help="In place of JOBS: a folder or glob of text files, each a job; 'notes/**/*.md'."),
]
Prompt = Annotated[
    str | None, typer.Option(help="Prompt of records that have none; {text} takes their column or key `text`.")
]
PromptFile = Annotated[Path | None, typer.Option(help="The same, from a file.")]
Document = Annotated[str | None, typer.Option(help="Document of records that have none; {text} takes a column.")]
IdColumn = Annotated[str | None, typer.Option(help="Column or key that is a record's id. Default: id.")]
InputFormat = Annotated[
    str | None,
    typer.Option(
        help="jsonl, csv or tsv. Default: by the file's name.", autocompletion=completions.choices("input_format")
    ),
]
Root = Annotated[
    str | None, typer.Option(help="Folder that files named by job lines must lie in. Default: the job file's.")
]
LineBytes = Annotated[int | None, typer.Option(help="Longest line or document in bytes. Default: 64 MiB.")]

Only = Annotated[list[str] | None, typer.Option(help="Take only the job of this id; may be given again.")]
Where = Annotated[
    list[str] | None,
    typer.Option(help="Run again what has such a result: status=invalid, code=too_long, meta.page!=3; all must hold."),
]
ShardOf = Annotated[str | None, typer.Option("--shard", help="3/8: take one part of eight, by the jobs' ids.")]
Limit = Annotated[int | None, typer.Option(help="Take so many jobs from the start.", min=1)]
Sample = Annotated[int | None, typer.Option(help="Take so many jobs by chance; --seed gives other ones.", min=1)]
RetryFailed = Annotated[bool, typer.Option("--retry-failed", help="Run again also what has a result that is not ok.")]

OnOverflow = Annotated[
    str | None,
    typer.Option(
        help="A job too long for a slot: reject (default), truncate-middle, truncate-end, or chunk.",
        autocompletion=completions.choices("on_overflow"),
    ),
]
Overlap = Annotated[
    int | None,
    typer.Option("--overlap-characters", help="What a piece of a document shares with the next. Default: 200."),
]
ReducePrompt = Annotated[str | None, typer.Option(help="With chunk: makes one answer of those to the pieces.")]

OutputFormat = Annotated[
    str | None,
    typer.Option(
        "--format",
        "--output-format",
        help="jsonl (default), openai, or csv.",
        autocompletion=completions.choices("output_format"),
    ),
]
Order = Annotated[
    str | None, typer.Option(help="completion (default), or input.", autocompletion=completions.choices("order"))
]
State = Annotated[
    Path | None, typer.Option(help="Folder for the journal of a run whose results go elsewhere: makes it resumable.")
]
Prune = Annotated[bool, typer.Option("--prune", help="Move away results of jobs that are no longer in the input.")]
Live = Annotated[
    bool,
    typer.Option("--live", help="Show slots, burst, heat and speed while it runs, on a terminal; else a bar."),
]
MaxFailures = Annotated[str | None, typer.Option(help="Stop when more results than that are not ok: 20, or 5%.")]
DeadlineAt = Annotated[str | None, typer.Option("--deadline", help="Stop then: 6h, 06:00, or 2026-12-01T06:00.")]
Audit = Annotated[
    str | None, typer.Option(help="Run a share of the jobs again alone and compare: 2%.", metavar="SHARE")
]
Ray = Annotated[
    str | None, typer.Option("--ray", help="Run on a Ray cluster: auto, or its address.", metavar="auto|ADDRESS")
]
Workers = Annotated[int | None, typer.Option(help="Workers on the cluster. Default: one a node.")]
WorkerResources = Annotated[
    str | None, typer.Option(help="What each worker takes of its node, such as '{\"num_gpus\": 1}'.", metavar="JSON")
]
Isolate = Annotated[
    bool | None, typer.Option("--isolate/--no-isolate", help="Run the model in its own process (default) or not.")
]
