"""One command on real files: opens both ends, keeps them in order, says what it came to, and gives the exit status."""

import shlex
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path

from batchrun import check as checking
from batchrun.agreement import refused
from batchrun.assembly import Parts, job_reader, layout, open_parts, original_identity, preview
from batchrun.auditor import Auditor
from batchrun.backends.base import Interrupted
from batchrun.config import Settings
from batchrun.deadline import Deadline
from batchrun.device_profile import DeviceProfile
from batchrun.errors import InputError, UsageError
from batchrun.forms import share
from batchrun.inputs import Inputs, inputs
from batchrun.intake import intake
from batchrun.journal import Journal
from batchrun.launcher import SCHEDULED, launcher, lower_priority
from batchrun.machine import this_machine
from batchrun.merge import merge
from batchrun.moments import seconds_until
from batchrun.pacing import device_profile, paced
from batchrun.permission import Permission, Rules, check_measurable, rules
from batchrun.places import Asked, Places, places
from batchrun.printable import printable
from batchrun.profile import told_once
from batchrun.progress import say
from batchrun.runner import Ends, Runner, StatsSink
from batchrun.selection import Selection
from batchrun.signals import StopSignals
from batchrun.sinks import Sinks, outlet
from batchrun.stats_file import NoStatsFile, StatsFile
from batchrun.summary import Summary, lines
from batchrun.talk import Talk
from batchrun.thermal import MachineSensors, open_sensors

NOT_ALL_OK = 3
TOO_MANY_FAILURES = 7
TRY_LATER = 75  # EX_TEMPFAIL: nothing is wrong, but there is more to do
STREAM_HINT = "with -o FILE or --state DIR a run can be resumed"
WORTH_TUNING = 64  # jobs: below, measuring takes longer than it saves


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a command as they were given; `-` is a stream, None the default."""

    jobs: tuple[str, ...]
    output: str | None = None
    stats: Path | None = None
    state: Path | None = None
    documents: tuple[str, ...] = ()

    def inputs(self, settings: Settings) -> Inputs:
        """Raises InputError and UsageError, as `inputs.inputs` does."""
        return inputs(
            self.jobs,
            self.documents,
            root=settings.root,
            kind=settings.input_format,
            line_bytes=settings.line_bytes,
            needs=layout(settings).columns,
        )

    def asked(self, settings: Settings) -> Asked:
        return Asked(self.output, self.stats, self.state, settings.output_format, settings.order == "input")


@dataclass(frozen=True, slots=True)
class Options:
    """What this one run is to do.  `fresh`: start over; `force`: even where that loses results; `prune`: move results
    of jobs away that are no longer in the input; `live`: show what goes on."""

    selection: Selection = field(default_factory=Selection)
    fresh: bool = False
    force: bool = False
    prune: bool = False
    live: bool = False


def run(settings: Settings, files: Files, options: Options) -> int:
    """Runs the jobs and gives the exit status.  Raises what ends a run before or in the middle of it."""
    _check(settings, options)
    source, asked = files.inputs(settings), files.asked(settings)
    where = places(asked, source)
    source = replace(source, own=where.own)
    seconds = settings.deadline and seconds_until(settings.deadline, datetime.now().astimezone(), "--deadline")
    sensors, kept = _ruled(settings)
    talk = Talk(live=options.live)
    with StopSignals(talk.say) as signals:
        deadline = Deadline(signals, seconds or None)
        stop = Permission(deadline, kept, sensors.sense, time.monotonic, datetime.now, talk.tell_of_sleep)
        if stop.stopped and stop.reason:
            say(f"not started: {stop.reason}")
            return TRY_LATER
        try:
            summary, said = _run(settings, source, asked, where, options, signals, stop, sensors, talk)
        except Interrupted:  # while a long file was looked over
            summary, said = Summary(interrupted=True), []
        if not summary.jobs and not summary.interrupted and options.selection.takes_all:
            raise InputError(_no_jobs(source))
        for text in (*lines(summary, where.shown), *said):
            say(text)
        return _status(summary, signals, stop, where)


def check(settings: Settings, files: Files, *, estimated: bool = False) -> checking.Report:
    """Looks at the jobs without running them.

    Raises InputError where there are none, UsageError where an estimate has nothing to go by.
    """
    source = files.inputs(settings)
    where = places(files.asked(settings), source)
    parts = open_parts(settings)
    device = _calibrated(parts) if estimated else None
    report = checking.check(parts, source, where.journal, device)
    if not report.jobs:
        raise InputError(_no_jobs(source))
    return report


def _check(settings: Settings, options: Options) -> None:
    if options.force and not options.fresh:
        raise UsageError("--force is for --fresh, which starts over; without it a run resumes and overwrites nothing")
    if options.prune and not options.selection.takes_all:
        raise UsageError("--prune needs a run over all of the input; leave --only, --where, --shard and the like out")
    for _, error in refused(settings, datetime.now().astimezone()):
        raise error


def _ruled(settings: Settings) -> tuple[MachineSensors, Rules]:
    """What the machine senses, and the rules to stop by.  Raises UsageError for one that cannot be kept here."""
    threads = settings.threads or this_machine().threads
    sensors, kept = open_sensors(threads=threads), rules(settings, datetime.now())
    if kept != Rules():
        sensors.settle()
        check_measurable(kept, sensors.sense())
    return sensors, kept


def _run(
    settings: Settings,
    source: Inputs,
    asked: Asked,
    where: Places,
    options: Options,
    signals: StopSignals,
    stop: Permission,
    sensors: MachineSensors,
    talk: Talk,
) -> tuple[Summary, list[str]]:
    """Opens the outputs, runs, and gives what the files came to, in lines to be said at the end."""
    sinks = Sinks(
        where,
        asked,
        fresh=options.fresh,
        force=options.force,
        prune=options.prune,
        pieces=settings.on_overflow == "chunk",
        stopped=lambda: stop.stopped,
    )
    with sinks:
        stats = StatsFile(where.stats, fresh=options.fresh) if where.stats else NoStatsFile()
        signals.at_once = _farewell(sinks, stats, where, talk)
        try:
            if sinks.journal:
                _say_opened(sinks.journal)
            summary = _run_line(settings, source, sinks, where, stats, stop, options.selection, sensors, talk)
            sinks.complete = not summary.interrupted and options.selection.takes_all and bool(summary.jobs)
        finally:
            stats.close()
    said = _closed(sinks.journal) if sinks.journal else []
    if where.view and where.journal and summary.interrupted:
        said.append(f"{where.view} is written by a run that ends by itself; what is done is kept in {where.journal}")
    elif where.view and where.journal and where.journal.exists() and not sinks.complete:
        _write_view(where.view, where.journal, asked)
    return summary, said


def _write_view(view: Path, journal: Path, asked: Asked) -> None:
    """A run over a part of its input: its output has all that the journal holds, of earlier runs too."""
    out, complete = outlet(view, asked.form), False
    try:
        merge([journal], out, ordered=asked.ordered)
        complete = True
    finally:
        out.close(complete)


def _run_line(
    settings: Settings,
    source: Inputs,
    sinks: Sinks,
    where: Places,
    stats: StatsSink,
    stop: Permission,
    selection: Selection,
    sensors: MachineSensors,
    talk: Talk,
) -> Summary:
    started_by = launcher()
    if settings.priority == "low" or (settings.priority == "auto" and started_by in SCHEDULED):
        lower_priority()
    parts = open_parts(settings)
    try:
        seen = preview(source, parts, lambda: stop.stopped)
        many = (seen.lines or 0) >= WORTH_TUNING and settings.engine != "fake" and not source.documents
        if many and not parts.profiled and not told_once(original_identity(settings)):
            command = shlex.join(["batchrun", "tune", source.inputs[0].name])
            say(f"`{command}` may make runs of this model faster on this machine (said once)")
        title = f"{source.shown} -> {where.shown}"
        with talk.watch(selection.expected(seen.lines), title, to_stdout=where.to_stdout) as watch:
            ends = Ends(sinks.sink, stats, stop, watch, time.monotonic, sinks.pieces)
            reader, lines_of = job_reader(settings, None, source.bases), source.source(seen.lines)
            supplier = intake(parts, reader, lines_of, sinks.sink, selection, time.monotonic)
            if settings.ray:
                from batchrun.fleet import opening

                return opening.run(parts, settings, supplier, ends, seen.longest_tokens)
            auditor = settings.audit and Auditor(share(settings.audit), settings.seed)
            ends = replace(ends, pacer=paced(parts, sensors, started_by), auditor=auditor or None)
            return Runner(parts, supplier, ends, seen.longest_tokens).run()
    finally:
        parts.model.close()


def _farewell(sinks: Sinks, stats: StatsFile | NoStatsFile, where: Places, talk: Talk) -> Callable[[], str]:
    """What the second signal does: no line is written any more, no lock stays behind, and the way on is told."""

    def farewell() -> str:
        talk.abandon()
        sinks.abandon()
        stats.abandon()
        return f"; resume with: {_resume_command()}" if where.journal else f"; {STREAM_HINT}"

    return farewell


def _say_opened(journal: Journal) -> None:
    if journal.torn_bytes:
        say(f"{journal.path}: a torn last line of {journal.torn_bytes} bytes was cut off; its job runs again")
    if journal.damaged:
        say(f"{journal.path}: {journal.damaged} damaged lines go to {journal.replaced_path}; their jobs run again")


def _closed(journal: Journal) -> list[str]:
    tidied, said = journal.tidied, []
    if tidied.replaced:
        said.append(f"{tidied.replaced} older results of the same ids were moved to {journal.replaced_path}")
    if tidied.pruned:
        said.append(f"{tidied.pruned} results of jobs that are no longer there were moved to {journal.replaced_path}")
    if tidied.vanished:
        said.append(f"{tidied.vanished} results are of jobs that are no longer in the input; --prune moves them away")
    return said


def _status(summary: Summary, signals: StopSignals, stop: Permission, where: Places) -> int:
    """The exit status; says how to go on where there is more to do."""
    hint = f"resume with: {_resume_command()}" if where.journal else STREAM_HINT
    if summary.interrupted and signals.number:
        say(f"stopped early; {hint}")
        return 128 + signals.number
    if summary.too_many_failures:
        say(f"stopped early: {summary.failed} of {summary.statuses.total()} results are not ok; {hint}")
        return TOO_MANY_FAILURES
    if summary.interrupted and stop.timed_out:
        say(f"stopped at the deadline; {hint}")
        return TRY_LATER
    if summary.interrupted and (reason := stop.reason or summary.gave_up):
        say(f"stopped early: {reason}; {hint}")
        return TRY_LATER
    return 0 if summary.all_ok else NOT_ALL_OK


def _calibrated(parts: Parts) -> DeviceProfile:
    """What `calibrate` found of this device."""
    if parts.settings.engine == "fake":
        raise UsageError("--estimate is for a real engine; --engine fake takes no time")
    supply, started_by = open_sensors().supply().source, launcher()
    found = device_profile(parts, supply, started_by)
    if not found:
        device = f"this model with these weights and threads, on {supply}, started by {started_by}"
        raise UsageError(f"--estimate has no measure of {device}; make one with: batchrun calibrate")
    return found


def _no_jobs(source: Inputs) -> str:
    return f"{printable(source.shown)} holds no jobs; expected one JSON object a line"


def _resume_command() -> str:
    """This very command, less what would start it over."""
    return shlex.join(["batchrun", *(word for word in sys.argv[1:] if word not in ("--fresh", "--force"))])
