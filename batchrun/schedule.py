"""`batchrun schedule`: a run at set times, written down for the system that starts it.

A service and a timer for systemd, a property list for launchd, or a line for cron.  All run at low priority and, unless
told otherwise, on mains power only; exit status 3 (some jobs are not ok) and 75 (more to do, try later) are no failures
to them.  Pure: texts in, texts out.
"""

import plistlib
import re
import shlex
from dataclasses import dataclass
from pathlib import Path

from batchrun.errors import UsageError
from batchrun.moments import clock, span_s

KINDS = ("systemd", "launchd", "cron")
MARK = "written by batchrun schedule"
NO_FAILURES = (3, 75)
MINUTE_S, HOUR_S, DAY_S, WEEK_S = 60, 3600, 86400, 7 * 86400
_PLAIN_WORD = re.compile(r"[\w@+=:,./-]+", re.ASCII)


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often and when.  `at`: hour and minute, for days and weeks; a week's run is on its Monday."""

    every_s: int
    at: tuple[int, int] = (0, 0)


@dataclass(frozen=True, slots=True)
class Plan:
    """A run to be started by the system.  `words`: the whole command, its program by its full path."""

    name: str
    words: tuple[str, ...]
    folder: Path
    rhythm: Rhythm
    on_mains: bool


@dataclass(frozen=True, slots=True)
class Unit:
    """A file that a plan needs.  `name` is relative to where the system looks; empty for a line of a crontab."""

    name: str
    text: str


def rhythm(every: str, at: str | None) -> Rhythm:
    """`1d` and `02:00`.  Raises UsageError for spans that no calendar divides evenly."""
    seconds = span_s(every, "--every")
    whole_minutes = seconds < HOUR_S and seconds % MINUTE_S == 0 and HOUR_S % seconds == 0
    whole_hours = HOUR_S <= seconds < DAY_S and seconds % HOUR_S == 0 and DAY_S % seconds == 0
    if not (whole_minutes or whole_hours or seconds in (DAY_S, WEEK_S)):
        expected = "expected minutes that divide an hour, hours that divide a day, 1d or 1w"
        raise UsageError(f"--every is {every!r}; {expected}")
    if at is not None and seconds < DAY_S:
        raise UsageError(f"--at has no meaning with --every {every}; expected it with 1d or 1w")
    return Rhythm(int(seconds), clock(at, "--at") if at is not None else (0, 0))


def units(plan: Plan, kind: str) -> list[Unit]:
    """The files for one of KINDS.  Raises UsageError for a word that no such file can hold."""
    if any(char in word for word in (*plan.words, str(plan.folder)) for char in "\n\r\0"):
        raise UsageError("a line break in the command or in the folder's name cannot be scheduled")
    return {"systemd": _systemd, "launchd": _launchd, "cron": _cron}[kind](plan)


def _systemd(plan: Plan) -> list[Unit]:
    condition = "ConditionACPower=true\n" if plan.on_mains else ""
    service = f"""# {MARK}
[Unit]
Description={plan.name}
{condition}
[Service]
Type=oneshot
WorkingDirectory={_specifiers(str(plan.folder))}
ExecStart={" ".join(map(_systemd_word, plan.words))}
SuccessExitStatus={" ".join(map(str, NO_FAILURES))}
Nice=19
CPUSchedulingPolicy=batch
IOSchedulingClass=idle
KillMode=mixed
TimeoutStopSec=60
"""
    timer = f"""# {MARK}
[Unit]
Description=Starts {plan.name}.service

[Timer]
OnCalendar={_on_calendar(plan.rhythm)}
Persistent=true

[Install]
WantedBy=timers.target
"""
    return [Unit(f"{plan.name}.service", service), Unit(f"{plan.name}.timer", timer)]


def _on_calendar(rhythm: Rhythm) -> str:
    hour, minute = rhythm.at
    if rhythm.every_s < HOUR_S:
        return f"*-*-* *:0/{rhythm.every_s // MINUTE_S}:00"
    if rhythm.every_s < DAY_S:
        return f"*-*-* 0/{rhythm.every_s // HOUR_S}:00:00"
    return f"{'Mon ' if rhythm.every_s == WEEK_S else ''}*-*-* {hour:02}:{minute:02}:00"


def _systemd_word(word: str) -> str:
    if _PLAIN_WORD.fullmatch(word):
        return word
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("\t", "\\t").replace("$", "$$")
    return f'"{_specifiers(escaped)}"'


def _specifiers(text: str) -> str:
    return text.replace("%", "%%")


def _launchd(plan: Plan) -> list[Unit]:
    command = shlex.join(plan.words)
    guarded = ["/bin/sh", "-c", f"pmset -g batt | grep -q 'AC Power' || exit 0; exec {command}"]
    log = f"/tmp/{plan.name}.log"
    content: dict[str, object] = {
        "Label": f"batchrun.{plan.name}",
        "ProgramArguments": guarded if plan.on_mains else list(plan.words),
        "WorkingDirectory": str(plan.folder),
        "Nice": 19,
        "LowPriorityIO": True,
        "ProcessType": "Background",
        "StandardOutPath": log,
        "StandardErrorPath": log,
    }
    hour, minute = plan.rhythm.at
    if plan.rhythm.every_s < DAY_S:
        content["StartInterval"] = plan.rhythm.every_s
    else:
        weekday = {"Weekday": 1} if plan.rhythm.every_s == WEEK_S else {}
        content["StartCalendarInterval"] = {"Hour": hour, "Minute": minute} | weekday
    text = plistlib.dumps(content, sort_keys=False).decode()
    head, line, rest = text.partition("?>\n")
    return [Unit(f"batchrun.{plan.name}.plist", f"{head}{line}<!-- {MARK} -->\n{rest}")]


def _cron(plan: Plan) -> list[Unit]:
    hour, minute = plan.rhythm.at
    if plan.rhythm.every_s < HOUR_S:
        when = f"*/{plan.rhythm.every_s // MINUTE_S} * * * *"
    elif plan.rhythm.every_s < DAY_S:
        when = f"0 */{plan.rhythm.every_s // HOUR_S} * * *"
    else:
        when = f"{minute} {hour} * * {1 if plan.rhythm.every_s == WEEK_S else '*'}"
    mains = "on_ac_power 2>/dev/null; [ $? -eq 1 ] && exit 0; " if plan.on_mains else ""
    fine = " || ".join(f"[ $s -eq {status} ]" for status in NO_FAILURES)
    run = f"cd {shlex.quote(str(plan.folder))} && nice -n 19 {shlex.join(plan.words)}"
    command = f"{mains}{run}; s=$?; {fine} || exit $s".replace("%", "\\%")
    return [Unit("", f"{when} {command} # {MARK}: {plan.name}\n")]
