"""The slots that a run would set up, and what would help where memory holds none."""

from dataclasses import asdict, replace

from batchrun.assembly import Parts, slot_plan
from batchrun.backends.base import LoadPlan
from batchrun.byte_counts import memory_size
from batchrun.capacity import CONTEXT_STEP, UNKNOWN_CONTEXT, described, most_context, needed_bytes
from batchrun.doctor.findings import Fact, Problem, Section
from batchrun.doctor.model import engine_of
from batchrun.errors import ModelError
from batchrun.machine import Memory, memory, this_machine
from batchrun.pacing import wants_probes


def plan(parts: Parts) -> tuple[Section, LoadPlan | None]:
    """The plan for jobs of unknown length, as a stream gets it; and the smallest, for a trial."""
    settings, card = parts.settings, parts.model.card
    try:
        load = slot_plan(parts, None, probes=wants_probes(settings))
    except ModelError as error:
        problem = _short_of_memory(parts, str(error))
        return Section("plan", (), [problem]), None if problem.stops else _smallest(parts)
    shown = described(load, card, fixed=settings.parallel is not None)
    return Section("plan", [Fact("slots", asdict(load), shown)]), _smallest(parts)


def _smallest(parts: Parts) -> LoadPlan | None:
    """One row of a few tokens; None where even that finds no room."""
    few = replace(parts.settings, parallel=1, context=CONTEXT_STEP, prefix=False)
    try:
        return slot_plan(replace(parts, settings=few), None)
    except ModelError:  # memory went meanwhile, and the plan has said so or will at the next start
        return None


def _short_of_memory(parts: Parts, error: str) -> Problem:
    """Stops a run, unless shorter jobs find room."""
    settings, card = parts.settings, parts.model.card
    kv = "f16" if settings.kv == "auto" else settings.kv
    wanted = min(settings.context or UNKNOWN_CONTEXT, card.context_train)
    what, least = error.partition("; expected")[0], min(CONTEXT_STEP, card.context_train)
    fits = most_context(this_machine(), card, kv)
    if fits:
        return Problem(what, f"batchrun run JOBS --context {fits}", stops=settings.context is not None)
    compact = kv == "f16" and settings.flash is not False and engine_of(settings) == "llamacpp"
    if compact and most_context(this_machine(), card, "q8_0") >= wanted:
        return Problem(what, "batchrun run JOBS --kv q8_0")
    there, needed = memory(), needed_bytes(card, least, kv)
    limit = f" (limited by {there.limit})" if there.limit else ""
    has = memory_size(there.available_bytes)
    what = f"one row of {least} tokens needs {memory_size(needed)} with this model, {has} are available{limit}"
    return Problem(what, _more(there, needed))


def _more(found: Memory, needed: int) -> str:
    """How to get so many bytes, by what keeps them from us."""
    missing = max(0, needed - found.available_bytes)
    if found.limit == "ulimit -v":
        return "ulimit -v unlimited  # in the shell or job script that set it"
    if found.limit == "cgroup":
        return f"give the container {memory_size(missing)} more, such as docker run --memory"
    if needed > found.total_bytes:
        return f"batchrun doctor --model FILE  # one of at most {memory_size(found.total_bytes * 3 // 4)}"
    return f"end other programs until {memory_size(missing)} more are available"
