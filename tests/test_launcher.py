"""Who started a run, keeping the machine awake for it, and seeing that it slept."""

import os
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun import awake
from batchrun.awake import GAP_S, KeepAwake, SleepWatch, command
from batchrun.launcher import NICENESS, named

# -- launchers


@pytest.mark.parametrize(
    ("parents", "name"),
    [
        ([(9, "sh"), (8, "cron"), (1, "systemd")], "cron"),
        ([(9, "bash"), (8, "crond")], "cron"),
        ([(9, "sh"), (8, "atd"), (1, "systemd")], "at"),
        ([(9, "python3"), (1, "systemd")], "other"),
        ([], "other"),
    ],
)
def test_a_scheduler_is_known_by_its_process(parents: list[tuple[int, str]], name: str) -> None:
    assert named({}, parents, is_terminal=False, is_mac=False) == name


def test_a_terminal_goes_before_all() -> None:
    assert named({}, [(8, "cron")], is_terminal=True, is_mac=False) == "terminal"


def test_a_unit_of_systemd_is_known_by_the_process_it_started() -> None:
    parents = [(77, "run.sh"), (1, "systemd")]
    assert named({"SYSTEMD_EXEC_PID": "77"}, parents, is_terminal=False, is_mac=False) == "systemd"
    assert named({"SYSTEMD_EXEC_PID": str(os.getpid())}, parents, is_terminal=False, is_mac=False) == "systemd"
    assert named({"SYSTEMD_EXEC_PID": "5"}, parents, is_terminal=False, is_mac=False) == "other"


def test_a_mac_s_first_process_is_launchd() -> None:
    assert named({}, [(1, "launchd")], is_terminal=False, is_mac=True) == "launchd"
    assert named({}, [(9, "zsh"), (1, "launchd")], is_terminal=False, is_mac=True) == "other"


def test_a_lower_priority_is_that_of_the_process_and_is_not_lowered_twice() -> None:
    code = "from batchrun.launcher import lower_priority as low; import os; print(low(), low(), os.nice(0))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["True", "True", str(max(NICENESS, os.nice(0)))]


# -- awake


def test_a_helper_lives_while_it_is_held_and_no_longer() -> None:
    keeper = KeepAwake(["cat"])
    keeper.hold()
    process = keeper._process
    assert process
    keeper.hold()
    assert keeper._process is process
    assert process.poll() is None
    keeper.release()
    assert process.poll() is not None
    keeper.release()


@pytest.mark.parametrize("argv", [None, ["/no/such/helper"]])
def test_no_helper_is_no_trouble(argv: list[str] | None) -> None:
    keeper = KeepAwake(argv)
    keeper.hold()
    keeper.release()


def test_a_helper_that_is_not_allowed_is_asked_once() -> None:
    keeper = KeepAwake(["false"])
    keeper.hold()
    assert keeper._process
    keeper._process.wait()
    keeper.release()
    keeper.hold()
    assert keeper._process is None


def test_a_helper_ends_with_its_process_however_that_ends() -> None:
    code = (
        "import os, signal\nfrom batchrun.awake import KeepAwake\n"
        "keeper = KeepAwake(['cat'])\nkeeper.hold()\nprint(keeper._process.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    helper = int(ran.stdout)
    waiting = subprocess.run(["tail", f"--pid={helper}", "-f", "/dev/null"], timeout=20, check=False)
    assert waiting.returncode == 0


@pytest.mark.parametrize(
    ("system", "there", "first"),
    [
        ("linux", {"systemd-inhibit"}, "systemd-inhibit"),
        ("darwin", {"caffeinate"}, "caffeinate"),
        ("linux", set(), None),
    ],
)
def test_the_system_s_own_helper_is_taken(
    monkeypatch: pytest.MonkeyPatch, system: str, there: set[str], first: str | None
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(awake.shutil, "which", lambda name: name if name in there else None)
    argv = command()
    assert (argv and argv[0]) == first


@given(st.lists(st.tuples(st.floats(0, 1000), st.floats(0, 1e5)), max_size=20))
def test_sleep_is_what_the_wall_clock_ran_ahead(spells: list[tuple[float, float]]) -> None:
    """Each spell: seconds awake, then seconds asleep."""
    clocks = [5.0, 1e9]
    watch = SleepWatch(lambda: clocks[0], lambda: clocks[1])
    for awake_s, asleep_s in spells:
        clocks[0] += awake_s
        clocks[1] += awake_s + asleep_s
        found_s = watch.slept_s()
        if abs(asleep_s - GAP_S) > 1e-3:
            assert found_s == pytest.approx(asleep_s if asleep_s > GAP_S else 0.0, abs=1e-3)
