"""Says how an engine's library was built, from a process of its own: a library built for another processor dies as it
is loaded, and takes with it whoever loads it.

`python -m batchrun.backends.build llamacpp` (or `mlx`) is the other side: one JSON object on its standard output.
"""

import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from batchrun.backends.apart import run_apart

PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class Build:
    """What an engine's library says of itself; `error`: why it cannot be loaded."""

    facts: dict[str, Any]
    error: str = ""


def build_of(engine: str) -> Build:
    """Asks a library, in a child."""
    try:
        done = run_apart("build", engine, patience_s=PATIENCE_S)
    except subprocess.TimeoutExpired:
        return Build({}, f"did not load within {PATIENCE_S:g} s")
    if done.by:
        return Build({}, f"ends by {done.by} as it is loaded")
    if done.status:
        return Build({}, done.words or f"ends with status {done.status} as it is loaded")
    try:
        return Build(json.loads(done.out.strip().split(b"\n")[-1]))
    except ValueError:
        return Build({}, "ends without a word as it is loaded")


def parts_of(system_info: str) -> dict[str, list[str]]:
    """llama.cpp's own line, `CPU : AVX2 = 1 | FMA = 1 | CUDA : ARCHS = 890 | `, by device: what is switched on."""
    parts: dict[str, list[str]] = {}
    device = "CPU"
    for piece in system_info.split("|"):
        named = re.match(r"\s*(\w+) : (.*)", piece)
        if named:
            device, piece = named.groups()
            parts.setdefault(device, [])
        name, equals, value = (word.strip() for word in piece.partition("="))
        if equals and value != "0":
            parts.setdefault(device, []).append(name if value == "1" else f"{name}={value}")
    return parts


def _llamacpp() -> dict[str, Any]:
    import llama_cpp

    llama_cpp.llama_backend_init()
    return {
        "built": parts_of(llama_cpp.llama_print_system_info().decode(errors="replace")),
        "gpu": bool(llama_cpp.llama_supports_gpu_offload()),
    }


def _mlx() -> dict[str, Any]:
    from batchrun.backends.mlx_blas import openblas
    from batchrun.backends.mlx_device import mx, on_a_processor

    blas = "OpenBLAS" if openblas() else "its own" if sys.platform == "linux" else "the system's"
    return {"device": str(mx.default_device()), "gpu": not on_a_processor(), "blas": blas}


def main() -> None:
    facts = {"llamacpp": _llamacpp, "mlx": _mlx}[sys.argv[1]]()
    print(json.dumps(facts))
    sys.stdout.flush()
    os._exit(0)  # without a library's farewell


if __name__ == "__main__":
    main()
