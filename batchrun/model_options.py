"""Flags of the model, the engine, the answer and the settings file, as several commands take them."""

from pathlib import Path
from typing import Annotated, Any

import typer

from batchrun import completions
from batchrun.errors import UsageError

Model = Annotated[
    str | None,
    typer.Option(
        help="A .gguf path, an MLX folder, smollm2 (default), hf:owner/repository[/file.gguf] (see models pull).",
        autocompletion=completions.models,
    ),
]
Weights = Annotated[
    str | None,
    typer.Option(
        help="Number format: auto (default: a fast copy of smollm2), as-is, q8_0 or q4_0.",
        autocompletion=completions.choices("weights"),
    ),
]
Engine = Annotated[
    str | None,
    typer.Option(
        help="auto (default), llamacpp, mlx, or fake (a toy that checks the rules).",
        autocompletion=completions.choices("engine"),
    ),
]
Parallel = Annotated[int | None, typer.Option(help="Rows that decode together. Default: 8, or what pays.")]
Context = Annotated[int | None, typer.Option(help="Tokens in one slot. Default: what the longest job needs.")]
BatchTokens = Annotated[int | None, typer.Option(help="Tokens in one forward. Default: 512.")]
Threads = Annotated[int | None, typer.Option(help="Processor threads. Default: one a physical core.")]
Prefix = Annotated[
    bool | None, typer.Option("--prefix/--no-prefix", help="Compute shared prefixes once (default) or not.")
]
Flash = Annotated[bool | None, typer.Option("--flash/--no-flash", help="Flash attention. Default: on.")]
Kv = Annotated[
    str | None,
    typer.Option(
        help="Number format of the KV cache: f16 (default) or q8_0, half the memory.",
        autocompletion=completions.choices("kv"),
    ),
]
Lookup = Annotated[
    bool | None,
    typer.Option("--lookup/--no-lookup", help="Try continuations found in the prompt (default), where it pays."),
]
Layout = Annotated[
    str | None,
    typer.Option(
        help="What leads a prompt: prompt-first (default), or document-first (see check).",
        autocompletion=completions.choices("layout"),
    ),
]
Chain = Annotated[
    int | None, typer.Option(help="mlx: tokens that free greedy rows draw between two looks. Default: 8.")
]
MlxCacheMib = Annotated[int | None, typer.Option(help="mlx: freed memory kept for reuse, in MiB. Default: 512.")]
MlxWiredMib = Annotated[
    int | None, typer.Option(help="mlx: memory macOS may not page out, in MiB. Default: not touched.")
]
GraceSeconds = Annotated[float | None, typer.Option(help="Seconds that running rows get after Ctrl-C. Default: 10.")]
MaxTokens = Annotated[int | None, typer.Option(help="Longest answer, for jobs that do not say. Default: 512.")]
Temperature = Annotated[float | None, typer.Option(help="0 (default) is greedy.")]
TopP = Annotated[float | None, typer.Option(help="Nucleus: draw from this share of probability. Default: 1.")]
TopK = Annotated[int | None, typer.Option(help="Draw from this many best tokens. Default: 0, no limit.")]
MinP = Annotated[float | None, typer.Option(help="Drop tokens below this share of the best. Default: 0.")]
Seed = Annotated[int | None, typer.Option(help="Of every draw. Default: 0.")]
Stop = Annotated[list[str] | None, typer.Option(help="End a free-text answer at this string; may be given again.")]
System = Annotated[str | None, typer.Option(help="System turn of jobs that have none.")]
SchemaName = Annotated[
    str | None,
    typer.Option("--schema", help="Schema of jobs that name none.", autocompletion=completions.schemas),
]
Schemas = Annotated[str | None, typer.Option(help="Folder of schemas. Default: schemas/ here or beside the job file.")]
SchemaInPrompt = Annotated[str | None, typer.Option(help="on (default) or off: show the model its schema.")]
OnBudget = Annotated[
    str | None,
    typer.Option(
        help="When max_tokens runs out under a schema: close (default) the answer, retry with more, or fail.",
        autocompletion=completions.choices("on_budget"),
    ),
]
Retries = Annotated[int | None, typer.Option(help="Tries more for an answer that fails its schema. Default: 1.")]
Thinking = Annotated[
    str | None, typer.Option(help="off (default), or the tokens a thinking model may think before it answers.")
]
Config = Annotated[Path | None, typer.Option(help="Settings file. Default: batchrun.toml here, or the user's own.")]
Output = Annotated[
    str | None, typer.Option("--output", "-o", help="Results file; - is standard output. Default: JOBS.results.jsonl.")
]
Stats = Annotated[Path | None, typer.Option(help="Stats file. Default: beside the results, with .stats in its name.")]
Fresh = Annotated[bool, typer.Option("--fresh", help="Start over instead of resuming; refuses to overwrite.")]
Force = Annotated[bool, typer.Option("--force", help="With --fresh: overwrite.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


def given(arguments: dict[str, Any]) -> dict[str, Any]:
    """The settings among a command's arguments."""
    from batchrun.config import Settings

    given = {name: value for name, value in arguments.items() if name in Settings.__dataclass_fields__}
    if (path := arguments.get("prompt_file")) is not None:
        given["prompt"] = _prompt_of(path, given.get("prompt"))
    return given | {"stop": given.get("stop") or None}


def _prompt_of(path: Path, prompt: str | None) -> str:
    if prompt is not None:
        raise UsageError("both --prompt and --prompt-file are there; expected one of them")
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"--prompt-file {path}: {reason}") from error
