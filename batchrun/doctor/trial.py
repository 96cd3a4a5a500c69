"""Loads the weights and draws a few tokens, as a run would: the one way to know that it works."""

import time

from batchrun.assembly import Parts, open_backend
from batchrun.backends.base import LoadPlan
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.doctor.model import download_again
from batchrun.errors import ModelError
from batchrun.probe import TOKENS, run_probe

# what sends SIGKILL is a system that is short of memory
MORE_MEMORY = "end other programs, or take a smaller model: batchrun doctor --model FILE"


def trial(parts: Parts, load: LoadPlan) -> Section:
    """One row, alone, for as long as `load` says."""
    began_s = time.monotonic()
    try:
        backend = open_backend(parts, load, lambda: False, lambda: False)
    except ModelError as error:
        return failed(parts, error)
    try:
        loaded_s = time.monotonic() - began_s
        took = run_probe(backend, parts.model.tokenizer, 0, time.monotonic)
    except ModelError as error:
        return failed(parts, error)
    finally:
        backend.close()
    speed = 1 / max(took.token_s, 1e-9)
    return Section(
        "trial",
        (
            Fact("load_s", round(loaded_s, 2), f"{loaded_s:.1f} s"),
            Fact("tokens_per_s", round(speed, 1), f"{speed:.0f} tokens/s, one row, {TOKENS} tokens"),
        ),
    )


def failed(parts: Parts, error: ModelError) -> Section:
    """A trial that came to nothing."""
    what = f"the weights were loaded and tried, and failed: {error}"
    fix = MORE_MEMORY if "ended by SIGKILL" in what else download_again(parts.settings.model)
    return Section("trial", (), [Problem(what, fix)])
