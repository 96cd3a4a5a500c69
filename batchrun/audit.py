"""The audit of a finished run: reads its results, finds their jobs in the input, and runs the sample again alone."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from batchrun import verdicts
from batchrun.assembly import Parts, job_reader, layout, open_parts, preview, slot_plan
from batchrun.blocks import file_blocks
from batchrun.config import Settings
from batchrun.core import Job, Request
from batchrun.cost import Cost
from batchrun.engine import Engine
from batchrun.errors import InputError, JobError, UsageError
from batchrun.forms import share
from batchrun.inputs import Inputs, inputs
from batchrun.lines import LineReader
from batchrun.other_ways import OtherWays, completed
from batchrun.prompts import PARTS
from batchrun.result_lines import record_of
from batchrun.source import all_lines
from batchrun.verdicts import COMPARED, Audit, drawn, in_sample
from batchrun.width import Width

NOT_ALL_OK, NOTHING_COMPARED = 3, 4
INPUT_GONE = "no line of the input has its id"


def command(settings: Settings, results: Path, jobs: Sequence[str], documents: Sequence[str], share_text: str) -> Audit:
    """Audits results against their jobs.  Raises UsageError, InputError and ModelError."""
    try:
        wanted = share(share_text)
    except ValueError as error:
        raise UsageError(f"--share is {share_text!r}; expected {error}") from error
    if settings.thinking != "off":
        raise UsageError("an audit compares answers, not thoughts; expected thinking off")
    names = tuple(jobs) or tuple(filter(None, [None if documents else jobs_beside(results)]))
    if not names and not documents:
        raise UsageError(f"no job file lies beside {results}; expected --jobs JOBS")
    needs, kind = layout(settings).columns, settings.input_format
    source = inputs(names, tuple(documents), root=settings.root, kind=kind, line_bytes=settings.line_bytes, needs=needs)
    parts = open_parts(replace(settings, parallel=1, prefix=False))
    try:
        return audit(parts, results, source, wanted, settings.seed)
    finally:
        parts.model.close()


def exit_status(found: Audit) -> int:
    """0 where all that was compared holds, 3 where an answer is different, 4 where nothing could be compared."""
    return NOT_ALL_OK if found.different else 0 if found.counts else NOTHING_COMPARED


def shown(found: Audit, *, as_json: bool) -> str:
    """As JSON, or in lines for a person."""
    if as_json:
        return json.dumps(verdicts.as_json(found), indent=2)
    return "\n".join(line.removeprefix("audit: ") for line in verdicts.lines(found))


def audit(parts: Parts, results: Path, source: Inputs, share: float, seed: int) -> Audit:
    """Raises InputError for files that cannot be read, ModelError where the engine cannot start or fails."""
    found = Audit()
    sample = _sample(results, share, seed, found)
    if sample:
        longest_tokens = preview(source, parts).longest_tokens
        _run_alone(parts, longest_tokens, _pairs(parts, source, sample, found), found)
    if sample:
        found.passed_over[INPUT_GONE] += len(sample)
    return found


def _sample(results: Path, share: float, seed: int, found: Audit) -> dict[str, dict[str, Any]]:
    """The results that are looked at, by id, one at least; of an id that stands twice the last one."""
    sample, comparable, are_results = dict[str, dict[str, Any]](), dict[str, Any](), False
    try:
        for block in LineReader(file_blocks(results)):
            record = record_of(block.data)
            if record is None or "output" not in record or "index" not in record:
                continue
            are_results = True
            if record["status"] not in COMPARED:
                continue
            if in_sample(record["id"], record["digest"], share, seed):
                sample[record["id"]] = record
            comparable = min(comparable or record, record, key=lambda each: drawn(each["id"], each["digest"], seed))
    except InputError as error:
        raise InputError(f"{error}; expected a results file") from error
    if not are_results:
        raise InputError(f"{results} holds no results; expected a results file")
    if comparable and not sample:
        sample[comparable["id"]] = comparable  # a share of few results is one at least
    for job_id, record in list(sample.items()):
        if reason := _incomparable(record):
            found.passed_over[reason] += 1
            del sample[job_id]
    return sample


def _incomparable(record: dict[str, Any]) -> str:
    """Why a result cannot be had again by running its job once."""
    if record.get("copy_of") is not None:
        return "it is a copy of an equal job's answer"
    if record.get("document") is not None:
        return "its document was cut"
    return "it was a further try, with words of its own" if record.get("attempt", 1) != 1 else ""


def _pairs(
    parts: Parts, source: Inputs, sample: dict[str, dict[str, Any]], found: Audit
) -> Iterator[tuple[Request, dict[str, Any]]]:
    """Requests of the sample with their results; takes out of the sample what was found in the input."""
    reader = job_reader(parts.settings, None, source.bases)
    for line in all_lines(source.source()):
        job = reader.read_line(line)
        if not isinstance(job, Job) or job.id not in sample:
            continue
        record, digest = sample.pop(job.id), parts.preparer.digest(job)
        if digest != record["digest"]:
            found.passed_over[f"another {_other_part(digest, record['digest'])} than in the run"] += 1
            continue
        try:
            yield parts.preparer.prepare(job, digest, 0.0), record
        except JobError as error:
            found.passed_over[f"it cannot run: {error.problem.code}"] += 1
        if not sample:
            return


def _other_part(ours: str, theirs: str) -> str:
    """What of a job differs, by the parts of its two digests."""
    pairs = zip(PARTS, ours.split("-"), theirs.split("-"), strict=False)
    return " and ".join(name for name, one, other in pairs if one != other) or "kind of digest"


def _run_alone(
    parts: Parts, longest_tokens: int | None, pairs: Iterator[tuple[Request, dict[str, Any]]], found: Audit
) -> None:
    load = slot_plan(parts, longest_tokens)
    backend = parts.model.load(load, lambda: False)
    width, tokenizer = Width(load.rows, 1, fixed=True), parts.model.tokenizer
    try:
        engine = Engine(
            backend, tokenizer, parts.guide, Cost(), time.monotonic, width=width, share_prefixes=False, look_ahead=False
        )
        ways = OtherWays(engine, tokenizer)
        for request, record in pairs:
            if not engine.fits(request):
                found.passed_over["it fits into no slot here"] += 1
                continue
            alone = completed(engine, request)
            verdict = ways.verdict(record["output"], alone)
            found.count(verdict, record["id"], record["index"], record["output"], alone)
    finally:
        backend.close()


def jobs_beside(results: Path) -> str | None:
    """The job file that results of that name were made of, if it is there."""
    name = results.name.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".results")
    beside = [results.with_name(name + ending) for ending in (".jsonl", ".jobs.jsonl", ".csv", ".tsv", ".jsonl.gz")]
    return next((str(path) for path in beside if path.is_file() and path != results), None)
