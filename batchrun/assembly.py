"""Puts the parts together: from settings to a model, a reader of jobs, and a plan of slots.

`run` and `check` both start here, so that what `check` says is what `run` does.
"""

import json
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from batchrun import capacity, random_model
from batchrun.backends.base import Backend, Interrupted, LoadPlan, Model
from batchrun.backends.isolated import IsolatedBackend
from batchrun.backends.probe import probe
from batchrun.config import Settings
from batchrun.core import Job, Problem, Request
from batchrun.cost import Work
from batchrun.engines import Weights, engine_for, opened
from batchrun.errors import InputError, JobError, ModelError, UsageError
from batchrun.guide import Guide
from batchrun.inputs import Inputs
from batchrun.jobs import JobReader
from batchrun.line import Line
from batchrun.machine import this_machine
from batchrun.models import EMBEDDED, cache_folder, identity, locate, opened_folder
from batchrun.profile import filled
from batchrun.profile import load as load_profile
from batchrun.prompts import Preparer
from batchrun.retries import REMARK_TOKENS
from batchrun.schema_folders import SchemaFolders
from batchrun.survey import LONGEST_KEPT, Survey
from batchrun.templates import Layout, Template
from batchrun.worker import Worker

FAKE_CONTEXT = 1 << 16
MOST_TOKEN_BYTES = 16
"""Of text in one token, on the average of a prompt: far beyond what any language needs."""


def open_model(settings: Settings) -> Model:
    """The model that settings name, without its weights.  Imports its engine's library.  Raises ModelError."""
    if settings.engine == "fake":
        from batchrun.backends.fake import FakeModel

        return FakeModel(FAKE_CONTEXT)
    path = _located(settings.model)
    engine = engine_for(settings, path)
    return opened(settings, engine, path, _weights(path, settings, engine))


def _located(name: str) -> Path:
    """The model's file or folder.  A file was opened by a process of its own before anything here opens it."""
    if name.startswith(random_model.PREFIX):
        path = random_model.written(name, locate(EMBEDDED), cache_folder())
    else:
        path = locate(name)
    if not path.is_dir():
        probe(path, identity(path), opened_folder())
    return path


def weights_format(settings: Settings, engine: str) -> str:
    """The number format that the weights run in."""
    if settings.weights != "auto":
        return settings.weights
    return "q8_0" if settings.model == EMBEDDED and engine == "llamacpp" else "as-is"


def _weights(original: Path, settings: Settings, engine: str) -> Weights:
    """The file to load: the original, or a copy of it in another number format.

    The embedded weights are Q4_1, a format without fast kernels on most processors: unless told otherwise llama.cpp
    runs them from a Q8_0 copy, which says nearly the same numbers twice as fast.
    """
    kind = weights_format(settings, engine)
    if kind == "as-is":
        return Weights(original, kind)
    if original.is_dir():
        raise ModelError(f"--weights {kind} is for GGUF files; an MLX folder is used as it is")
    from batchrun.backends import llamacpp_weights

    folder = cache_folder()
    try:
        copy = llamacpp_weights.copy_in_format(original, identity(original), kind, folder)
    except ModelError as error:
        if settings.weights != "auto":
            raise
        return Weights(original, "as-is", (f"{error}; using the weights as they are",))
    made = (f"keeping a {kind} copy of the weights in {folder}; --weights as-is does without",) if copy.made else ()
    return Weights(copy.path, kind, made)


@dataclass(frozen=True, slots=True)
class Parts:
    """What every command needs of a model before its weights."""

    settings: Settings
    model: Model
    guide: Guide
    preparer: Preparer
    profiled: bool = False  # whether a profile filled the settings
    notices: tuple[str, ...] = ()  # what a user should be told once


def engine_and_formats(settings: Settings) -> tuple[str, bool]:
    """The engine that will run, and whether the model can be put into other number formats: a GGUF file can.

    Raises ModelError.
    """
    path = _located(settings.model)
    return engine_for(settings, path), not path.is_dir()


def original_identity(settings: Settings) -> str:
    """Of the weights as they came, whatever format they run in, and of the engine.  Raises ModelError."""
    path = _located(settings.model)
    engine = engine_for(settings, path)
    return identity(path) if engine == "llamacpp" else f"{engine}-{identity(path)}"


def open_parts(settings: Settings, *, profiled: bool = True) -> Parts:
    """Opens the model and what depends on its vocabulary.  Raises ModelError.

    `profiled`: whether settings that were left open are taken from what `batchrun tune` found.
    """
    found = load_profile(original_identity(settings)) if profiled and settings.engine != "fake" else None
    settings = filled(settings, found)
    model = open_model(settings)
    notices = (f"using the profile that tune made on {found.measured_on}",) if found else ()
    threads = settings.threads or this_machine().threads
    asking = settings.asking()
    guide = Guide(model.tokenizer.for_guide(), model.tokenizer.vocab, threads, closes=asking.closes)
    return Parts(
        settings,
        model,
        guide,
        Preparer(model, guide, asking),
        found is not None,
        (*notices, *model.card.notices),
    )


def layout(settings: Settings) -> Layout:
    """How records become job lines.  Raises UsageError for a template that is none."""
    prompt = Template(settings.prompt, "--prompt") if settings.prompt is not None else None
    document = Template(settings.document, "--document") if settings.document is not None else None
    return Layout(prompt, document, settings.id_column)


def job_reader(settings: Settings, path: Path | None, bases: Sequence[Path] = ()) -> JobReader:
    """A reader for lines of one input; `path` is None for a stream.  Relative names start at the job file's folder.

    `bases`: the folders of the inputs, where there are several.  Raises UsageError for a folder of schemas that is
    none, and for a schema of the whole run that cannot be used.
    """
    base = path.parent if path else Path()
    if settings.schemas and not os.path.isdir(settings.schemas):
        raise UsageError(f"--schemas {settings.schemas[:200]} is no folder; expected one that holds schemas")
    bases = bases or [base]
    beside = [folder for each in bases for folder in (each / "schemas", each / ".." / "schemas")]
    schemas = SchemaFolders(
        [Path(settings.schemas)] if settings.schemas else [Path("schemas"), *beside], [*bases, Path()]
    )
    if settings.schema:
        try:
            schemas.load(settings.schema)
        except JobError as error:
            raise UsageError(f"--schema: {error}") from error
    return JobReader(settings.defaults(), schemas, base, layout=layout(settings), document_bytes=settings.line_bytes)


@dataclass(frozen=True, slots=True)
class Preview:
    """What a look over the input found: lines, and the tokens of the longest job (prompt and budget)."""

    lines: int | None
    longest_tokens: int | None


def preview(inputs: Inputs, parts: Parts, stopped: Callable[[], bool] = lambda: False) -> Preview:
    """Sizes the slots.  A stream cannot be looked over: its sizes stay unknown.

    Raises InputError where an input cannot be read or holds no job line, Interrupted where the run is stopped first.
    """
    if not inputs.can_be_surveyed:
        return Preview(None, None)
    most_bytes = parts.model.card.context_train * MOST_TOKEN_BYTES
    found = Survey(_weight, most_bytes)
    for _ in inputs.survey(found):
        if stopped():
            raise Interrupted
    if not found.lines:
        expected = "expected files" if inputs.documents else "expected one JSON object a line"
        raise InputError(f"{inputs.shown} holds no jobs; {expected}")
    return Preview(found.lines, _longest_tokens(found, parts, job_reader(parts.settings, None, inputs.bases)))


def open_backend(parts: Parts, load: LoadPlan, stopped: Callable[[], bool], overdue: Callable[[], bool]) -> Backend:
    """The weights and their slots, in a process of their own unless the settings say otherwise.

    `stopped`: whether loading is to be given up; `overdue`: whether a step that runs is.  Raises ModelError.
    """
    isolate = parts.settings.isolate
    if isolate or (isolate is None and parts.settings.engine != "fake"):
        return IsolatedBackend(parts.model.recipe(load), stopped, overdue)
    return parts.model.load(load, stopped)


def slot_plan(parts: Parts, longest_tokens: int | None, *, probes: bool = False) -> LoadPlan:
    """Slots and context for this machine; with `probes`, one more for those.  Raises ModelError where nothing fits."""
    settings = parts.settings
    wish = capacity.Wish(
        settings.parallel,
        settings.context,
        longest_tokens,
        settings.batch_tokens,
        settings.threads,
        capacity.PREFIX_SLOTS if settings.prefix else 0,
        flash=settings.flash is not False,
        kv="f16" if settings.kv == "auto" else settings.kv,
        probes=int(probes),
    )
    return capacity.plan(this_machine(), parts.model.card, wish)


def open_worker(
    parts: Parts,
    load: LoadPlan,
    clock: Callable[[], float],
    stopped: Callable[[], bool],
    overdue: Callable[[], bool],
    saw_step: Callable[[Work, float], None],
    say: Callable[[str], None],
) -> Worker:
    """Loads the weights, as `open_backend` does.  `say`: told what a user should know.

    Raises ModelError, or Interrupted when it was stopped meanwhile.
    """
    settings = parts.settings
    return Worker(
        open_backend(parts, load, stopped, overdue),
        parts.model.tokenizer,
        parts.guide,
        load,
        clock,
        share_prefixes=settings.prefix,
        look_ahead=settings.lookup,
        fixed_width=settings.parallel is not None,
        saw_step=saw_step,
        say=say,
    )


def too_long(request: Request, context: int, context_train: int) -> Problem:
    """Why a request fits into no slot, with the numbers that say so."""
    prompt, budget = len(request.tokens), request.job.max_tokens
    could = context < request.need_tokens <= context_train
    more = f"; the model could hold {context_train}: see --context" if could else f" and the model {context_train}"
    need = f"the prompt is {prompt} tokens and max_tokens is {budget}, {prompt + budget} in all"
    return Problem("too_long", f"{need}, but a slot holds {context}{more}")


def _longest_tokens(found: Survey, parts: Parts, reader: JobReader) -> int | None:
    """Tokens of the longest prompt with the largest budget: what a slot must hold.  Exact where all lines were kept.

    Where jobs that are too long are cut, the slots are as long as the model and the usual measure allow.
    """
    requests = []
    for line in found.longest:
        job = reader.read_line(line)
        if isinstance(job, Job):
            try:
                requests.append(parts.preparer.prepare(job, "", 0.0))
            except JobError:
                continue
    train = parts.model.card.context_train
    fitting = [request for request in requests if request.need_tokens <= train]
    longest = max((planned_tokens(request, parts.settings) for request in fitting), default=None)
    if longest is not None and found.lines > LONGEST_KEPT:
        default = 1 if found.all_state_budgets else parts.settings.max_tokens
        beside = max(planned_tokens(request, parts.settings) - request.job.max_tokens for request in fitting)
        longest = beside + max(found.max_tokens, default)
    if (found.oversized or len(fitting) < len(requests)) and parts.settings.on_overflow != "reject":
        return min(train, max(longest or 0, capacity.UNKNOWN_CONTEXT))
    return longest


def planned_tokens(request: Request, settings: Settings) -> int:
    """What a slot should hold for a job: its prompt and budget, and what another try may take beside that."""
    remark = REMARK_TOKENS if settings.retries and request.grammar else 0
    return request.need_tokens + remark + (request.job.max_tokens if settings.asking().grows else 0)


def _weight(line: Line) -> int:
    """Bytes that a line stands for: its own, and those of the document file it names."""
    if b'"document_file"' not in line.data:
        return len(line.data)
    try:
        return len(line.data) + Path(line.origin.base, json.loads(line.data)["document_file"]).stat().st_size
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return len(line.data)
