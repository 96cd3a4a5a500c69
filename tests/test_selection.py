"""Which jobs a run takes."""

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shell import Ran, read, statuses, write_jobs
from shell import here as batchrun

from batchrun.errors import UsageError
from batchrun.selection import Selection, Shard, condition, failure_limit, shard

JOBS = [{"id": f"job-{number}", "prompt": f"say {number}", "max_tokens": 400} for number in range(6)]
CUT = {"id": "cut", "prompt": "say 0", "max_tokens": 1}
BAD = {"id": "bad", "prompt": ""}
RECORD: dict[str, Any] = {
    "id": "a",
    "status": "invalid",
    "errors": [{"code": "schema"}, {"code": "x"}],
    "meta": {"page": 3, "draft": True, "none": None},
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jobs(tmp_path / "jobs.jsonl", [*JOBS, CUT, BAD])
    return tmp_path


def run(folder: Path, *arguments: str) -> Ran:
    return batchrun(folder, "run", "jobs.jsonl", *arguments)


def found(folder: Path) -> dict[str, str]:
    return statuses(read(folder / "jobs.results.jsonl"))


# -- conditions, shards, limits of failures


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("status=invalid", True),
        ("status=ok,invalid", True),
        ("status!=invalid", False),
        ("status=ok", False),
        ("code=x", True),
        ("code=y", False),
        ("meta.page=3", True),
        ("meta.draft=true", True),
        ("meta.none=", True),
        ("meta.page.deep=3", False),
        ("id=a", True),
    ],
)
def test_a_condition_looks_into_the_result(text: str, holds: bool) -> None:
    assert condition(text).holds(RECORD) == holds


@pytest.mark.parametrize("text", ["status", "", "=x", "status=good", "a b=c"])
def test_what_is_no_condition_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--where"):
        condition(text)


@given(st.text(), st.integers(1, 20))
def test_every_id_is_in_exactly_one_shard(job_id: str, count: int) -> None:
    assert sum(Shard(number, count).holds(job_id) for number in range(1, count + 1)) == 1


def test_shards_are_even() -> None:
    counts = [sum(Shard(number, 4).holds(f"job-{job}") for job in range(4000)) for number in range(1, 5)]
    assert all(900 < count < 1100 for count in counts)


@pytest.mark.parametrize("text", ["3", "0/8", "9/8", "a/8", "3/", "-1/8", "3/8/2", "³/8"])
def test_what_is_no_shard_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--shard"):
        shard(text)


@pytest.mark.parametrize(
    ("text", "failed", "finished", "reached"),
    [
        (None, 10**6, 10**6, False),
        ("0", 1, 1, True),
        ("2", 2, 9, False),
        ("2", 3, 9, True),
        ("5%", 1, 1, False),
        ("5%", 1, 20, False),
        ("5%", 2, 20, True),
        ("100%", 9, 9, False),
    ],
)
def test_failures_are_counted_or_shared(text: str | None, failed: int, finished: int, reached: bool) -> None:
    assert failure_limit(text).reached(failed, finished) == reached


@pytest.mark.parametrize("text", ["", "x", "-1", "0%", "101%", "5 %", "1.5"])
def test_what_is_no_limit_of_failures_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="--max-failures"):
        failure_limit(text)


def test_a_sample_is_the_same_for_the_same_seed() -> None:
    chosen = [Selection(sample=10, seed=seed).chosen(100) for seed in (1, 1, 2)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert chosen[0]
    assert len(chosen[0]) == 10
    assert Selection(sample=10).chosen(3) == {0, 1, 2}
    with pytest.raises(UsageError, match="not a stream"):
        Selection(sample=10).chosen(None)


# -- through the command


def test_only_some_ids(folder: Path) -> None:
    assert run(folder, "--only", "job-3", "--only", "job-1", "--only", "nobody").status == 0
    assert found(folder) == {"job-1": "ok", "job-3": "ok"}
    assert run(folder).status == 3
    assert len(found(folder)) == 8


def test_the_first_so_many(folder: Path) -> None:
    assert run(folder, "--limit", "2").status == 0
    assert run(folder, "--limit", "2").err.startswith("batchrun: nothing to do; 2 done before")
    assert found(folder).keys() == {"job-0", "job-1"}


def test_a_sample_by_chance(folder: Path) -> None:
    run(folder, "--sample", "3")
    assert len(found(folder)) == 3
    assert batchrun(folder, "run", "-", "--sample", "3", stdin='{"prompt":"p"}').status == 2


def test_nothing_chosen_is_nothing_to_do(folder: Path) -> None:
    ran = run(folder, "--only", "nobody")
    assert (ran.status, "nothing to do" in ran.err) == (0, True)


def test_shards_part_the_jobs_and_name_nobody_twice(folder: Path) -> None:
    for number in (1, 2, 3):
        run(folder, "--shard", f"{number}/3", "-o", f"part-{number}.jsonl")
    parts = [statuses(read(path)) for path in folder.glob("part-?.jsonl")]
    assert sorted(job_id for part in parts for job_id in part) == sorted([*(job["id"] for job in JOBS), "bad", "cut"])


def test_what_has_a_certain_result_runs_again(folder: Path) -> None:
    run(folder)
    before = {record["id"]: record for record in read(folder / "jobs.results.jsonl")}
    ran = run(folder, "--where", "status=truncated,rejected")
    assert re.search(r"^batchrun: 1 (truncated, 1 rejected|rejected, 1 truncated) -> ", ran.err, re.MULTILINE)
    after = {record["id"]: record for record in read(folder / "jobs.results.jsonl")}
    assert after.keys() == before.keys()
    assert {job_id for job_id in after if after[job_id] != before[job_id]} <= {"cut", "bad"}
    assert after["cut"]["burst"] == 2
    assert "2 older results of the same ids were moved" in ran.err


def test_failed_jobs_run_again_and_new_ones_too(folder: Path) -> None:
    run(folder, "--limit", "7")
    ran = run(folder, "--retry-failed")
    assert "1 truncated, 1 rejected; 6 done before" in ran.err or "1 rejected, 1 truncated; 6 done before" in ran.err
    assert len(found(folder)) == 8


def test_too_many_failures_end_the_run(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [JOBS[0], *(BAD | {"id": f"bad-{number}"} for number in range(500))])
    ran = run(tmp_path, "--max-failures", "10")
    assert ran.status == 7
    assert re.search(r"stopped early: \d+ of \d+ results are not ok; resume with: batchrun run jobs.jsonl", ran.err)
    assert len(found(tmp_path)) < 100


def test_a_share_of_failures_ends_the_run_too(folder: Path) -> None:
    assert run(folder, "--max-failures", "50%").status == 3
    write_jobs(folder / "jobs.jsonl", [BAD | {"id": f"bad-{number}"} for number in range(500)])
    assert run(folder, "--max-failures", "50%", "-o", "other.jsonl").status == 7


@pytest.mark.parametrize(
    "arguments",
    [("--shard", "9/8"), ("--where", "x"), ("--limit", "0"), ("--max-failures", "x"), ("--prune", "--limit", "3")],
)
def test_a_selection_that_means_nothing_is_refused(folder: Path, arguments: tuple[str, ...]) -> None:
    ran = run(folder, *arguments)
    assert ran.status == 2
    assert not (folder / "jobs.results.jsonl").exists()
