"""`batchrun check`: what a run would do, without the weights.

Reads every line as `run` would, tokenizes every prompt, compiles every schema, plans the slots and the prefixes, and
says what would be rejected and why.
"""

from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

from batchrun import capacity
from batchrun.asking import LAYOUTS
from batchrun.assembly import Parts, job_reader, planned_tokens, slot_plan, too_long
from batchrun.core import Job, Rejection, Request
from batchrun.device_profile import DeviceProfile
from batchrun.errors import InputError, JobError
from batchrun.estimate import Estimate, estimate
from batchrun.inputs import Inputs
from batchrun.jobs import rejection
from batchrun.keywords import Coverage
from batchrun.line import Line
from batchrun.pacing import wants_probes
from batchrun.prefix import Share, plan
from batchrun.printable import printable
from batchrun.prompts import Preparer
from batchrun.result_lines import finished_keys
from batchrun.source import all_lines
from batchrun.window import MOST_JOBS as WINDOW_JOBS

REJECTIONS_SHOWN = 20
SCHEMAS_SHOWN = 10
WORTH_CHANGING = 0.9  # another layout is recommended where it computes no more than this share of the tokens


@dataclass(slots=True)
class Report:
    """What `check` found.  Token counts are of jobs that would run."""

    model: str
    jobs: int = 0
    done: int = 0
    rejected: list[Rejection] = field(default_factory=list)
    blank_lines: int = 0
    schemas: Counter[str] = field(default_factory=Counter)
    coverage: list[Coverage] = field(default_factory=list)  # one for each schema of a job that would run
    prompt_tokens: int = 0
    computed_tokens: int = 0
    layouts: dict[str, int] = field(default_factory=dict)  # prompt tokens that each layout would compute
    max_tokens: int = 0
    longest_tokens: int = 0
    longest_id: str = ""
    cut: int = 0  # jobs too long for a slot, of which --on-overflow makes something
    plan: str = ""
    warnings: list[str] = field(default_factory=list)
    estimate: Estimate | None = None

    @property
    def runnable(self) -> int:
        return self.jobs - self.done - len(self.rejected)


def check(parts: Parts, inputs: Inputs, output: Path | None, device: DeviceProfile | None = None) -> Report:
    """Looks at every line.  `output`: the results file that a run would resume, if there is one.

    `device`: what to estimate the run's time by, if that is asked.
    """
    reader = job_reader(parts.settings, None, inputs.bases)
    source = inputs.source()
    report = Report(parts.model.card.name, warnings=_warnings(parts))
    done = finished_keys(output) if output else Counter[tuple[str, str]]()
    found: list[tuple[Request, Line]] = []
    for line in all_lines(source):
        report.jobs += 1
        item = _request(parts, reader.read_line(line), line)
        key = (item.id, item.digest) if isinstance(item, Rejection) else (item.job.id, item.digest)
        if isinstance(item, Rejection):
            report.rejected.append(item)
        elif done[key]:
            done[key] -= 1
            report.done += 1
        else:
            found.append((item, line))
    report.blank_lines = source.blank
    train = parts.model.card.context_train
    fitting = [request for request, _ in found if request.need_tokens <= train]
    longest = max((planned_tokens(request, parts.settings) for request in fitting), default=None)
    load = slot_plan(parts, longest, probes=wants_probes(parts.settings))
    report.plan = capacity.described(load, parts.model.card, fixed=parts.settings.parallel is not None)
    fitting = []
    for request, line in found:
        if request.need_tokens > load.context and parts.settings.on_overflow != "reject":
            report.cut += 1
        elif request.need_tokens > load.context:
            problem = too_long(request, load.context, train)
            report.rejected.append(rejection(line, request.job.id, problem, None))
        else:
            fitting.append(request)
    _count(report, fitting, share=parts.settings.prefix)
    first = {job.schema: job.document for job in reversed([request.job for request in fitting]) if job.schema}
    report.coverage = [parts.guide.coverage(schema, document) for schema, document in reversed(first.items())]
    if parts.settings.prefix and any(request.job.document is not None for request in fitting):
        report.layouts = _layouts(parts, fitting, report.computed_tokens)
    if device:
        report.estimate = estimate(fitting, parts.settings, load, device, datetime.now())
    report.rejected.sort(key=lambda item: item.index)
    return report


def exit_status(report: Report) -> int:
    """0: all lines would run; 3: some would be rejected; 4: none can run."""
    if len(report.rejected) == report.jobs:
        return InputError.exit_code
    return 3 if report.rejected else 0


def as_json(report: Report) -> dict[str, Any]:
    """The report for a machine."""
    record = {name: getattr(report, name) for name in Report.__dataclass_fields__}
    record["rejected"] = [
        {"line": item.index, "id": item.id, "code": item.problem.code, "message": item.problem.message}
        for item in report.rejected
    ]
    record["coverage"] = [coverage.as_json() for coverage in report.coverage]
    record["estimate"] = report.estimate and report.estimate.as_json()
    return {"runnable": report.runnable, **record}


def lines(report: Report) -> list[str]:
    """The report for a person."""
    said = [f"{report.jobs} jobs: {report.runnable} would run, {report.done} are done, {len(report.rejected)} rejected"]
    said += [
        f"  line {item.index} ({printable(item.id)}): {printable(item.problem.message)}"
        for item in report.rejected[:REJECTIONS_SHOWN]
    ]
    if len(report.rejected) > REJECTIONS_SHOWN:
        said.append(f"  ... and {len(report.rejected) - REJECTIONS_SHOWN} more (--json lists all)")
    if report.prompt_tokens:
        saved = report.prompt_tokens - report.computed_tokens
        share = 100 * saved / report.prompt_tokens
        said.append(f"prompts: {report.prompt_tokens} tokens, {saved} ({share:.0f} %) shared and computed once")
        said += _advice(report)
        said.append(f"answers: at most {report.max_tokens} tokens")
        said.append(f"longest: {report.longest_tokens} tokens, prompt and answer (job {printable(report.longest_id)})")
        kinds = ", ".join(f"{name} x {count}" for name, count in report.schemas.most_common(10))
        said.append(f"schemas: {kinds}")
        said += [f"  {text}" for coverage in report.coverage[:SCHEMAS_SHOWN] for text in coverage.lines()]
        if len(report.coverage) > SCHEMAS_SHOWN:
            said.append(f"  ... and {len(report.coverage) - SCHEMAS_SHOWN} more schemas (--json lists all)")
        said.append(f"plan: {report.model}: {report.plan}")
        said += report.estimate.lines() if report.estimate else []
    if report.cut:
        said.append(f"too long for a slot, to be cut or read in pieces: {report.cut}")
    if report.blank_lines:
        said.append(f"blank lines: {report.blank_lines}")
    return said + [f"warning: {text}" for text in report.warnings]


def _request(parts: Parts, item: Job | Rejection, line: Line) -> Request | Rejection:
    if isinstance(item, Rejection):
        return item
    try:
        return parts.preparer.prepare(item, parts.preparer.digest(item), 0.0)
    except JobError as error:
        return rejection(line, item.id, error.problem, item.meta)


def _count(report: Report, requests: list[Request], *, share: bool) -> None:
    for request in requests:
        report.schemas[request.job.schema.name if request.job.schema else "free text"] += 1
        report.prompt_tokens += len(request.tokens)
        report.max_tokens += request.job.max_tokens
        if request.need_tokens > report.longest_tokens:
            report.longest_tokens, report.longest_id = request.need_tokens, request.job.id
    report.computed_tokens = _over_windows(requests) if share else report.prompt_tokens


def _layouts(parts: Parts, requests: list[Request], computed: int) -> dict[str, int]:
    """What the settings' layout computes, and what the other one would."""
    chosen = parts.settings.layout
    other = next(name for name in LAYOUTS if name != chosen)
    preparer = Preparer(parts.model, parts.guide, replace(parts.settings.asking(), layout=other))
    return {chosen: computed, other: _over_windows([preparer.prepare(request.job, "", 0.0) for request in requests])}


def _advice(report: Report) -> list[str]:
    """A word on the layout, where the other one would save something that counts."""
    if not report.layouts:
        return []
    (chosen, computed), (other, would) = report.layouts.items()
    if would > WORTH_CHANGING * computed:
        return []
    return [f"layout: {chosen} computes {computed} tokens, {other} would compute {would}: try --layout {other}"]


def _over_windows(requests: list[Request]) -> int:
    return sum(computed_tokens(requests[begin : begin + WINDOW_JOBS]) for begin in range(0, len(requests), WINDOW_JOBS))


def computed_tokens(requests: list[Request]) -> int:
    """Prompt tokens that go through the model when these requests share their prefixes."""
    total = 0
    seen: set[int] = set()
    for request, share in plan(requests, (), cut=True):
        total += len(request.tokens) - (share.tokens if share else 0)
        node: Share | None = share
        while node and id(node.prefix) not in seen:
            seen.add(id(node.prefix))
            total += len(node.prefix.tokens) - (node.prefix.share.tokens if node.prefix.share else 0)
            node = node.prefix.share
    return total


def _warnings(parts: Parts) -> list[str]:
    warnings = list(parts.notices)
    if "strftime_now" in parts.model.template.text:
        warnings.append("the chat template writes today's date: prompts, and so prefixes, change every day")
    return warnings
