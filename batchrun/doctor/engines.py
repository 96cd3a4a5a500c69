"""Which engines are here, in which versions, and how they were built."""

import platform
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from batchrun.backends.build import Build, build_of
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.versions import installed

PACKAGES = {"llamacpp": "llama-cpp-python", "mlx": "mlx-lm"}
NAMES = {"llamacpp": "llama.cpp", "mlx": "MLX"}
INSTALL = {"llamacpp": "pip install llama-cpp-python", "mlx": "pip install 'batchrun-llm[mlx]'"}
BUILD_AGAIN = "pip install --force-reinstall --no-deps --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
SIMD = {"avx2": "AVX2", "fma": "FMA", "f16c": "F16C", "avx512f": "AVX512"}
"""What a processor calls them in /proc/cpuinfo, and llama.cpp in its build."""


def engines(wanted: str) -> Section:
    """`wanted`: the engine that the settings name; problems with others stop nobody.

    MLX needs llama.cpp too, which reads GGUF files and their vocabularies for it.
    """
    facts, problems = [], []
    for engine, package in PACKAGES.items():
        number = installed(package)
        build = build_of(engine)
        needed = engine == wanted or (engine == "llamacpp" and wanted in ("auto", "mlx"))
        facts.append(Fact(NAMES[engine], _record(number, build), _shown(number, build)))
        if build.error and (number or needed):
            problems.append(_broken(engine, number, build.error, needed=needed))
        elif not build.error:
            problems += _slow(engine, build)
    if installed("mlx-lm") is None and sys.platform == "darwin" and platform.machine() == "arm64":
        problems.append(Problem("MLX, the fast engine of this machine, is not installed", INSTALL["mlx"], stops=False))
    guide = installed("llguidance")
    facts.append(Fact("llguidance", guide))
    return Section("engines", facts, problems)


def _record(number: str | None, build: Build) -> dict[str, Any] | None:
    if number is None and build.error:
        return None
    return {"version": number, **build.facts, **({"error": build.error} if build.error else {})}


def _shown(number: str | None, build: Build) -> str:
    if build.error:
        return "not installed" if number is None else f"{number}, cannot be loaded"
    built = build.facts.get("built")
    if built is None:
        return f"{number} on {build.facts['device']}, BLAS: {build.facts['blas']}"
    devices = "; ".join(f"{device}: {' '.join(switched) or 'built in'}" for device, switched in built.items())
    return f"{number} for {devices}" + ("" if build.facts["gpu"] else "; no GPU")


def _broken(engine: str, number: str | None, error: str, *, needed: bool) -> Problem:
    name = NAMES[engine]
    if number is None or "ModuleNotFoundError" in error:
        return Problem(f"the engine {name} is not installed ({error})", INSTALL[engine], needed)
    fix = BUILD_AGAIN if engine == "llamacpp" else f"{INSTALL[engine]} --force-reinstall"
    return Problem(f"the engine {name} {number} cannot be loaded: {error}", fix, needed)


def _slow(engine: str, build: Build) -> Iterator[Problem]:
    """Builds that leave out what this machine has."""
    if engine == "mlx":
        if build.facts["blas"] == "its own":
            what = "MLX has no OpenBLAS here and multiplies about ten times slower"
            yield Problem(what, "apt install libopenblas0-pthread", stops=False)
        return
    switched = set(build.facts["built"].get("CPU", ()))
    missing = [name for name in processor_features() if name not in switched]
    if missing:
        what = f"llama.cpp was built without {', '.join(missing)}, which this processor has"
        yield Problem(what, f"CMAKE_ARGS=-DGGML_NATIVE=on {BUILD_AGAIN}", stops=False)
    if not build.facts["gpu"] and shutil.which("nvidia-smi"):
        what = "an NVIDIA card is here, and llama.cpp was built without CUDA"
        yield Problem(what, f"CMAKE_ARGS=-DGGML_CUDA=on {BUILD_AGAIN}", stops=False)


def processor_features() -> list[str]:
    """Those of `SIMD` that this processor has, where Linux tells."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return []
    flags = next((line.split() for line in text.splitlines() if line.startswith("flags")), [])
    return [name for flag, name in SIMD.items() if flag in flags]
