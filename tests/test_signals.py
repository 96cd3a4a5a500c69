"""Signals at any moment: the first ends a run in order, the second at once, and a killed run loses nothing."""

import os
import random
import re
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from shell import PATIENCE_S, batchrun, environment, read, start, statuses, write_jobs

from batchrun.signals import StopSignals

BOTH = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
LONG = {"id": "long", "prompt": "p", "max_tokens": 60_000, "schema": {"type": "string", "minLength": 50_000}}
"""A row that runs for seconds: its schema lets the string end late."""


def line(job_id: str) -> bytes:
    return f'{{"id":"{job_id}","prompt":"say {job_id}"}}\n'.encode()


@contextmanager
def running(folder: Path, *arguments: str, **variables: str) -> Iterator["subprocess.Popen[bytes]"]:
    process = start(folder, *arguments, **variables)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def wait_for(stream: Any, words: str) -> str:
    """Reads lines until one holds these words."""
    seen = b""
    while piece := stream.readline():
        seen += piece
        if words.encode() in piece:
            return seen.decode()
    raise AssertionError(f"{words!r} never came: {seen.decode()}")


def wait_for_lines(path: Path, count: int, process: "subprocess.Popen[bytes]") -> None:
    """Looks at a file until it holds so many lines, or until its writer has ended."""
    deadline_s = time.monotonic() + PATIENCE_S
    while process.poll() is None and (not path.exists() or path.read_bytes().count(b"\n") < count):
        assert time.monotonic() < deadline_s, f"{path} never came to hold {count} lines"
        time.sleep(0.001)


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    """The exit status, and what standard error held since it was last read.  Standard input stays open till then."""
    assert process.stderr
    text = process.stderr.read().decode()
    return process.wait(PATIENCE_S), text


def resume(folder: Path, text: str) -> None:
    """Pastes the command that a stopped run printed into a shell."""
    found = re.search(r"^batchrun: stopped early; resume with: (batchrun .+)$", text, re.MULTILINE)
    assert found, text
    subprocess.run(
        ["bash", "-c", found[1]], cwd=folder, env=environment(), check=True, capture_output=True, timeout=PATIENCE_S
    )


# -- one signal


@BOTH
def test_a_signal_during_a_rest_ends_the_run_and_its_command_resumes_it(tmp_path: Path, number: signal.Signals) -> None:
    jobs = [{"id": f"job {job}", "prompt": f"say {job}"} for job in range(1000)]
    write_jobs(tmp_path / "all of it's jobs.jsonl", jobs)
    results = tmp_path / "out $HOME.jsonl"
    arguments = ["run", "all of it's jobs.jsonl", "-o", results.name, "--fresh", "--burst-seconds", "0.1"]
    with running(tmp_path, *arguments, BATCHRUN_REST_SECONDS="3600") as process:
        wait_for_lines(tmp_path / "out $HOME.stats.jsonl", 1, process)  # a burst has ended: the run rests
        process.send_signal(number)
        status, text = ended(process)
    assert status == 128 + number
    assert f"{number.name}: finishing the rows that run; again to stop at once" in text
    done = len(read(results))
    assert 0 < done < len(jobs)
    assert "--fresh" not in text
    resume(tmp_path, text)
    assert statuses(read(results)) == {job["id"]: "ok" for job in jobs}
    assert not list(tmp_path.glob(".*"))


@BOTH
def test_a_signal_in_a_burst_lets_rows_finish_within_the_grace(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "run", "-", "-o", "out.jsonl", "--context", "65536", "--grace-seconds", "600") as process:
        assert process.stdin
        write_long(process, max_tokens=20_000, length=10_000)
        wait_for_lines(tmp_path / "out.jsonl", 1, process)  # the short job is done, the long one runs
        process.send_signal(number)
        status, text = ended(process)
    assert status == 128 + number
    assert statuses(read(tmp_path / "out.jsonl")).keys() == {"short", "long"}
    assert "resume with: batchrun run - -o out.jsonl" in text


def write_long(process: "subprocess.Popen[bytes]", max_tokens: int = 60_000, length: int = 50_000) -> None:
    """Gives a run a long job and a short one; its standard input stays open."""
    assert process.stdin
    schema = f'{{"type":"string","minLength":{length}}}'
    process.stdin.write(
        f'{{"id":"long","prompt":"p","max_tokens":{max_tokens},"schema":{schema}}}\n'.encode() + line("short")
    )


def test_rows_that_outlast_the_grace_are_left_for_the_next_run(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [LONG, {"id": "short", "prompt": "p"}])
    with running(tmp_path, "run", "jobs.jsonl", "--grace-seconds", "0") as process:
        wait_for_lines(tmp_path / "jobs.results.jsonl", 1, process)
        process.send_signal(signal.SIGINT)
        status, text = ended(process)
    assert status == 130
    assert statuses(read(tmp_path / "jobs.results.jsonl")).keys() == {"short"}
    write_jobs(tmp_path / "jobs.jsonl", [LONG | {"max_tokens": 20}, {"id": "short", "prompt": "p"}])
    assert "1 row that ran was cut off" in text
    assert "resume with: batchrun run jobs.jsonl" in text
    assert '"jobs":{"ok":1}' in (tmp_path / "jobs.results.stats.jsonl").read_text()
    assert batchrun(tmp_path, "run", "jobs.jsonl").status == 3
    assert statuses(read(tmp_path / "jobs.results.jsonl")) == {"short": "ok", "long": "truncated"}


@BOTH
def test_a_signal_while_a_stream_is_waited_for(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path, "run", "-", "-o", "out.jsonl") as process:
        assert process.stdin
        process.stdin.write(line("a") + line("b")[:-1])
        wait_for_lines(tmp_path / "out.jsonl", 1, process)
        process.send_signal(number)
        status, text = ended(process)
    assert status == 128 + number
    assert "Fatal" not in text
    assert "Traceback" not in text
    assert statuses(read(tmp_path / "out.jsonl")) == {"a": "ok"}


def test_a_signal_before_the_first_line_of_a_stream(tmp_path: Path) -> None:
    with running(tmp_path, "run", "-", "-o", "out.jsonl") as process:
        lock = tmp_path / ".out.jsonl.lock"
        wait_for_lines(lock, 1, process)
        process.send_signal(signal.SIGTERM)
        status, text = ended(process)
    assert status == 143
    assert "nothing finished" in text
    assert list(tmp_path.iterdir()) == []


def test_a_signal_while_a_named_pipe_has_no_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "jobs")
    with running(tmp_path, "run", "jobs", "-o", "out.jsonl") as process:
        wait_for_lines(tmp_path / ".out.jsonl.lock", 1, process)
        process.send_signal(signal.SIGINT)
        assert process.wait(PATIENCE_S) == 130


def test_a_stopped_stream_of_results_says_how_to_make_it_resumable(tmp_path: Path) -> None:
    with running(tmp_path, "run", "-") as process:
        assert process.stdin
        process.stdin.write(line("a"))
        wait_for(process.stdout, '"id":"a"')
        process.send_signal(signal.SIGINT)
        status, text = ended(process)
    assert status == 130
    assert "stopped early; with -o FILE or --state DIR a run can be resumed" in text


def test_a_reader_that_leaves_while_a_stream_is_waited_for(tmp_path: Path) -> None:
    with running(tmp_path, "run", "-") as process:
        assert process.stdin
        assert process.stdout
        process.stdin.write(line("a"))
        wait_for(process.stdout, '"id":"a"')
        process.stdout.close()
        process.stdin.write(line("b"))
        status, text = ended(process)
    assert status == 141
    assert "Fatal" not in text
    assert "Traceback" not in text


# -- two signals


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_the_second_signal_ends_the_run_at_once(tmp_path: Path, second: signal.Signals) -> None:
    with running(tmp_path, "run", "-", "-o", "out.jsonl", "--context", "65536", "--grace-seconds", "600") as process:
        write_long(process)
        wait_for_lines(tmp_path / "out.jsonl", 1, process)
        process.send_signal(signal.SIGINT)
        wait_for(process.stderr, "again to stop at once")
        process.send_signal(second)
        status, text = ended(process)
    assert status == 128 + second
    assert text.startswith("batchrun: stopped at once; results written so far are kept; resume with: batchrun run - ")
    assert text.count("\n") == 1
    assert not list(tmp_path.glob(".*")), "no lock stays behind"
    assert statuses(read(tmp_path / "out.jsonl")) == {"short": "ok"}
    run = batchrun(tmp_path, "run", "-", "-o", "out.jsonl", stdin=line("short") + line("b"))
    assert run.status == 0
    assert "1 ok; 1 done before" in run.err


def test_the_second_signal_works_where_nobody_reads_standard_error(tmp_path: Path) -> None:
    with running(tmp_path, "run", "-", "-o", "out.jsonl", "--context", "65536", "--grace-seconds", "600") as process:
        write_long(process)
        wait_for_lines(tmp_path / "out.jsonl", 1, process)
        assert process.stderr
        process.stderr.close()
        process.send_signal(signal.SIGINT)
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE_S) in (128 + signal.SIGTERM, 128 + signal.SIGINT)
    assert "long" not in statuses(read(tmp_path / "out.jsonl")), "it had all of the grace time left"


# -- no signal that could be caught


def test_runs_killed_at_any_moment_come_to_hold_one_final_line_a_job(tmp_path: Path) -> None:
    moments = random.Random(20240229)
    jobs = [{"id": f"job-{job}", "prompt": f"say {job}"} for job in range(1500)]
    path, results = write_jobs(tmp_path / "jobs.jsonl", jobs), tmp_path / "jobs.results.jsonl"
    arguments = ["run", path.name, "--burst-seconds", "0.1", "--rest-seconds", "0.1"]
    ends = []
    for kill in range(10):
        if kill == 5:  # some jobs change in between
            write_jobs(path, [job | {"prompt": "another"} if place % 7 == 0 else job for place, job in enumerate(jobs)])
        lines = results.read_bytes().count(b"\n") if results.exists() else 0
        with running(tmp_path, *arguments) as process:
            wait_for_lines(results, lines + moments.randint(0, 120), process)
            process.kill()
            ends.append(process.wait(PATIENCE_S))
    assert -signal.SIGKILL in ends
    run = batchrun(tmp_path, "run", path.name)
    assert run.status == 0
    assert statuses(read(results)) == {job["id"]: "ok" for job in jobs}
    assert batchrun(tmp_path, "run", path.name).err.startswith("batchrun: nothing to do; 1500 done before")


# -- the watcher itself


@contextmanager
def watching() -> Iterator[tuple[StopSignals, list[str]]]:
    said: list[str] = []
    with StopSignals(said.append) as stop:
        yield stop, said


@BOTH
def test_the_watcher_wakes_a_sleeper_and_remembers_the_number(number: signal.Signals) -> None:
    with watching() as (stop, said):
        assert not stop.stopped
        threading.Timer(0, os.kill, (os.getpid(), number)).start()
        assert stop.wait(PATIENCE_S)
        assert stop.stopped
        assert stop.number == number
    assert len(said) <= 1


def test_the_watcher_leaves_handlers_as_they_were() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with watching():
        assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] != before
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    assert signal.set_wakeup_fd(-1) == -1


def test_the_watcher_ignores_other_signals() -> None:
    got = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: got.set())
    try:
        with watching() as (stop, _):
            os.kill(os.getpid(), signal.SIGUSR1)
            assert got.wait(PATIENCE_S)
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.wait(PATIENCE_S)
            assert stop.number == signal.SIGINT
    finally:
        signal.signal(signal.SIGUSR1, before)
