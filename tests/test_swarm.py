"""One question, many agents: shared once, decoded together, shown as text and nothing but text."""

import io
import json
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console
from shell import Ran, here

from batchrun.assembly import open_parts
from batchrun.config import Settings
from batchrun.core import Result
from batchrun.errors import UsageError
from batchrun.swarm.cards import CardGrid
from batchrun.swarm.fan_out import SYNTHESIS, Question, fan_out, synthesis
from batchrun.swarm.roles import ROLES, read_roles
from batchrun.swarm.stopping import CtrlC

DOCUMENT = "The mill on the lower river stood still for eleven days, and nobody wrote down why. " * 4


class Notes:
    """A view that writes down what it hears."""

    def __init__(self) -> None:
        self.texts: dict[int, str] = {}
        self.order: list[tuple[str, int]] = []

    def said(self, place: int, text: str) -> None:
        self.texts[place] = self.texts.get(place, "") + text
        self.order.append(("said", place))

    def ended(self, place: int, result: Result) -> None:
        self.order.append(("ended", place))


@pytest.fixture
def notes() -> Notes:
    return Notes()


def settings(**more: object) -> Settings:
    return Settings(engine="fake", parallel=8, **more)  # type: ignore[arg-type]


def test_all_agents_answer_and_what_was_heard_is_what_they_said(notes: Notes) -> None:
    parts = open_parts(settings())
    found = fan_out(parts, Question("What now?", DOCUMENT, max_tokens=40), ROLES, notes)
    assert [answer.role for answer in found.answers] == list(ROLES)
    for place, answer in enumerate(found.answers):
        assert notes.texts.get(place, "").startswith(answer.text)
    assert [place for kind, place in notes.order if kind == "ended"] != [], "agents end on their own"


def test_the_shared_prompt_is_computed_once(notes: Notes) -> None:
    parts = open_parts(settings())
    found = fan_out(parts, Question("What now?", DOCUMENT, max_tokens=8), ROLES, notes)
    shared = found.answers[0].result.usage.cached_tokens
    assert shared > len(DOCUMENT) / 2, "the document is in what is shared"
    assert all(answer.result.usage.cached_tokens == shared for answer in found.answers)
    own = sum(answer.result.usage.prompt_tokens - shared for answer in found.answers)
    assert found.computed_tokens == shared + own


def test_enough_good_answers_end_the_rest(notes: Notes) -> None:
    parts = open_parts(settings())
    found = fan_out(parts, Question("What now?", DOCUMENT, max_tokens=400, keep=2), ROLES, notes)
    statuses = [answer.result.status.value for answer in found.answers]
    assert statuses.count("ok") >= 2
    assert found.thrown_away == statuses.count("cancelled") > 0


def test_the_synthesis_reads_all_cards(notes: Notes) -> None:
    parts = open_parts(settings())
    found = fan_out(parts, Question("What now?", None, max_tokens=12), ROLES[:2], notes)
    question = synthesis(Question("What now?", None, max_tokens=12), found.answers)
    assert "Key facts:" in str(question.document)
    last = fan_out(parts, question, [SYNTHESIS], notes)
    assert [answer.role for answer in last.answers] == [SYNTHESIS]


def test_roles_of_ones_own_are_read_and_bad_ones_named(tmp_path: Path) -> None:
    path = tmp_path / "roles.txt"
    path.write_text("# mine\nLawyer: Name the clauses.\n\nPoet: One line: short.\n")
    assert [(role.name, role.task) for role in read_roles(path)] == [
        ("Lawyer", "Name the clauses."),
        ("Poet", "One line: short."),
    ]
    path.write_text("Lawyer: Name the clauses.\nno colon\n")
    with pytest.raises(UsageError, match="line 2 is no role"):
        read_roles(path)
    path.write_text("# nothing\n")
    with pytest.raises(UsageError, match="expected 1 to"):
        read_roles(path)


@pytest.mark.parametrize(("columns", "lines"), [(120, 40), (40, 20), (10, 5), (200, 3)])
def test_cards_fit_any_window_and_show_escapes_as_text(columns: int, lines: int) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=columns, height=lines, color_system=None)
    with CardGrid(ROLES, console) as grid:
        for place in range(len(ROLES)):
            grid.said(place, "word \x1b]0;title\x07 \x1b[2J\u202e" * 20)
    shown = screen.getvalue()
    assert "\x1b]0;" not in shown
    assert "\x1b[2J" not in shown.replace("\x1b[H\x1b[2J", ""), "but for what clears the other screen"
    assert "\u202e" not in shown
    assert "\x1b[?1049l" in shown, "the screen is given back"
    drawn = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "\n", shown).split("\n")
    assert max(map(len, drawn)) <= columns


def test_without_a_terminal_sections_are_printed_and_json_on_request(tmp_path: Path) -> None:
    document = tmp_path / "d.txt"
    document.write_text(DOCUMENT)
    command = [sys.executable, "-m", "batchrun", "swarm", "What now?", "--engine", "fake", "--document", str(document)]
    plain = subprocess.run([*command, "--agents", "3"], capture_output=True, text=True, check=False)
    assert plain.returncode in (0, 3)
    assert plain.stdout.count("## ") == 3
    assert "3 agents" in plain.stderr
    assert "the shared prompt saved" in plain.stderr
    found = json.loads(subprocess.run([*command, "--json"], capture_output=True, text=True, check=False).stdout)
    assert len(found["answers"]) == 8
    bad = subprocess.run([*command, "--keep", "best:2"], capture_output=True, text=True, check=False)
    assert bad.returncode == UsageError.exit_code
    assert "expected first:N" in bad.stderr


# -- stopped, not good, not readable


def asked(folder: Path, *arguments: str) -> Ran:
    return here(folder, "swarm", *arguments)


def test_ctrl_c_prints_what_was_said_and_marks_what_was_not_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pressed(_view: object, place: int, text: str) -> None:
        monkeypatch.undo()
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr("batchrun.swarm.command.NobodyLooks.said", pressed)
    before = signal.getsignal(signal.SIGINT)
    ran = asked(tmp_path, "What now?", "--synthesize")
    assert ran.status == 130
    assert "(cancelled)\n\n" in ran.out
    assert "Synthesis" not in ran.out
    assert ran.err.startswith("batchrun: stopped; ")
    assert ran.err.count("\n") == 1
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_again_is_at_once() -> None:
    with CtrlC() as ctrl_c:
        signal.raise_signal(signal.SIGINT)
        assert ctrl_c.pressed
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_answers_that_are_not_good_have_the_status_of_a_run(tmp_path: Path) -> None:
    ran = asked(tmp_path, "What now?", "--max-tokens", "1")
    assert ran.out.count("(truncated)") == len(ROLES)
    assert ran.status == 3


def test_no_question_and_documents_that_are_no_text_are_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.txt").write_bytes(b"caf\xe9")
    for arguments, said in (
        ([""], "QUESTION is empty; expected what all agents are asked"),
        (
            ["Why?", "--document", "nosuch"],
            "--document nosuch cannot be read: No such file or directory; expected a text file",
        ),
        (["Why?", "--document", "bad.txt"], "--document bad.txt is not UTF-8; expected UTF-8 text"),
        (["Why?", "--roles", "bad.txt"], "--roles bad.txt is not UTF-8; expected UTF-8 text"),
    ):
        ran = asked(tmp_path, *arguments)
        assert (ran.status, ran.out, ran.err) == (2, "", f"batchrun: {said}\n")


@pytest.mark.parametrize(("columns", "lines", "more"), [(80, 10, 2), (40, 7, 6), (200, 3, 4), (200, 40, 0)])
def test_a_small_window_says_how_many_cards_have_no_place(columns: int, lines: int, more: int) -> None:
    screen = io.StringIO()
    with CardGrid(ROLES, Console(file=screen, force_terminal=True, width=columns, height=lines, color_system=None)):
        pass
    assert re.findall(r"and (\d+) more", screen.getvalue())[:1] == ([str(more)] if more else [])


def test_ctrl_c_prints_nothing_of_agents_that_said_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CtrlC, "pressed", True)
    ran = asked(tmp_path, "What now?")
    assert ran.status == 130
    assert 0 < ran.out.count("(cancelled)\n\n") < len(ROLES)
    assert "stopped; 0 of 8 agents had finished" in ran.err
