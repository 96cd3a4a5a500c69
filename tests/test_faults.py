"""Disks that fill up, folders that vanish, files that are taken away: whole lines are kept, and a rerun completes."""

import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from shell import COMMAND, PATIENCE_S, Ran, batchrun, environment, here, read, start, statuses, write_jobs

JOBS = [{"id": f"job-{number}", "prompt": f"say {number}", "max_tokens": 300} for number in range(120)]
OK = {job["id"]: "ok" for job in JOBS}
ARGUMENTS = [(), ("--order", "input", "--format", "csv"), ("--stats", "stats.jsonl")]


JOURNALS = ("out.jsonl", "out.journal.jsonl", "out.csv.journal.jsonl")


def whole_lines(folder: Path) -> list[dict[str, Any]]:
    """The results that a failed run left: each line whole, as the next run will find them."""
    found = [path for path in (folder / name for name in JOURNALS) if path.exists()]
    return read(found[0]) if found else []


def complete(folder: Path, jobs: Path, *arguments: str) -> None:
    """A rerun has every job, keeps what was there, and leaves no lock."""
    before = whole_lines(folder)
    output = "out.csv" if "csv" in arguments else "out.jsonl"
    run = here(folder, "run", jobs, "-o", output, *arguments)
    assert run.status == 0, run.err
    after = whole_lines(folder)
    assert statuses(after) == OK
    assert after[: len(before)] == before
    assert not list(folder.glob(".*"))


# -- a full disk


class Disk:
    """A small disk.  Skips the test where none can be mounted."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        if not self.mount("size=4m"):
            pytest.skip("no disk can be mounted here")

    def mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        return not subprocess.run(command, capture_output=True, check=False).returncode

    def close(self) -> None:
        subprocess.run(["umount", "-l", str(self.folder)], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    small = Disk(tmp_path / "disk")
    yield small
    small.close()


@pytest.mark.parametrize("arguments", ARGUMENTS)
@pytest.mark.parametrize("pages", [2, 3, 4, 5, 8, 12])
def test_a_disk_that_fills_up_at_any_page_keeps_whole_lines_and_a_rerun_completes(
    tmp_path: Path, disk: Disk, pages: int, arguments: tuple[str, ...]
) -> None:
    jobs = write_jobs(tmp_path / "jobs.jsonl", JOBS)
    assert disk.mount(f"remount,size={4 * pages}k")
    run = here(disk.folder, "run", jobs, "-o", "out.csv" if "csv" in arguments else "out.jsonl", *arguments)
    assert run.status == 6, run.err
    assert "No space left on device" in run.err
    assert "Traceback" not in run.err
    assert len(whole_lines(disk.folder)) < len(JOBS)
    assert disk.mount("remount,size=4m")
    complete(disk.folder, jobs, *arguments)


def limited(folder: Path, jobs: Path, size: int) -> Ran:
    """A run in a process that may write no file beyond so many bytes: a disk that is full at any byte."""
    command = [*COMMAND, "run", str(jobs), "-o", "out.jsonl", "--engine", "fake"]
    ran = subprocess.run(
        command,
        cwd=folder,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY)),
    )
    return Ran(ran.returncode, ran.stdout, ran.stderr)


def test_a_write_that_fails_at_any_byte_leaves_whole_lines(tmp_path: Path) -> None:
    jobs = write_jobs(tmp_path / "jobs.jsonl", JOBS)
    bytes_of = random.Random(7)
    for number in range(8):
        folder = tmp_path / str(number)
        folder.mkdir()
        size = bytes_of.randrange(30, 40_000)
        run = limited(folder, jobs, size)
        assert run.status == 6, (size, run.err)
        assert "File too large" in run.err
        assert "Traceback" not in run.err
        assert sum(path.stat().st_size for path in folder.glob("out.jsonl")) <= size
        complete(folder, jobs)


# -- folders and files that are taken away


def test_a_folder_on_a_disk_that_may_only_be_read_ends_with_6(tmp_path: Path, disk: Disk) -> None:
    jobs = write_jobs(tmp_path / "jobs.jsonl", JOBS)
    assert disk.mount("remount,ro")
    for arguments in ARGUMENTS:
        run = here(disk.folder, "run", jobs, "-o", "out.jsonl", *arguments)
        assert (run.status, "Traceback" in run.err) == (6, False)
        assert "Read-only file system" in run.err
        assert run.err.count("\n") == 1
    assert disk.mount("remount,rw")
    complete(disk.folder, jobs)


def begin(folder: Path, jobs: Path) -> "subprocess.Popen[bytes]":
    """Starts a run that rests between its bursts, and waits for its first results."""
    process = start(folder, "run", jobs, "-o", "out.jsonl", "--burst-seconds", "0.1", "--rest-seconds", "0.2")
    deadline_s = time.monotonic() + PATIENCE_S
    while not (folder / "out.stats.jsonl").exists():
        assert process.poll() is None
        assert time.monotonic() < deadline_s
        time.sleep(0.002)
    return process


@pytest.mark.parametrize("what", ["the folder", "the results", "another in its place", "the results are cut"])
def test_what_is_taken_away_in_mid_run_is_told_and_a_rerun_completes(tmp_path: Path, what: str) -> None:
    jobs = write_jobs(tmp_path / "jobs.jsonl", JOBS)
    folder = tmp_path / "out"
    folder.mkdir()
    process = begin(folder, jobs)
    if what == "the folder":
        shutil.rmtree(folder)
    elif what == "the results":
        (folder / "out.jsonl").unlink()
    elif what == "another in its place":
        (folder / "new").touch()
        os.replace(folder / "new", folder / "out.jsonl")
    else:
        os.truncate(folder / "out.jsonl", 100)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, b"Traceback" in err) == (6, False)
    assert b"could not be kept on disk" in err or b"was moved, replaced or cut by somebody else" in err
    folder.mkdir(exist_ok=True)
    if what == "the results are cut":  # in the middle of a line, to which the run then appended
        assert here(folder, "run", jobs, "-o", "out.jsonl").status == 0
    complete(folder, jobs)


EIO = """
#include <errno.h>
int fsync(int handle) { errno = EIO; return -1; }
"""


def test_a_disk_that_does_not_keep_what_was_written_ends_the_run_with_6(tmp_path: Path) -> None:
    compiler = shutil.which("cc")
    if compiler is None or sys.platform != "linux":
        pytest.skip("no fsync can be made to fail here")
    (tmp_path / "eio.c").write_text(EIO)
    library = tmp_path / "eio.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, tmp_path / "eio.c"], check=True)
    jobs = write_jobs(tmp_path / "jobs.jsonl", JOBS)
    folder = tmp_path / "out"
    folder.mkdir()
    run = batchrun(folder, "run", jobs, "-o", "out.jsonl", LD_PRELOAD=str(library))
    assert run.status == 6
    assert "out.jsonl could not be kept on disk: Input/output error" in run.err
    assert 0 < len(whole_lines(folder)) <= len(JOBS)
    complete(folder, jobs)


# -- two runs on one output


def test_a_second_run_is_refused_under_every_name_of_the_output_and_told_who_writes(tmp_path: Path) -> None:
    jobs = write_jobs(tmp_path / "jobs.jsonl", JOBS)
    process = begin(tmp_path, jobs)
    try:
        (tmp_path / "link.jsonl").symlink_to("out.jsonl")
        os.link(tmp_path / "out.jsonl", tmp_path / "hard.jsonl")
        for name in ("out.jsonl", "link.jsonl", "hard.jsonl"):
            run = here(tmp_path, "run", jobs, "-o", name)
            assert run.status == 4
            shown = "out.jsonl" if name == "link.jsonl" else name
            assert f"{shown} is being written by process {process.pid}" in run.err
        run = here(tmp_path, "run", jobs, "-o", "other.jsonl", "--stats", "out.stats.jsonl")
        assert run.status == 4
        assert f"out.stats.jsonl is being written by process {process.pid}" in run.err
    finally:
        process.kill()
        process.communicate()
    assert list(tmp_path.glob(".*.lock")), "a killed run leaves its locks"
    (tmp_path / "hard.jsonl").unlink()
    complete(tmp_path, jobs)


# -- kill -9


def kill_at(process: "subprocess.Popen[bytes]", path: Path, lines: int | None, seconds: float) -> int:
    """Kills a run when a file holds so many lines, or after so many seconds if that is None."""
    deadline_s = time.monotonic() + (PATIENCE_S if lines is not None else seconds)
    while process.poll() is None and time.monotonic() < deadline_s:
        if lines is not None and path.exists() and path.read_bytes().count(b"\n") >= lines:
            break
        time.sleep(0.001)
    process.kill()
    status = process.wait(PATIENCE_S)
    process.communicate()
    return status


def check_kept(path: Path, seen: list[bytes]) -> list[bytes]:
    """Whole lines are never changed after they were written.  Gives those that are there now."""
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    assert lines[: len(seen)] == seen
    return lines


@pytest.mark.slow
@pytest.mark.parametrize(("engine", "count", "kills"), [("fake", 200, 40), ("auto", 16, 5)])
def test_runs_killed_at_random_moments_come_to_hold_one_final_line_a_job(
    tmp_path: Path, engine: str, count: int, kills: int
) -> None:
    moments = random.Random(count)
    jobs = [
        {"id": f"job-{n}", "prompt": f"say {n}", "max_tokens": 300 if engine == "fake" else 16} for n in range(count)
    ]
    path, results = write_jobs(tmp_path / "jobs.jsonl", jobs), tmp_path / "jobs.results.jsonl"
    pace = ["--burst-seconds", "0.1", "--rest-seconds", "0.05", "--parallel", "2"] if engine == "fake" else []
    seen: list[bytes] = []
    ends = []
    for kill in range(kills):
        process = start(tmp_path, "run", path.name, *pace, engine=engine)
        by_lines = kill % 2 == 0
        lines = len(seen) + moments.randint(0, 2 * count // kills) if by_lines else None
        ends.append(kill_at(process, results, lines, moments.uniform(0.05, 1.5 if engine == "fake" else 6)))
        seen = check_kept(results, seen)
    assert ends.count(-signal.SIGKILL) >= kills // 2
    run = batchrun(tmp_path, "run", path.name, engine=engine)
    assert run.status in (0, 3)
    check_kept(results, seen)
    assert statuses(read(results)).keys() == {job["id"] for job in jobs}
    again = batchrun(tmp_path, "run", path.name, engine=engine)
    assert f"nothing to do; {count} done before" in again.err
    print(f"{engine}: {ends.count(-signal.SIGKILL)} of {kills} killed, {len(seen)} lines before the last run")
