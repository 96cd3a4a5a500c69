"""SIGINT and SIGTERM, once and twice, wherever they find a run: loading, prefilling, decoding, resting, writing."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from shell import PATIENCE_S, environment, read, start, statuses, write_jobs

FAULTS = Path(__file__).parent / "faults"
JOBS = [{"id": f"job-{number}", "prompt": f"say {number}", "max_tokens": 300} for number in range(60)]
PLACES = ["load", "prefill", "decode", "write", "rest"]
NUMBERS = [signal.SIGINT, signal.SIGTERM]


def begin(folder: Path, place: str, stall_s: str) -> "subprocess.Popen[bytes]":
    """Starts a run and waits until it stands at a place.  The engine has a process of its own, as a real one has."""
    write_jobs(folder / "jobs.jsonl", JOBS)
    (folder / "marks").mkdir()
    mark = folder / "marks" / "mark"
    paths = os.pathsep.join([str(FAULTS), os.environ.get("PYTHONPATH", "")])
    fault = {"PYTHONPATH": paths, "FAULT_STALL": place, "FAULT_STALL_S": stall_s, "FAULT_MARK": str(mark)}
    arguments = ["run", "jobs.jsonl", "--isolate", "--grace-seconds", "0.3", "--burst-seconds", "0.1"]
    process = start(folder, *arguments, "--rest-seconds", "3600" if place == "rest" else "0", **fault)
    awaited = folder / "jobs.results.stats.jsonl" if place == "rest" else mark
    deadline_s = time.monotonic() + PATIENCE_S
    while not awaited.exists():
        assert process.poll() is None
        assert time.monotonic() < deadline_s, "the run never came there"
        time.sleep(0.002)
    return process


def ended(process: "subprocess.Popen[bytes]") -> tuple[int, str]:
    _, err = process.communicate(timeout=PATIENCE_S)
    assert b"Traceback" not in err
    return process.returncode, err.decode()


def resumes(folder: Path, text: str) -> None:
    """The command that was printed, pasted into a shell, completes the run and changes nothing that was written."""
    results = folder / "jobs.results.jsonl"
    before: list[dict[str, Any]] = read(results) if results.exists() else []
    (command,) = re.findall(r"resume with: (batchrun run .+)$", text, re.MULTILINE)
    command = command.replace("--rest-seconds 3600", "--rest-seconds 0")
    ran = subprocess.run(["bash", "-c", command], cwd=folder, env=environment(), capture_output=True, check=False)
    assert ran.returncode == 0, ran.stderr
    after = read(results)
    assert statuses(after) == {job["id"]: "ok" for job in JOBS}
    assert after[: len(before)] == before
    assert not list(folder.glob(".*")), "no lock stays behind"


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("place", PLACES)
def test_one_signal_ends_the_run_within_its_grace(tmp_path: Path, place: str, number: signal.Signals) -> None:
    process = begin(tmp_path, place, "1" if place == "write" else "600")  # a write cannot be given up
    process.send_signal(number)
    status, text = ended(process)
    assert status == 128 + number
    assert f"{number.name}: finishing the rows that run; again to stop at once" in text
    resumes(tmp_path, text)


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("place", PLACES)
def test_two_signals_end_it_at_once(tmp_path: Path, place: str, number: signal.Signals) -> None:
    process = begin(tmp_path, place, "600")
    assert process.stderr
    process.send_signal(number)
    process.send_signal(number)
    time.sleep(0.05)
    for _ in range(50):  # two at one moment may be one to the kernel; and a run that rests ends with the first
        if process.poll() is not None:
            break
        process.send_signal(number)
        time.sleep(0.1)
    status, text = ended(process)
    assert status in (128 + number, -number), "the latter where all was over but the end of the interpreter"
    resumes(tmp_path, text)
