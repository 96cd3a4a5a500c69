"""Peers of the scoreboard by their names on the command line."""

from pathlib import Path

from batchrun.bench.mlx_peer import batch_generate
from batchrun.bench.modes import Mode
from batchrun.bench.server import LlamaServer
from batchrun.errors import UsageError


def peer(text: str) -> tuple[str, Mode]:
    """A peer's name and its mode.  Raises UsageError for one that is not known."""
    name, _, path = text.partition("=")
    if name == "llama-server" and path:
        return name, LlamaServer(Path(path).expanduser())
    if text == "mlx-lm":
        return name, batch_generate
    raise UsageError(f"--peer is {text!r}; expected llama-server=PATH or mlx-lm")
