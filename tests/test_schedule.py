"""What starts a run at set times: files that systemd, launchd and cron take, for commands of any words."""

import os
import plistlib
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shell import Ran, here

from batchrun.errors import UsageError
from batchrun.schedule import MARK, Plan, rhythm, units
from batchrun.schedule_install import name_of

COMMAND = ("run", "all jobs.jsonl", "-o", "out $HOME 100%.jsonl", "--prompt", 'say "hi" \\ {text}')


def plan(words: tuple[str, ...] = COMMAND, every: str = "1d", at: str | None = "02:30", on_mains: bool = True) -> Plan:
    return Plan("nightly", ("/usr/bin/batchrun", *words), Path("/srv/my notes"), rhythm(every, at), on_mains)


def schedule(folder: Path, *arguments: str, **variables: str) -> Ran:
    """The command, before whose own command no flag may be added."""
    before, _, command = " ".join(map(shlex.quote, arguments)).partition(" -- ")
    return here(folder, "schedule", *shlex.split(before), "--", *shlex.split(command), engine="", **variables)


# -- rhythms


@pytest.mark.parametrize(
    ("every", "at", "calendar", "cron"),
    [
        ("15m", None, "*-*-* *:0/15:00", "*/15 * * * *"),
        ("6h", None, "*-*-* 0/6:00:00", "0 */6 * * *"),
        ("1d", "02:30", "*-*-* 02:30:00", "30 2 * * *"),
        ("24h", None, "*-*-* 00:00:00", "0 0 * * *"),
        ("1w", "3:05", "Mon *-*-* 03:05:00", "5 3 * * 1"),
    ],
)
def test_a_rhythm_is_written_down_for_each_system(every: str, at: str | None, calendar: str, cron: str) -> None:
    _, timer = units(plan(every=every, at=at), "systemd")
    assert f"OnCalendar={calendar}\n" in timer.text
    assert "Persistent=true" in timer.text
    (line,) = units(plan(every=every, at=at), "cron")
    assert line.text.startswith(f"{cron} ")
    if shutil.which("systemd-analyze"):
        subprocess.run(["systemd-analyze", "calendar", calendar], check=True, capture_output=True)


@pytest.mark.parametrize(
    ("every", "at"),
    [("7m", None), ("90m", None), ("5h", None), ("2d", None), ("1h", "02:00"), ("x", None), ("30s", None)],
)
def test_a_rhythm_that_no_calendar_holds_is_refused(every: str, at: str | None) -> None:
    with pytest.raises(UsageError, match=r"^--(every|at) "):
        rhythm(every, at)


# -- systemd


def test_a_service_has_low_priority_wants_mains_and_knows_which_ends_are_no_failures() -> None:
    service, timer = units(plan(), "systemd")
    assert (service.name, timer.name) == ("nightly.service", "nightly.timer")
    for line in (
        "Type=oneshot",
        "ConditionACPower=true",
        "SuccessExitStatus=3 75",
        "Nice=19",
        "IOSchedulingClass=idle",
        "KillMode=mixed",
        "WorkingDirectory=/srv/my notes",
    ):
        assert f"\n{line}\n" in service.text
    assert "ConditionACPower" not in units(plan(on_mains=False), "systemd")[0].text


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_systemd_finds_nothing_wrong_with_the_files(tmp_path: Path) -> None:
    words = ("run", *COMMAND[1:], "back\\slash", "tab\there", "$$", "%n", "'", ";", "é")
    made = units(Plan("nightly", ("/bin/echo", *words), tmp_path, rhythm("1d", "02:00"), True), "systemd")
    for unit in made:
        (tmp_path / unit.name).write_text(unit.text)
    paths = [str(tmp_path / unit.name) for unit in made]
    run = subprocess.run(["systemd-analyze", "verify", *paths], capture_output=True, text=True, check=False)
    about_ours = [line for line in run.stderr.splitlines() if "nightly" in line]
    assert not about_ours


# -- launchd


def test_launchd_gets_a_list_that_it_can_read() -> None:
    (unit,) = units(plan(), "launchd")
    content = plistlib.loads(unit.text.encode())
    assert unit.name == f"{content['Label']}.plist"
    assert content["StartCalendarInterval"] == {"Hour": 2, "Minute": 30}
    assert (content["Nice"], content["LowPriorityIO"], content["ProcessType"]) == (19, True, "Background")
    shell, flag, script = content["ProgramArguments"]
    assert (shell, flag) == ("/bin/sh", "-c")
    assert "AC Power" in script
    assert shlex.split(script.partition("exec ")[2]) == ["/usr/bin/batchrun", *COMMAND]
    (unit,) = units(plan(every="6h", at=None, on_mains=False), "launchd")
    content = plistlib.loads(unit.text.encode())
    assert content["ProgramArguments"] == ["/usr/bin/batchrun", *COMMAND]
    assert content["StartInterval"] == 6 * 3600


# -- cron


def ran_by_cron(line: str, folder: Path, **programs: str) -> tuple[int, str]:
    """What a cron line does: its command with escaped per cents, through sh, with programs of our own before others."""
    command = line.split(" ", 5)[5].replace("\\%", "%")
    bin_folder = folder / "bin"
    bin_folder.mkdir(exist_ok=True)
    for name, text in programs.items():
        (bin_folder / name).write_text(f"#!/bin/sh\n{text}\n")
        (bin_folder / name).chmod(0o755)
    environment = {"PATH": f"{bin_folder}:/usr/bin:/bin"}
    run = subprocess.run(["sh", "-c", command], env=environment, capture_output=True, text=True, check=False)
    return run.returncode, run.stdout


@pytest.mark.parametrize(("status", "seen"), [(0, 0), (3, 0), (75, 0), (4, 4), (130, 130)])
def test_cron_hears_of_no_failure_where_there_is_none(tmp_path: Path, status: int, seen: int) -> None:
    words = ("sh", "-c", f"exit {status}")
    (unit,) = units(Plan("n", words, tmp_path, rhythm("1d", None), False), "cron")
    assert ran_by_cron(unit.text, tmp_path)[0] == seen


@pytest.mark.parametrize(("answer", "runs"), [("exit 0", True), ("exit 1", False), ("exit 255", True)])
def test_cron_waits_for_mains_where_it_can_tell(tmp_path: Path, answer: str, runs: bool) -> None:
    (unit,) = units(Plan("n", ("echo", "ran"), tmp_path, rhythm("1d", None), True), "cron")
    status, out = ran_by_cron(unit.text, tmp_path, on_ac_power=answer)
    assert (status, out) == (0, "ran\n" if runs else "")


WORDS = st.text(st.characters(exclude_characters="\0\n\r", exclude_categories=["Cs"]), max_size=8)


@given(st.lists(WORDS, max_size=4))
def test_any_words_come_through_cron_as_they_are(tmp_path_factory: pytest.TempPathFactory, words: list[str]) -> None:
    folder = tmp_path_factory.mktemp("cron")
    code = "import sys, json; print(json.dumps(sys.argv[1:]))"
    command = (shutil.which("python3") or "python3", "-c", code, *words)
    (unit,) = units(Plan("n", command, folder, rhythm("1d", None), False), "cron")
    assert unit.text.count("\n") == 1
    assert shlex.split(unit.text.replace("\\%", "%").partition("nice -n 19 ")[2].partition("; s=$?")[0]) == list(
        command
    )


def test_a_line_break_cannot_be_scheduled() -> None:
    for kind in ("systemd", "launchd", "cron"):
        with pytest.raises(UsageError, match="a line break"):
            units(plan(("run", "a\nb")), kind)


# -- the command


def test_the_files_are_printed_and_nothing_is_written(tmp_path: Path) -> None:
    ran = schedule(tmp_path, "--every", "1d", "--at", "02:00", "--for", "systemd", "--", "run", "jobs.jsonl")
    assert ran.status == 0
    assert "# batchrun-jobs.service" in ran.out
    assert "# batchrun-jobs.timer" in ran.out
    assert "run jobs.jsonl" in ran.out
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--", "walk"), "the command to schedule begins with 'walk'"),
        (("--for", "windows", "--", "run", "x"), "--for is 'windows'"),
        (("--every", "7m", "--", "run", "x"), "--every is '7m'"),
        (("--at", "25:00", "--", "run", "x"), "--at is '25:00'"),
    ],
)
def test_what_cannot_be_scheduled_is_refused(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    ran = schedule(tmp_path, *arguments)
    assert (ran.status, words in ran.err) == (2, True)


def test_the_files_are_installed_for_the_user_and_nobodys_else_are_replaced(tmp_path: Path) -> None:
    for _ in range(2):
        ran = schedule(tmp_path, "--for", "systemd", "--install", "--", "run", "jobs.jsonl", HOME=str(tmp_path))
        assert ran.status == 0
        assert "systemctl --user enable --now batchrun-jobs.timer" in ran.out
    folder = tmp_path / ".config" / "systemd" / "user"
    assert sorted(path.name for path in folder.iterdir()) == ["batchrun-jobs.service", "batchrun-jobs.timer"]
    (folder / "batchrun-jobs.service").write_text("[Unit]\n")
    ran = schedule(tmp_path, "--for", "systemd", "--install", "--", "run", "jobs.jsonl", HOME=str(tmp_path))
    assert (ran.status, "was not written by batchrun schedule" in ran.err) == (4, True)
    assert (folder / "batchrun-jobs.service").read_text() == "[Unit]\n"


CRONTAB = """#!/bin/sh
if [ "$1" = -l ]; then cat "$HOME/table" 2>/dev/null; else cat > "$HOME/table"; fi
"""


def test_a_line_is_put_into_the_crontab_in_the_place_of_the_old_one(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "crontab").write_text(CRONTAB)
    (tmp_path / "bin" / "crontab").chmod(0o755)
    (tmp_path / "table").write_text("MAILTO=me\n0 1 * * * other\n")
    variables = {"HOME": str(tmp_path), "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
    for at in ("02:00", "03:00"):
        arguments = ("--for", "cron", "--at", at, "--install", "--", "run", "jobs.jsonl")
        assert schedule(tmp_path, *arguments, **variables).status == 0
    lines = (tmp_path / "table").read_text().splitlines()
    assert lines[:2] == ["MAILTO=me", "0 1 * * * other"]
    assert [line.split()[1] for line in lines[2:]] == ["3"]
    assert lines[2].endswith(f"# {MARK}: batchrun-jobs")


def test_a_run_is_named_after_its_first_file() -> None:
    assert name_of(["run", "--model", "x"]) == "batchrun-x"
    assert name_of(["run", "data/My jobs.jsonl.gz"]) == "batchrun-My-jobs"
    assert name_of(["run", "--documents"]) == "batchrun-run"
