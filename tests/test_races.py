"""Jobs that are equal, jobs that race, and jobs whose time is up."""

import json
from pathlib import Path
from typing import Any

from shell import here as batchrun
from shell import read, statuses, write_jobs

LONG = {"max_tokens": 60_000, "schema": {"type": "string", "minLength": 50_000}}
SHORT = {"max_tokens": 400}


def found(folder: Path) -> dict[str, dict[str, Any]]:
    lines = read(folder / "jobs.results.jsonl")
    assert len({record["id"] for record in lines}) == len(lines)
    return {record["id"]: record for record in lines}


# -- equal jobs


def test_equal_jobs_are_computed_once_and_written_for_each_id(tmp_path: Path) -> None:
    jobs = [{"id": f"job-{number}", "prompt": f"say {number % 3}", "meta": number} | SHORT for number in range(300)]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    assert batchrun(tmp_path, "run", "jobs.jsonl").status == 0
    results = found(tmp_path)
    assert len(results) == 300
    computed = [record for record in results.values() if "copy_of" not in record]
    assert len(computed) == 3
    assert all(record["meta"] == int(record["id"][4:]) for record in results.values())
    assert len({(record["digest"], record["output"]) for record in results.values()}) == 3
    for record in results.values():
        if record not in computed:
            assert results[record["copy_of"]]["output"] == record["output"]
            assert record["usage"]["completion_tokens"] == 0
    assert batchrun(tmp_path, "run", "jobs.jsonl").err.startswith("batchrun: nothing to do; 300 done before")


def test_equal_jobs_of_a_stream_are_computed_once_too(tmp_path: Path) -> None:
    data = "".join(json.dumps({"id": str(number), "prompt": "same"} | SHORT) + "\n" for number in range(50))
    results = batchrun(tmp_path, "run", "-", stdin=data).records
    assert len(results) == 50
    assert sum("copy_of" not in record for record in results) == 1


def test_a_document_that_moved_is_not_read_again(tmp_path: Path) -> None:
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.md").write_text("text")
    arguments = ("--documents", "notes", "--prompt", "p", "--max-tokens", "400", "-o", "jobs.results.jsonl")
    batchrun(tmp_path, "run", *arguments)
    (tmp_path / "notes" / "a.md").rename(tmp_path / "notes" / "b.md")
    run = batchrun(tmp_path, "run", *arguments)
    assert found(tmp_path)["notes/b.md"]["copy_of"] == "notes/a.md"
    assert "rows and" not in run.err, "no weights were loaded"
    assert "1 results are of jobs that are no longer in the input; --prune moves them away" in run.err


# -- a corpus that changes


def test_a_nightly_run_over_a_changed_folder_touches_only_what_changed(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    notes.mkdir()
    for number in range(20):
        (notes / f"{number}.md").write_text(f"text {number}")
    arguments = ("--documents", "notes/*.md", "--prompt", "p", "--max-tokens", "400", "-o", "jobs.results.jsonl")
    batchrun(tmp_path, "run", *arguments)
    before = found(tmp_path)
    (notes / "3.md").write_text("another text")
    (notes / "new.md").write_text("new text")
    (notes / "5.md").unlink()
    run = batchrun(tmp_path, "run", *arguments)
    assert "2 ok; 18 done before" in run.err
    assert "1 results are of jobs that are no longer in the input; --prune moves them away" in run.err
    after = found(tmp_path)
    assert after.keys() == before.keys() | {"notes/new.md"}
    assert {job_id for job_id in before if before[job_id] != after[job_id]} == {"notes/3.md"}
    run = batchrun(tmp_path, "run", *arguments, "--prune")
    assert "1 results of jobs that are no longer there were moved to jobs.results.replaced.jsonl" in run.err
    assert found(tmp_path).keys() == after.keys() - {"notes/5.md"}
    (notes / "5.md").write_text("text 5")
    assert batchrun(tmp_path, "run", *arguments).err.startswith("batchrun: nothing to do; 21 done before")


# -- races


def race(name: str, **job: Any) -> dict[str, Any]:
    return {"id": name, "prompt": name, "group": "g", "keep": "first"} | job


def test_the_first_good_answer_of_a_group_ends_the_others(tmp_path: Path) -> None:
    jobs = [race("slow", **LONG), race("slower", **LONG), race("fast", **SHORT), {"id": "other", "prompt": "p"} | SHORT]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    run = batchrun(tmp_path, "run", "jobs.jsonl")
    assert run.status == 0, "a race that was lost is no failure"
    results = found(tmp_path)
    assert {job_id: record["status"] for job_id, record in results.items()} == {
        "slow": "cancelled",
        "slower": "cancelled",
        "fast": "ok",
        "other": "ok",
    }
    (problem,) = results["slow"]["errors"]
    assert problem == {"code": "group_won", "message": "group 'g' has its answer, from line 3"}
    assert results["slow"]["usage"]["completion_tokens"] < 1000
    again = batchrun(tmp_path, "run", "jobs.jsonl")
    assert (again.status, "nothing to do; 4 done before" in again.err) == (0, True)


def test_the_slots_of_the_losers_are_filled_again(tmp_path: Path) -> None:
    jobs = [race("slow", **LONG), race("fast", **SHORT), *({"id": str(n), "prompt": str(n)} | SHORT for n in range(50))]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    assert batchrun(tmp_path, "run", "jobs.jsonl", "--parallel", "2").status == 0
    assert len(found(tmp_path)) == 52


def test_an_answer_that_is_not_good_ends_no_race(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [race("cut", max_tokens=1), race("good", **SHORT), race("bad", prompt="")])
    batchrun(tmp_path, "run", "jobs.jsonl")
    results = {job_id: record["status"] for job_id, record in found(tmp_path).items()}
    assert results == {"cut": "truncated", "good": "ok", "bad": "rejected"}


def test_a_member_that_comes_when_the_race_is_over_does_not_run(tmp_path: Path) -> None:
    jobs = [
        race("fast", **SHORT),
        *({"id": str(n), "prompt": str(n)} | SHORT for n in range(3000)),
        race("late", **LONG),
    ]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    batchrun(tmp_path, "run", "jobs.jsonl")
    late = found(tmp_path)["late"]
    assert (late["status"], late["attempt"], late["errors"][0]["code"]) == ("cancelled", 0, "group_won")


def test_a_new_member_of_a_group_that_was_won_before_does_not_run(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [race("fast", **SHORT)])
    batchrun(tmp_path, "run", "jobs.jsonl")
    write_jobs(tmp_path / "jobs.jsonl", [race("fast", **SHORT), race("new", **LONG)])
    assert batchrun(tmp_path, "run", "jobs.jsonl").status == 0
    assert found(tmp_path)["new"]["status"] == "cancelled"


def test_racing_jobs_that_are_equal_both_run(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [race("a", prompt="p", **SHORT), race("b", prompt="p", **SHORT)])
    batchrun(tmp_path, "run", "jobs.jsonl")
    records = found(tmp_path).values()
    assert sorted(record["status"] for record in records) in (["ok", "ok"], ["cancelled", "ok"])
    assert all("copy_of" not in record for record in records)


# -- time


def test_a_job_whose_time_is_up_is_taken_out_and_its_neighbours_go_on(tmp_path: Path) -> None:
    jobs = [
        {"id": "slow", "prompt": "p", "timeout_s": 0.05} | LONG,
        {"id": "fast", "prompt": "q", "timeout_s": 60} | SHORT,
    ]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    run = batchrun(tmp_path, "run", "jobs.jsonl")
    assert run.status == 3
    results = found(tmp_path)
    assert {job_id: record["status"] for job_id, record in results.items()} == {"slow": "expired", "fast": "ok"}
    assert results["slow"]["errors"] == [{"code": "expired", "message": "its timeout_s, 0.05, was up"}]
    assert results["slow"]["finish_reason"] == "expired"
    assert "1 expired; 1 done before" in batchrun(tmp_path, "run", "jobs.jsonl").err, "it runs again"


def test_a_run_ends_at_its_deadline_and_goes_on_later(tmp_path: Path) -> None:
    jobs = [{"id": "slow", "prompt": "p"} | LONG, *({"id": str(n), "prompt": str(n)} | SHORT for n in range(20))]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    run = batchrun(tmp_path, "run", "jobs.jsonl", "--deadline", "1s", "--grace-seconds", "0", "--parallel", "1")
    assert run.status == 75
    assert "stopped at the deadline; resume with: batchrun run jobs.jsonl" in run.err
    results = found(tmp_path)
    assert results["slow"]["status"] == "expired"
    assert results["slow"]["errors"][0]["message"] == "the run's deadline was reached"
    assert len(results) < len(jobs)
    write_jobs(tmp_path / "jobs.jsonl", jobs[1:])
    assert batchrun(tmp_path, "run", "jobs.jsonl", "--deadline", "10m").status == 0
    assert statuses(read(tmp_path / "jobs.results.jsonl")).keys() == {job["id"] for job in jobs}
