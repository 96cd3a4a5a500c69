"""The live view: what it is told, what it draws in any window, and what it leaves behind on a real terminal."""

import io
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from building import GUIDE, engine, limits, request, schema
from heated import Nobody, documents, run
from rich.cells import cell_len
from rich.console import Console
from shell import COMMAND, PATIENCE_S, batchrun, environment, read, records, statuses, write_jobs

from batchrun.backends.fake import FakeBackend
from batchrun.core import Result, Status, Usage
from batchrun.glance import Doing, Glance, PaceNow, SlotNow, WorkNow
from batchrun.heat import Level, Reading
from batchrun.live.frame import Seen, frame
from batchrun.live.tempo import LOOKS_BACK_S, Counts, Tempo
from batchrun.selection import Selection, shard
from batchrun.speed import Speed

TO_THE_OTHER_SCREEN, BACK = b"\x1b[?1049h", b"\x1b[?1049l"
HOSTILE = "id \x1b]0;title\x07\x1b[2J\u202e[red] \udcff"


# -- what it is told


def doings(found: tuple[SlotNow, ...]) -> dict[int, str]:
    return {now.slot: now.doing.value for now in found}


def test_a_slot_says_what_it_is_doing() -> None:
    running = engine(FakeBackend(limits(slots=3, batch=16)), rows=2, look_ahead=False)
    assert running.slots_now() == ()
    running.submit([request("a" * 20, max_tokens=30), request("b" * 40, max_tokens=30)])
    running.step()
    assert doings(running.slots_now()) == {0: "prefill", 1: "waiting"}
    assert [(now.tokens, now.of_tokens) for now in running.slots_now()] == [(16, 20), (0, 40)]
    running.step()
    running.step()
    assert doings(running.slots_now()) == {0: "decode", 1: "prefill"}
    assert running.slots_now()[0].of_tokens == 30, "from now on it is the answer that is counted"


def test_a_shared_beginning_is_prefilled_and_kept_and_forced_tokens_are_seen() -> None:
    running = engine(FakeBackend(limits(slots=4, batch=32)), rows=2, look_ahead=False)
    forced = schema({"type": "object", "properties": {"a long and forced key": {"enum": [1, 2]}}, "minProperties": 1})
    grammar = GUIDE.compile(forced)
    running.submit([request("x" * 60 + end, max_tokens=60, grammar=grammar) for end in "pq"])
    running.step()
    assert [(now.doing, now.job_id) for now in running.slots_now()] == [(Doing.PREFILL, None)]
    seen = set()
    while not running.idle:
        running.step()
        seen |= {(now.doing, now.job_id is None) for now in running.slots_now()}
    assert (Doing.KEPT, True) in seen
    assert (Doing.FORCED, False) in seen


def test_the_pacer_tells_of_bursts_and_of_rests_with_their_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    glances: list[Glance] = []
    monkeypatch.setattr(Nobody, "tick", lambda nobody, look: glances.append(look()))
    run(documents(120, 300, 64), "phone", 4)
    assert glances[0].work is None, "no model is loaded before the first job"
    paces = [glance.pace for glance in glances]
    rests = [pace for pace in paces if pace.worked_s is None and pace.rest_s]
    assert any(pace.why.startswith("hot: ") for pace in rests)
    assert all(pace.rest_s == 0 for pace in paces if pace.worked_s is not None)
    assert any(pace.level is Level.HOT and pace.reading.temperature_c and pace.speed.ratio for pace in paces)
    last = [glance.work for glance in glances if glance.work and glance.work.burst][-1]
    assert last.ended + last.running > 0


# -- how fast, and how long yet


def result(status: Status = Status.OK) -> Result:
    return Result("job", 1, status, None, None, (), Usage(), None, None, 1, "fake", "", None)


def test_time_left_goes_by_the_results_of_the_last_minutes() -> None:
    tempo = Tempo(total=100, began_s=0.0)
    assert tempo.counts(1.0).left_s is None, "nothing is known before the first result"
    for _ in range(10):
        tempo.saw(None)
    for _ in range(30):
        tempo.saw(result())
    assert tempo.counts(60.0).left_s == pytest.approx(120)
    tempo.counts(10_000.0)
    for _ in range(10):
        tempo.saw(result(Status.INVALID))
    counts = tempo.counts(10_000.0 + LOOKS_BACK_S)
    assert counts.left_s == pytest.approx(50 * LOOKS_BACK_S / 10), "a fast beginning is forgotten"
    assert (counts.done, counts.earlier, counts.statuses) == (50, 10, (("ok", 30), ("invalid", 10)))


def test_a_stream_has_no_time_left_and_a_run_that_is_done_has_none_to_wait() -> None:
    stream, done = Tempo(None, 0.0), Tempo(1, 0.0)
    for tempo in (stream, done):
        tempo.saw(result())
    assert stream.counts(5.0).left_s is None
    assert done.counts(5.0).left_s == 0


def test_a_selection_says_how_many_jobs_it_takes_where_that_is_known() -> None:
    assert Selection().expected(24) == 24
    assert Selection(limit=5).expected(24) == 5
    assert Selection(sample=50).expected(24) == 24
    assert Selection(only=frozenset({"a", "b"})).expected(24) == 2
    assert Selection(shard=shard("1/3")).expected(24) is None
    assert Selection().expected(None) is None


# -- the picture

PACE = PaceNow(6.0, 20.0, 0.0, "", Level.COOL, Reading("coretemp", Level.COOL, 61.0, 95.0), Speed(Level.COOL, 0.98))
COUNTS = Counts(12, 0, 24, (("ok", 11), ("invalid", 1)), 88.0, 12.0, 9.0)


def seen(rows: int, pace: PaceNow = PACE, job_id: str = "contact") -> Seen:
    doing = list(Doing)
    slots = tuple(SlotNow(slot, doing[slot % 4], f"{job_id}-{slot}", 40 + slot, 160) for slot in range(rows - 1))
    return Seen(0.0, "jobs.jsonl", COUNTS, Glance(0.0, WorkNow(slots, rows, 3, 1, 4), pace, False), ("a note " * 30,))


def drawn(what: Seen, columns: int, lines: int, now_s: float = 0.0) -> str:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=columns, height=lines, color_system="256", _environ={})
    console.print(frame(what, now_s, console))
    return screen.getvalue()


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[\d;]*m", "", text)


def test_a_picture_names_slots_burst_heat_speed_and_results() -> None:
    text = plain(drawn(seen(8), 120, 40))
    for words in (
        "12 of 24 jobs done",
        "11 ok",
        "1 invalid",
        "88 validated/min",
        "~0:09 left",
        "burst 1",
        "6.0 of 20.0 s",
    ):
        assert words in text
    for words in ("prefill", "decode", "forced", "waiting", "free", "contact-0", "40/160"):
        assert words in text
    for words in ("heat cool", "61 of 95 °C (coretemp)", "0.98 of full speed", "14 jobs in it"):
        assert words in text


def test_clocks_run_on_while_a_long_step_lasts() -> None:
    text = plain(drawn(seen(8), 120, 40, now_s=3.0))
    assert "9.0 of 20.0 s" in text
    assert "~0:06 left" in text


def test_a_rest_says_why_and_how_long_yet() -> None:
    pace = PaceNow(None, 20.0, 12.0, "hot: speed", Level.HOT, Reading("none", Level.UNKNOWN), Speed(Level.HOT, 0.71))
    text = plain(drawn(seen(2, pace), 80, 24, now_s=2.0))
    assert "rest · 10 s yet · hot: speed" in text
    assert "heat hot · 0.71 of full speed" in text


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (42, 12), (20, 5), (200, 3), (1, 1)])
@pytest.mark.parametrize("rows", [1, 8, 64])
def test_a_picture_fits_any_window_and_shows_escapes_as_text(columns: int, lines: int, rows: int) -> None:
    text = drawn(seen(rows, job_id=HOSTILE), columns, lines)
    for obeyed in ("\x1b]", "\x1b[2J", "\x07", "\u202e", "\udcff"):
        assert obeyed not in text
    shown = plain(text).rstrip("\n").split("\n")
    assert len(shown) <= lines
    assert max(map(cell_len, shown)) <= columns


def test_ids_that_look_like_markup_are_text() -> None:
    assert "[red] \\udcff-0" in plain(drawn(seen(4, job_id="[red] \udcff"), 120, 40))


def test_slots_that_find_no_line_are_counted() -> None:
    assert "and 3 more slots" in plain(drawn(seen(8), 42, 12))
    assert "more slots" not in plain(drawn(seen(64), 120, 40)), "they stand side by side where there is room"


# -- a real terminal


class Terminal:
    """A run with a terminal on standard error; its other streams are pipes."""

    def __init__(self, folder: Path, *arguments: str, **variables: str) -> None:
        self._ours, theirs = pty.openpty()
        termios.tcsetwinsize(theirs, (24, 80))
        self._theirs = theirs
        self.seen = b""
        pipe = subprocess.PIPE
        command = [*COMMAND, "run", *arguments, "--engine", "fake"]
        there = environment(**({"TERM": "xterm"} | variables))
        self.process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, stderr=theirs, env=there)

    def until(self, holds: Callable[[bytes], bool]) -> bytes:
        """Reads on until what is seen from here on holds something; gives that."""
        until_s, new = time.monotonic() + PATIENCE_S, b""
        while not holds(new):
            assert time.monotonic() < until_s, new
            new += self._piece()
        return new

    def wait_for(self, words: bytes) -> bytes:
        return self.until(lambda new: words in new)

    def end(self, stdin: bytes = b"") -> tuple[int, bytes, bytes]:
        """Gives the exit status, standard output, and all that the terminal was sent."""
        assert self.process.stdin
        assert self.process.stdout
        if stdin:
            self.process.stdin.write(stdin)
            self.process.stdin.close()
        until_s = time.monotonic() + PATIENCE_S
        while self.process.poll() is None or select.select([self._ours], [], [], 0)[0]:
            assert time.monotonic() < until_s, self.seen
            self._piece()
        return self.process.returncode, self.process.stdout.read(), self.seen

    def resize(self, lines: int, columns: int) -> None:
        termios.tcsetwinsize(self._theirs, (lines, columns))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream
            stream.close()
        os.close(self._ours)
        os.close(self._theirs)

    def _piece(self) -> bytes:
        piece = os.read(self._ours, 65536) if select.select([self._ours], [], [], 0.05)[0] else b""
        self.seen += piece
        return piece


@contextmanager
def terminal(folder: Path, *arguments: str, **variables: str) -> Iterator[Terminal]:
    opened = Terminal(folder, *arguments, **variables)
    try:
        yield opened
    finally:
        opened.close()


def after_the_view(text: bytes) -> str:
    assert text.count(TO_THE_OTHER_SCREEN) == text.count(BACK) == 1
    return text.partition(BACK)[2].decode().replace("\r\n", "\n")


def job(name: str, **more: object) -> dict[str, object]:
    return {"id": name, "prompt": f"say {name}"} | more


def test_a_view_gives_the_terminal_back_with_the_usual_summary(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [job(str(number)) for number in range(20)])
    with terminal(tmp_path, "jobs.jsonl", "--live") as run:
        status, out, text = run.end()
    assert (status, out) == (0, b"")
    said = after_the_view(text)
    assert said.startswith("batchrun: fake: up to "), "what was said meanwhile is said again"
    assert "batchrun: 20 ok -> jobs.results.jsonl\n" in said
    assert "\x1b" not in said
    assert text.partition(BACK)[0].endswith(b"\x1b[?25h"), "the cursor is back"


LONG = {"schema": {"type": "string", "minLength": 50_000}, "max_tokens": 60_000}


def test_the_view_stays_after_a_first_signal_and_a_second_one_gives_the_terminal_back(tmp_path: Path) -> None:
    hostile = "long \x1b]0;title\x07\x1b[3J"
    write_jobs(tmp_path / "jobs.jsonl", [job(hostile, **LONG), job("short")])
    with terminal(tmp_path, "jobs.jsonl", "--live", "--grace-seconds", "600") as run:
        run.wait_for(b"long \\x1b]0;title\\x07\\x1b[3J")
        run.resize(12, 42)
        narrow = run.until(lambda new: len(frames(new)) > 3)
        assert max(len(line) for picture in frames(narrow)[-2:-1] for line in picture) <= 42
        run.process.send_signal(signal.SIGINT)
        assert BACK not in run.wait_for(b"stopping")
        run.process.send_signal(signal.SIGINT)
        status, _, text = run.end()
    assert status == 130
    said = after_the_view(text)
    assert "SIGINT: finishing the rows that run; again to stop at once\n" in said
    assert "stopped at once; results written so far are kept; resume with: batchrun run jobs.jsonl" in said
    assert b"\x1b]0;" not in text
    assert b"\x1b[3J" not in text
    assert statuses(read(tmp_path / "jobs.results.jsonl")) == {"short": "ok"}


def frames(text: bytes) -> list[list[str]]:
    """The lines of each picture on the other screen."""
    pictures = plain(text.decode(errors="replace")).split("\x1b[H")[1:]
    return [picture.split("\r\n") for picture in pictures]


def test_a_signal_lets_rows_finish_under_the_view(tmp_path: Path) -> None:
    finishes = {"schema": {"type": "string", "minLength": 6_000}, "max_tokens": 12_000}
    write_jobs(tmp_path / "jobs.jsonl", [job("long", **finishes)])
    with terminal(tmp_path, "jobs.jsonl", "--live", "--grace-seconds", "600") as run:
        run.wait_for(b"decode")
        run.process.send_signal(signal.SIGTERM)
        status, _, text = run.end()
    assert status == 0, "nothing is left to do"
    said = after_the_view(text)
    assert "SIGTERM: finishing the rows that run" in said
    assert "1 ok -> jobs.results.jsonl" in said


def test_results_in_a_pipe_are_data_only_and_the_view_keeps_to_the_lower_half(tmp_path: Path) -> None:
    with terminal(tmp_path, "-", "--live") as run:
        run.wait_for(b"loading the model")
        status, out, text = run.end(b"".join(b'{"prompt":"say %d"}\n' % number for number in range(20)))
    assert status == 0
    assert len(records(out.decode())) == 20
    assert TO_THE_OTHER_SCREEN not in text, "what the reader of the pipe writes would go with it"
    assert b"\x1b[1;12r" in text, "the upper half scrolls"
    assert text.rpartition(b"\x1b[r")[2].startswith(b"\x1b8\x1b[Jbatchrun: "), "all of it again, before the summary"


def test_without_colours_the_view_has_none(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [job(str(number)) for number in range(5)])
    with terminal(tmp_path, "jobs.jsonl", "--live", NO_COLOR="1") as run:
        _, _, text = run.end()
    codes = {code for found in re.findall(rb"\x1b\[([\d;]*)m", text) for code in found.split(b";")}
    assert codes <= {b"", b"0", b"1", b"2", b"3"}, "bold, dim, italic and their end"


def test_where_a_view_cannot_be_one_line_says_so_and_the_usual_progress_is_shown(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [job(str(number)) for number in range(5)])
    piped = batchrun(tmp_path, "run", "jobs.jsonl", "--live")
    assert piped.status == 0
    assert piped.err.startswith("batchrun: --live needs a terminal on standard error; showing the usual progress\n")
    assert "\x1b" not in piped.err
    with terminal(tmp_path, "jobs.jsonl", "--live", "--fresh", "--force", TERM="dumb") as run:
        status, _, text = run.end()
    assert status == 0
    assert text.count(b"--live needs a terminal that can place text, and TERM names none") == 1
    assert b"5/5" in text
    assert b"\x1b[" not in text.replace(b"\x1b[A", b"")
