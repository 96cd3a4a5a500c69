"""Opens a model file for the first time in a process of its own: a damaged one can end its reader without a word.

What was opened well once is remembered by its identity, so later runs lose no time.  `python -m batchrun.backends.probe
FILE` is the other side.
"""

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from batchrun.backends.apart import run_apart
from batchrun.errors import ModelError

PATIENCE_S = 120.0


def probe(path: Path, identity: str, remembered: Path) -> None:
    """Raises ModelError where the file cannot be opened.  `remembered`: the folder of those that could be."""
    mark = remembered / identity[:32]
    if mark.exists():
        return
    try:
        done = run_apart("probe", path, patience_s=PATIENCE_S)
    except subprocess.TimeoutExpired as error:
        raise ModelError(f"{path.name} could not be opened within {PATIENCE_S:g} s") from error
    if done.by:
        raise ModelError(f"{path.name} makes llama.cpp end by {done.by}; expected a sound GGUF file")
    if done.status:
        raise ModelError(done.words or f"{path.name} could not be opened")
    with contextlib.suppress(OSError):  # without a place for marks the next run looks again
        remembered.mkdir(parents=True, exist_ok=True)
        mark.touch()


def main() -> None:
    from batchrun.backends.llamacpp_model import LlamaModel

    path = Path(sys.argv[1])
    try:
        LlamaModel(path, path.name, "").tokenizer.for_guide()
    except ModelError as error:
        print(error, file=sys.stderr)
        sys.stderr.flush()
        os._exit(ModelError.exit_code)
    os._exit(0)


if __name__ == "__main__":
    main()
