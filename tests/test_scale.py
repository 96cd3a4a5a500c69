"""Long runs keep their memory and their handles.  By hand: `pytest -m slow -s tests/test_scale.py` prints figures."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import psutil
import pytest
from shell import read, start, statuses, write_jobs

pytestmark = pytest.mark.slow
MIB = 1 << 20


class Look(NamedTuple):
    """A run at one moment: seconds since its start, resident MiB and open files of all its processes, result bytes."""

    after_s: float
    resident_mib: float
    handles: int
    written: int


def looks(folder: Path, results: str, *arguments: str, engine: str = "fake") -> Iterator[Look]:
    """Runs a command to its end and looks at it all the while."""
    process = start(folder, "run", "jobs.jsonl", *arguments, engine=engine)
    began_s, path = time.monotonic(), folder / results
    while process.poll() is None:
        try:
            family = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
            resident = sum(one.memory_info().rss for one in family) / MIB
            handles = sum(one.num_fds() for one in family)
        except psutil.Error:
            continue
        written = path.stat().st_size if path.exists() else 0
        yield Look(time.monotonic() - began_s, resident, handles, written)
        time.sleep(0.2 if written else 0.01)
    _, said = process.communicate()
    assert process.returncode in (0, 3), said.decode()
    print(said.decode())


def said_of(found: list[Look]) -> str:
    first = next((look.after_s for look in found if look.written), None)
    picked = [found[int(place * (len(found) - 1) / 10)] for place in range(11)]
    resident = " ".join(f"{look.resident_mib:.0f}" for look in picked)
    handles = sorted({look.handles for look in found if look.written})
    return f"{found[-1].after_s:.1f} s, first result after {first} s, MiB {resident}, handles {handles}"


def test_a_million_lines_take_no_memory_worth_speaking_of(tmp_path: Path) -> None:
    count = 1_000_000
    with (tmp_path / "jobs.jsonl").open("w") as file:
        for number in range(count):
            file.write(f'{{"id":"job-{number:07}","prompt":"say {number}","max_tokens":4}}\n')
    found = list(looks(tmp_path, "jobs.results.jsonl", "--parallel", "64"))
    print(f"run: {said_of(found)}, {count / found[-1].after_s:.0f} jobs/s")
    running = [look.resident_mib for look in found if look.written]
    assert max(running) - running[0] < 150
    with (tmp_path / "jobs.results.jsonl").open("rb") as file:
        assert sum(1 for _ in file) == count
    again = list(looks(tmp_path, "jobs.results.jsonl", "--parallel", "64"))
    print(f"resume: {said_of(again)}")


@pytest.mark.parametrize(("engine", "count"), [("fake", 10_000), ("auto", 300)])
def test_a_soak_leaves_memory_and_handles_as_they_were(tmp_path: Path, engine: str, count: int) -> None:
    jobs = [{"id": f"job-{number}", "prompt": f"Say {number}.", "max_tokens": 16} for number in range(count)]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    found = list(looks(tmp_path, "jobs.results.jsonl", engine=engine))
    results = tmp_path / "jobs.results.jsonl"
    assert len(statuses(read(results))) == count
    warm = [look for look in found if look.written > 0.1 * results.stat().st_size]
    print(f"{engine}, {count} jobs: {said_of(warm)}")
    assert max(look.resident_mib for look in warm) < 1.05 * warm[0].resident_mib
    assert max(look.handles for look in warm) <= warm[0].handles
