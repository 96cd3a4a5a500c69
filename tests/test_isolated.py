"""An engine that fails, aborts or is killed costs a few rows, and the one job that is to blame."""

import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from building import limits
from shell import PATIENCE_S, Ran, batchrun, read, start, statuses, write_jobs

from batchrun.backends.base import Interrupted, LoadPlan
from batchrun.backends.fake import FakeBackend, FakeModel
from batchrun.backends.isolated import IsolatedBackend
from batchrun.core import Copy, Feed, Limits, Sampling
from batchrun.errors import BackendError, ModelError

FAULTS = Path(__file__).parent / "faults"
JOBS = [{"id": f"job-{number}", "prompt": f"say {number}", "max_tokens": 300} for number in range(40)]
PLAN = LoadPlan(rows=2, slots=3, context=256, batch=64, threads=1)


def engines(pid: int) -> list[psutil.Process]:
    """The children of a run that hold a model; another one may keep the machine awake."""
    return [child for child in psutil.Process(pid).children() if "python" in child.name()]


def never() -> bool:
    return False


def isolated(recipe: Any = None) -> IsolatedBackend:
    return IsolatedBackend(recipe or FakeModel().recipe(PLAN), never, never)


def feed(slot: int, text: str, start: int = 0) -> Feed:
    return Feed(slot, start, list(text.encode()), Sampling())


def broken(stopped: Any) -> FakeBackend:
    raise ModelError("no such device")


class Dying(FakeBackend):
    """Dies of its first forward."""

    def forward(self, feeds: Any, chain: int = 1) -> Any:
        os.kill(os.getpid(), signal.SIGSEGV)


def dying(stopped: Any) -> FakeBackend:
    return Dying(limits())


# -- the backend itself


def test_it_says_what_the_same_backend_says_in_this_process() -> None:
    here, there = FakeModel().load(PLAN, never), isolated()
    try:
        assert there.limits == here.limits == Limits(3, 256, 768, 64, 262, ahead=True)
        said = []
        for backend in (here, there):
            drawn = backend.sample(backend.forward([feed(0, "one"), feed(1, "two")]), None)
            backend.free(0)
            backend.copy(Copy(1, 2, 2))
            drawn += backend.sample(backend.forward([feed(0, "three"), feed(2, "o", 2)]), None)
            said.append(drawn)
        assert said[0] == said[1]
    finally:
        there.close()


def test_a_backend_that_cannot_start_says_why() -> None:
    with pytest.raises(ModelError, match="no such device"):
        isolated(broken)


def test_a_death_is_an_error_with_its_signal_and_the_next_step_starts_another() -> None:
    backend = isolated(dying)
    for _ in range(2):
        with pytest.raises(BackendError, match="the engine's process ended by SIGSEGV"):
            backend.sample(backend.forward([feed(0, "x")]), None)
    backend.close()


def test_a_killed_child_is_replaced_by_one_that_knows_nothing_of_its_slots() -> None:
    backend = isolated()
    first = backend.sample(backend.forward([feed(0, "x")]), None)
    assert backend._process
    backend._process.kill()
    with pytest.raises(BackendError, match="ended by SIGKILL"):
        backend.sample(backend.forward([feed(1, "y")]), None)
    backend.free(0)
    assert backend.sample(backend.forward([feed(0, "x")]), None) == first
    backend.close()


def test_loading_is_given_up_when_the_run_is_stopped() -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    with pytest.raises(Interrupted):
        IsolatedBackend(slow, stop.is_set, never)


def test_no_child_goes_on_loading_where_the_wait_for_it_is_broken_off() -> None:
    def interrupted() -> bool:
        raise KeyboardInterrupt

    before = engines(os.getpid())
    with pytest.raises(KeyboardInterrupt):
        IsolatedBackend(slow, interrupted, never)
    assert engines(os.getpid()) == before


def slow(stopped: Any) -> FakeBackend:
    threading.Event().wait(PATIENCE_S)
    raise AssertionError("nobody waited so long")


def test_no_child_and_no_handle_is_left(tmp_path: Path) -> None:
    before = len(psutil.Process().children()), psutil.Process().num_fds()
    for _ in range(3):
        backend = isolated()
        backend.sample(backend.forward([feed(0, "x")]), None)
        backend.close()
        backend.close()
    assert (len(psutil.Process().children()), psutil.Process().num_fds()) == before


# -- a whole run


def run(folder: Path, how: str, *arguments: str, text: str = "POISON") -> Ran:
    paths = os.pathsep.join([str(FAULTS), os.environ.get("PYTHONPATH", "")])
    fault = {"FAULT_TEXT": text, "FAULT_HOW": how, "PYTHONPATH": paths}
    return batchrun(folder, "run", "jobs.jsonl", "--isolate", *arguments, **fault)


def found(folder: Path) -> dict[str, dict[str, Any]]:
    return {record["id"]: record for record in read(folder / "jobs.results.jsonl")}


@pytest.mark.parametrize(
    ("how", "words"),
    [
        ("abort", "the engine's process ended by SIGABRT: GGML_ASSERT(n_tokens <= n_batch) failed"),
        ("kill", "the engine's process ended by SIGKILL"),
        ("memory", "out of memory"),
        ("error", "the device is gone"),
    ],
)
def test_a_job_that_kills_the_engine_twice_is_an_error_and_harms_no_neighbour(
    tmp_path: Path, how: str, words: str
) -> None:
    poison = {"id": "poison", "prompt": "POISON", "max_tokens": 300}
    write_jobs(tmp_path / "jobs.jsonl", [*JOBS[:20], poison, *JOBS[20:]])
    ran = run(tmp_path, how)
    assert (ran.status, "Traceback" in ran.err) == (3, False)
    results = found(tmp_path)
    assert {job_id: record["status"] for job_id, record in results.items()} == {
        **{job["id"]: "ok" for job in JOBS},
        "poison": "error",
    }
    (problem,) = results["poison"]["errors"]
    assert problem == {"code": "crashed_twice", "message": words}
    assert results["poison"]["attempt"] == 2
    retried = [record["id"] for record in results.values() if record["attempt"] == 2]
    assert len(retried) <= 16, "only rows that were in flight ran again"
    write_jobs(tmp_path / "clean.jsonl", JOBS)
    alone = batchrun(tmp_path, "run", "clean.jsonl", "-o", "-").records
    assert {record["id"]: record["output"] for record in alone} == {
        job_id: record["output"] for job_id, record in results.items() if job_id != "poison"
    }
    again = run(tmp_path, how)
    assert "nothing to do; 41 done before" in again.err, "it is not tried a third time"
    assert again.status == 3


def test_several_jobs_that_kill_the_engine_are_each_found(tmp_path: Path) -> None:
    poisons = [{"id": f"poison-{number}", "prompt": f"POISON {number}", "max_tokens": 300} for number in range(3)]
    write_jobs(tmp_path / "jobs.jsonl", [*JOBS[:3], *poisons, *JOBS[3:10]])
    assert run(tmp_path, "kill").status == 3
    results = {job_id: record["status"] for job_id, record in found(tmp_path).items()}
    assert [job_id for job_id, status in results.items() if status == "error"] == [job["id"] for job in poisons]
    assert list(results.values()).count("ok") == 10


def test_failed_jobs_are_tried_again_where_that_is_asked_for(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"id": "poison", "prompt": "POISON", "max_tokens": 300}])
    run(tmp_path, "kill")
    assert batchrun(tmp_path, "run", "jobs.jsonl", "--retry-failed").status == 0
    assert found(tmp_path)["poison"]["status"] == "ok"


def test_an_engine_that_always_dies_ends_the_run_with_5_and_keeps_what_is_done(tmp_path: Path) -> None:
    jobs = [
        *JOBS[:3],
        *({"id": f"bad-{number}", "prompt": f"POISON {number}", "max_tokens": 200} for number in range(50)),
    ]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    ran = run(tmp_path, "kill", "--parallel", "1")
    assert ran.status == 5
    assert "the engine's process ended by SIGKILL" in ran.err
    done = found(tmp_path)
    assert {job["id"] for job in JOBS[:3]} <= done.keys()
    assert len(done) < 20
    assert batchrun(tmp_path, "run", "jobs.jsonl").status == 3, "bad ones that crashed twice stay errors"
    assert len(statuses(read(tmp_path / "jobs.results.jsonl"))) == len(jobs)


def test_an_abort_of_the_real_engine_in_mid_run_costs_nothing(tmp_path: Path) -> None:
    jobs = [{"id": f"job-{number}", "prompt": f"Say {number}.", "max_tokens": 4 + 16 * number} for number in range(4)]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    process = start(tmp_path, "run", "jobs.jsonl", engine="auto")
    results = tmp_path / "jobs.results.jsonl"
    while not results.exists() or not results.read_bytes().count(b"\n"):
        assert process.poll() is None
        time.sleep(0.01)
    (child,) = engines(process.pid)
    child.send_signal(signal.SIGABRT)
    _, err = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode in (0, 3), b"Traceback" in err) == (True, False)
    records = read(results)
    assert statuses(records).keys() == {job["id"] for job in jobs}
    assert all(record["status"] in ("ok", "truncated") for record in records)
    assert any(record["attempt"] == 2 for record in records)
