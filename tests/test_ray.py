"""The same line on a real Ray cluster of two nodes: the same results, whoever is killed; strangers are refused."""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from gguf_models import Tiny, write_gguf
from shell import COMMAND, PATIENCE_S, Ran, environment, records

import batchrun

COMPARED = ("output", "status", "digest", "index", "errors", "usage", "finish_reason", "meta", "schema", "verbatim")
JOBS = Path(batchrun.__file__).parent.parent / "jobs"


class RealCluster:
    """Talks to `cluster.py`."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("cluster.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=environment(),
        )
        self.address = self._answer()

    def do(self, command: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(command + "\n")
        self._process.stdin.flush()
        self._answer()

    def workers(self) -> list[psutil.Process]:
        """The processes that run stations now."""
        family = psutil.Process(self._process.pid).children(recursive=True)
        return [one for one in family if one.is_running() and "Station" in " ".join(_command(one))]

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(PATIENCE_S)

    def _answer(self) -> str:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith("> "):
                return line[2:].strip()
        raise AssertionError("the cluster did not start")


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.fixture(scope="module")
def cluster() -> Iterator[RealCluster]:
    pytest.importorskip("ray")
    found = RealCluster()
    yield found
    found.close()


@contextlib.contextmanager
def another_node(cluster: RealCluster, *variables: str) -> Iterator[None]:
    """A node more for a while, whose processes have these variables."""
    cluster.do(" ".join(("add", *variables)))
    try:
        yield
    finally:
        cluster.do("remove")


def started(
    folder: Path, cluster: RealCluster, *arguments: str, engine: str = "fake", **variables: str
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, "run", *arguments, "--engine", engine, "--ray", cluster.address],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(**variables),
        start_new_session=True,
    )


def ended(process: subprocess.Popen[bytes]) -> Ran:
    out, err = process.communicate(timeout=2 * PATIENCE_S)
    return Ran(process.returncode, out.decode(), err.decode())


def run(folder: Path, cluster: RealCluster, *arguments: str, engine: str = "fake", **variables: str) -> Ran:
    return ended(started(folder, cluster, *arguments, engine=engine, **variables))


def write_jobs(folder: Path, count: int, tokens: int = 12, schema: Any = None) -> None:
    same = {"schema": schema}
    jobs = (
        {"id": f"job-{n}", "prompt": f"Say {n}.", "max_tokens": tokens + n % 20, "meta": n} | same for n in range(count)
    )
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))


def results(folder: Path, name: str = "jobs.results.jsonl") -> dict[str, dict[str, Any]]:
    """By id, each once."""
    found = records((folder / name).read_text())
    assert max(Counter(record["id"] for record in found).values()) == 1
    return {record["id"]: record for record in found}


def when_some_are_done(folder: Path, least: int) -> None:
    path = folder / "jobs.results.jsonl"
    for _ in range(int(PATIENCE_S * 100)):
        if path.exists() and path.read_bytes().count(b"\n") >= least:
            return
        time.sleep(0.01)
    raise AssertionError("no results came")


def test_two_nodes_say_what_one_machine_says(tmp_path: Path, cluster: RealCluster) -> None:
    long = {"type": "string", "minLength": 150, "maxLength": 150, "pattern": "^[a-z]*$"}
    write_jobs(tmp_path, 200, tokens=160, schema=long)  # enough for a second node that joins a little later
    alone = subprocess.run(
        [*COMMAND, "run", "jobs.jsonl", "--engine", "fake", "-o", "alone.jsonl"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        check=False,
    )
    ran = run(tmp_path, cluster, "jobs.jsonl", "--stats", "stats.jsonl")
    assert (ran.status, ran.out) == (alone.returncode, "")
    here, there = results(tmp_path, "alone.jsonl"), results(tmp_path)
    assert here.keys() == there.keys()
    for name, record in here.items():
        assert {key: record.get(key) for key in COMPARED} == {key: there[name].get(key) for key in COMPARED}
    bursts = records((tmp_path / "stats.jsonl").read_text())
    assert len({burst["node"] for burst in bursts}) == 2
    assert {record["burst"] for record in there.values()} <= {burst["burst"] for burst in bursts}


def test_results_go_to_standard_output_in_order_with_nothing_of_rays_between(
    tmp_path: Path, cluster: RealCluster
) -> None:
    write_jobs(tmp_path, 100)
    ran = run(tmp_path, cluster, "jobs.jsonl", "-o", "-", "--order", "input")
    assert [record["index"] for record in ran.records] == list(range(1, 101))


def test_the_real_model_says_the_same_on_two_nodes(tmp_path: Path, cluster: RealCluster) -> None:
    shutil.copytree(JOBS.parent / "schemas", tmp_path / "schemas")
    shutil.copy(JOBS / "contacts.jsonl", tmp_path / "jobs.jsonl")
    arguments = ("jobs.jsonl", "--threads", "1", "--limit", os.environ.get("RAY_JOBS", "6"))
    ran = run(tmp_path, cluster, *arguments, engine="auto")
    assert ran.status == 0, ran.err
    assert {record["status"] for record in results(tmp_path).values()} == {"ok"}
    audit = [*COMMAND, "audit", "jobs.results.jsonl", "--jobs", "jobs.jsonl", "--share", "100%", "--threads", "1"]
    said = subprocess.run([*audit, "--json"], cwd=tmp_path, env=environment(), capture_output=True, check=False)
    found = json.loads(said.stdout)
    print(f"\nbeside the same jobs alone: { {name: found[name] for name in ('identical', 'near-tie', 'different')} }")
    assert found["audited"] == len(results(tmp_path))
    assert found["different"] == 0, found["rows"]


@pytest.mark.parametrize("seed", range(int(os.environ.get("RAY_KILLS", "2"))))
def test_a_worker_that_is_killed_costs_nobody_a_result(tmp_path: Path, cluster: RealCluster, seed: int) -> None:
    write_jobs(tmp_path, 4000, tokens=40)
    before = {worker.pid for worker in cluster.workers()}
    process = started(tmp_path, cluster, "jobs.jsonl")
    chance = random.Random(seed)
    when_some_are_done(tmp_path, chance.randrange(1, 1500))
    chance.choice([worker for worker in cluster.workers() if worker.pid not in before]).send_signal(signal.SIGKILL)
    ran = ended(process)
    assert ran.status == 3, ran.err  # answers of the toy are cut off
    assert "its process died; what it had runs elsewhere" in ran.err
    found = results(tmp_path)
    assert len(found) == 4000
    assert {record["status"] for record in found.values()} == {"ok", "truncated"}


@pytest.mark.parametrize("seed", range(int(os.environ.get("RAY_REMOVALS", "1"))))
def test_a_node_that_goes_away_and_one_that_comes_cost_nobody_a_result(
    tmp_path: Path, cluster: RealCluster, seed: int
) -> None:
    write_jobs(tmp_path, 10_000, tokens=40)  # enough for the node that comes to take part
    process = started(tmp_path, cluster, "jobs.jsonl", "--stats", "stats.jsonl")
    when_some_are_done(tmp_path, random.Random(seed).randrange(1, 1500))
    cluster.do("remove")
    cluster.do("add")
    ran = ended(process)
    found = results(tmp_path)
    assert len(found) == 10_000
    assert {record["status"] for record in found.values()} == {"ok", "truncated"}, ran.err
    assert "what it had runs elsewhere" in ran.err
    assert len({burst["node"] for burst in records((tmp_path / "stats.jsonl").read_text())}) == 3


def test_a_driver_that_is_killed_resumes_where_it_was(tmp_path: Path, cluster: RealCluster) -> None:
    write_jobs(tmp_path, 4000, tokens=40)
    process = started(tmp_path, cluster, "jobs.jsonl")
    when_some_are_done(tmp_path, 500)
    process.kill()
    ended(process)
    before = (tmp_path / "jobs.results.jsonl").read_bytes().count(b"\n")
    ran = run(tmp_path, cluster, "jobs.jsonl")
    assert f"{before} done before" in ran.err or f"{before - 1} done before" in ran.err
    assert len(results(tmp_path)) == 4000


def test_the_first_signal_ends_the_run_and_it_can_be_resumed(tmp_path: Path, cluster: RealCluster) -> None:
    write_jobs(tmp_path, 4000, tokens=40)
    process = started(tmp_path, cluster, "jobs.jsonl")
    when_some_are_done(tmp_path, 300)
    process.send_signal(signal.SIGTERM)
    ran = ended(process)
    assert ran.status == 143, ran.err
    assert "resume with" in ran.err
    assert 300 <= len(results(tmp_path)) < 4000
    assert run(tmp_path, cluster, "jobs.jsonl").status == 3
    assert len(results(tmp_path)) == 4000


def test_another_version_is_refused_and_the_others_go_on(tmp_path: Path, cluster: RealCluster) -> None:
    write_jobs(tmp_path, 6000, tokens=40)  # enough for a third node that joins later
    older = tmp_path / "older"
    older.mkdir()
    (older / "sitecustomize.py").write_text("import batchrun\nbatchrun.__version__ = '0.0.1'\n")
    with another_node(cluster, f"PYTHONPATH={older}:{Path(batchrun.__file__).parent.parent}"):
        ran = run(tmp_path, cluster, "jobs.jsonl")
    assert f"refused: batchrun 0.0.1 there, {batchrun.__version__} here" in ran.err
    assert len(results(tmp_path)) == 6000


def test_another_model_and_no_model_are_refused_and_the_others_go_on(tmp_path: Path, cluster: RealCluster) -> None:
    write_jobs(tmp_path, 400, tokens=8)
    named, hubs = "hf:some/body/tiny.gguf", {name: tmp_path / name for name in ("ours", "other", "empty")}
    for seed, name in enumerate(("ours", "other")):
        folder = hubs[name] / "hub" / "models--some--body"
        (folder / "snapshots" / "1").mkdir(parents=True)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text("1")
        write_gguf(folder / "snapshots" / "1" / "tiny.gguf", Tiny(seed=seed))
    home = {"HF_HOME": str(hubs["ours"])}
    with (
        another_node(cluster, f"HF_HOME={hubs['ours']}"),
        another_node(cluster, f"HF_HOME={hubs['other']}"),
        another_node(cluster, f"HF_HOME={hubs['empty']}"),
    ):
        ran = run(tmp_path, cluster, "jobs.jsonl", "--model", named, "--no-isolate", engine="llamacpp", **home)
    refused = [line for line in ran.err.splitlines() if "refused" in line]
    assert any(re.search(r"refused: model [0-9a-f]{16} there, [0-9a-f]{16} here", line) for line in refused), ran.err
    assert any(f"batchrun models pull {named}" in line for line in refused), ran.err
    assert len(results(tmp_path)) == 400


def test_without_a_cluster_one_line_says_how_to_start_one(tmp_path: Path) -> None:
    write_jobs(tmp_path, 2)
    command = [*COMMAND, "run", "jobs.jsonl", "--engine", "fake", "--ray", "127.0.0.1:1"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment(), check=False)
    assert ran.returncode == 5
    assert "ray start --head" in ran.stderr.splitlines()[-1]
