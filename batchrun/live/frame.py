"""One picture of a run, for a window of any size: the counts, the burst, the heat, and a line for each slot.

Every line is cut where the window ends, and what comes from jobs is shown as text and nothing but text.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rich.columns import Columns
from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from batchrun.glance import Doing, Glance, SlotNow
from batchrun.heat import Level
from batchrun.live.tempo import Counts
from batchrun.printable import printable

SLOT_COLUMNS = 36  # narrower, a slot's line holds too little
BAR_COLUMNS = 64  # of a slot's line that has room for a bar
LONGEST_BAR = 60
ROOMY_LINES = 16  # a lower window shows what changes, and nothing else
NOTES_SHOWN = 4
FREE = "free"
STYLES = {
    Doing.PREFILL: "magenta",
    Doing.DECODE: "green",
    Doing.FORCED: "cyan",
    Doing.WAITING: "yellow",
    Doing.KEPT: "dim",
    FREE: "dim",
    Level.COOL: "green",
    Level.WARM: "yellow",
    Level.HOT: "red",
    Level.CRITICAL: "bold red",
    Level.UNKNOWN: "dim",
    "ok": "green",
    "cancelled": "dim",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """What there is to show, as it was at `at_s`.  `glance`: None before the first one.  `notes`: what was said, the
    latest last.
    """

    at_s: float
    title: str
    counts: Counts
    glance: Glance | None
    notes: tuple[str, ...] = ()


def frame(seen: Seen, now_s: float, console: Console) -> RenderableType:
    """The picture.  What it shows may be older than `now_s`: its clocks run on."""
    age_s = max(0.0, now_s - seen.at_s)
    width, height = console.size
    roomy = height >= ROOMY_LINES
    lines: list[RenderableType] = [_cut(Text(printable(seen.title), "bold"))] if roomy else []
    lines += _flowed(_counted(seen.counts, age_s), console)
    if roomy:
        lines.append(Columns([_bar(seen.counts.done, seen.counts.total, min(width, LONGEST_BAR))]))
    lines += _flowed(_burst(seen.glance, age_s), console)
    lines += _flowed(_heat(seen.glance), console)
    notes = _notes(seen.notes, console)[-NOTES_SHOWN:] if roomy else []
    room = height - len(lines) - len(notes)
    if seen.glance and seen.glance.work:
        lines += _slots(seen.glance.work.slots, seen.glance.work.rows, width, room)
    return Group(*lines[: height - len(notes)], *notes)


def _counted(counts: Counts, age_s: float) -> list[Text]:
    of_total = f" of {counts.total}" if counts.total is not None else ""
    facts = [Text(f"{counts.done}{of_total} jobs done", "bold")]
    facts += [Text(f"{count} {status}", STYLES.get(status, "red")) for status, count in counts.statuses]
    if counts.earlier:
        facts.append(Text(f"{counts.earlier} done before", "dim"))
    facts.append(Text("- validated/min" if counts.per_min is None else f"{counts.per_min:.0f} validated/min"))
    facts.append(Text(f"{_clock(counts.ran_s + age_s)} gone"))
    if counts.total is None:
        facts.append(Text("no end known: a stream or a selection", "dim"))
    elif counts.left_s is None:
        facts.append(Text("time left not known yet", "dim"))
    else:
        facts.append(Text(f"~{_clock(max(0.0, counts.left_s - age_s))} left"))
    return facts


def _burst(glance: Glance | None, age_s: float) -> list[Text]:
    """The burst and its budget, or the rest and why."""
    if glance is None or glance.work is None:
        return [Text("loading the model", "yellow")]
    work, pace = glance.work, glance.pace
    facts = [Text("stopping", "bold yellow"), Text("rows that run may finish", "yellow")] if glance.stopping else []
    if pace.worked_s is not None and work.burst is not None:
        jobs = f"{work.running + work.queued + work.ended} jobs in it"
        facts += [
            Text(f"burst {work.burst}", "bold"),
            Text(f"{pace.worked_s + age_s:.1f} of {pace.allowed_s:.1f} s"),
            Text(jobs),
            Text(f"{work.running} run"),
            Text(f"{work.queued} wait for a slot"),
            Text(f"{work.ended} ended"),
        ]
    elif pace.rest_s:
        facts += [Text("rest", "bold yellow"), Text(f"{max(0.0, pace.rest_s - age_s):.0f} s yet"), Text(pace.why)]
    else:
        facts.append(Text("between bursts", "dim"))
    return facts


def _heat(glance: Glance | None) -> list[Text]:
    if glance is None:
        return []
    pace, reading, speed = glance.pace, glance.pace.reading, glance.pace.speed
    facts = [Text(f"heat {pace.level.word}", STYLES[pace.level])]
    if reading.temperature_c is not None:
        limit = f" of {reading.limit_c:.0f}" if reading.limit_c else ""
        facts.append(Text(f"{reading.temperature_c:.0f}{limit} °C ({printable(reading.source)})"))
    facts.append(Text("speed not known yet" if speed.ratio is None else f"{speed.ratio:.2f} of full speed"))
    if speed.cause:
        facts.append(Text(f"slowed by {printable(speed.cause)}", "yellow"))
    return facts


def _slots(slots: Sequence[SlotNow], rows: int, width: int, room: int) -> list[RenderableType]:
    """A line for each slot, in several columns where one has too few lines; says how many are left out."""
    taken = {now.slot: now for now in slots}
    numbers = sorted({*range(rows), *taken})
    across = max(1, min(width // SLOT_COLUMNS, math.ceil(len(numbers) / max(room, 1))))
    down = min(math.ceil(len(numbers) / across), room)
    if down <= 0:
        return []
    hidden = len(numbers) - across * down
    if hidden > 0:
        down -= 1
        hidden = len(numbers) - across * down
    column_width = width // across
    grid = Table.grid()
    columns = [numbers[start : start + down] for start in range(0, across * down, down)] if down else []
    for _ in columns:
        grid.add_column(width=column_width)
    if columns:
        grid.add_row(*(_column(column, taken, column_width - (across > 1)) for column in columns))
    return [grid, *([Text(f"and {hidden} more slots", "dim")] if hidden > 0 else [])]


def _column(numbers: Iterable[int], taken: dict[int, SlotNow], width: int) -> RenderableType:
    table = Table.grid(padding=(0, 1, 0, 0))
    table.add_column(justify="right", no_wrap=True, width=3)
    table.add_column(no_wrap=True, width=7)
    has_bar = width >= BAR_COLUMNS
    count_width, bar_width = 11, min(LONGEST_BAR, width // 3) if has_bar else 0
    job_width = max(1, width - 3 - 7 - count_width - bar_width - (4 + has_bar))
    table.add_column(no_wrap=True, overflow="ellipsis", width=job_width)
    if has_bar:
        table.add_column(width=bar_width)
    table.add_column(justify="right", no_wrap=True, width=count_width)
    for number in numbers:
        now = taken.get(number)
        if now is None:
            cells: list[RenderableType] = [Text(str(number), "dim"), Text(FREE, STYLES[FREE])]
        else:
            job = Text("a shared beginning", "dim") if now.job_id is None else Text(printable(now.job_id))
            cells = [Text(str(number)), Text(now.doing.value, STYLES[now.doing]), job]
            cells += [_bar(now.tokens, now.of_tokens, bar_width)] if has_bar else []
            cells.append(Text(f"{now.tokens}/{now.of_tokens}"))
        table.add_row(*cells)
    return table


def _flowed(facts: Sequence[Text], console: Console) -> list[RenderableType]:
    """Facts side by side, as many lines as they need; one that is wider than the window is cut."""
    lines: list[Text] = []
    for fact in facts:
        joined = Text.assemble(lines[-1], (" · ", "dim"), fact) if lines else fact
        if lines and joined.cell_len <= console.width:
            lines[-1] = joined
        else:
            lines.append(fact)
    return [_cut(line) for line in lines]


def _notes(notes: Iterable[str], console: Console) -> list[Text]:
    """What was said, line by line."""
    return [line for note in notes for line in Text(printable(note), "italic").wrap(console, console.width)]


def _cut(text: Text) -> Text:
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def _bar(done: int, total: int | None, width: int) -> ProgressBar:
    return ProgressBar(total=total or 1, completed=min(done, total) if total else 0, width=width)


def _clock(seconds: float) -> str:
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"
