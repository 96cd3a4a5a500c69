"""An audit finds rows that were mixed up, and nothing in a clean run."""

import json
from pathlib import Path
from typing import Any

import pytest
from building import TOKENIZER
from hypothesis import given
from hypothesis import strategies as st
from shell import batchrun, records

from batchrun.core import Completion, FinishReason, Job, NearTie, Request, Sampling, Timing, Usage
from batchrun.verdicts import Verdict, in_sample, judged, same_way


def write(folder: Path, count: int = 40) -> None:
    jobs = (
        {"id": f"job-{n}", "prompt": f"Say {n}.", "max_tokens": 12, "schema": {"type": "string"}} for n in range(count)
    )
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))


def mixed_up(folder: Path, one: str, other: str) -> None:
    """The answers of two jobs change places."""
    path = folder / "jobs.results.jsonl"
    found = {record["id"]: record for record in records(path.read_text())}
    found[one]["output"], found[other]["output"] = found[other]["output"], found[one]["output"]
    path.write_text("".join(json.dumps(record) + "\n" for record in found.values()))


def audited(folder: Path, *arguments: str, engine: str = "fake") -> tuple[int, dict[str, Any]]:
    ran = batchrun(folder, "audit", "jobs.results.jsonl", "--json", *arguments, engine=engine)
    assert ran.err == "", ran.err
    return ran.status, json.loads(ran.out)


def test_a_clean_run_is_identical_and_two_rows_that_changed_places_are_found(tmp_path: Path) -> None:
    write(tmp_path)
    batchrun(tmp_path, "run", "jobs.jsonl", "--parallel", "8")
    status, found = audited(tmp_path, "--share", "100%")
    assert (status, found["audited"], found["identical"], found["rows"]) == (0, 40, 40, [])
    mixed_up(tmp_path, "job-3", "job-17")
    status, found = audited(tmp_path, "--share", "100%")
    assert (status, found["identical"], found["different"]) == (3, 38, 2)
    assert {row["id"] for row in found["rows"]} == {"job-3", "job-17"}


def test_the_real_model_says_alone_what_it_said_in_the_batch(tmp_path: Path) -> None:
    texts = ("Ann Lee, ann@x.org", "Bo Ek, bo@y.se", "Cy Fox, cy@z.net", "Di Hill, di@w.com")
    schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    jobs = [
        {"id": str(n), "prompt": "Give the name.", "document": text, "schema": schema, "max_tokens": 24}
        for n, text in enumerate(texts)
    ]
    (tmp_path / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    one = ("--threads", "1")  # others may be at work on this machine
    assert batchrun(tmp_path, "run", "jobs.jsonl", "--parallel", "4", *one, engine="auto").status == 0
    status, found = audited(tmp_path, "--share", "1", *one, engine="auto")
    assert (status, found["audited"], found["different"]) == (0, 4, 0)
    mixed_up(tmp_path, "0", "2")
    status, found = audited(tmp_path, "--share", "1", *one, engine="auto")
    assert (status, found["different"]) == (3, 2)


def test_a_run_audits_itself_as_it_goes_and_at_its_end(tmp_path: Path) -> None:
    write(tmp_path, 100)
    ran = batchrun(tmp_path, "run", "jobs.jsonl", "--parallel", "8", "--audit", "50%")
    line = next(line for line in ran.err.splitlines() if "run again alone" in line)
    count = int(line.split()[2])
    assert line == f"batchrun: audit: {count} jobs run again alone: {count} identical, 0 near-tie, 0 different"
    assert count == sum(in_sample(r["id"], r["digest"], 0.5, 0) for r in _results(tmp_path))
    assert len(_results(tmp_path)) == 100


def test_an_audited_run_writes_what_any_run_writes(tmp_path: Path) -> None:
    write(tmp_path)
    batchrun(tmp_path, "run", "jobs.jsonl", "-o", "plain.jsonl")
    batchrun(tmp_path, "run", "jobs.jsonl", "--audit", "100%")
    plain = {r["id"]: r for r in records((tmp_path / "plain.jsonl").read_text())}
    for record in _results(tmp_path):
        assert {k: record[k] for k in ("output", "status", "digest", "usage")} == {
            k: plain[record["id"]][k] for k in ("output", "status", "digest", "usage")
        }


def test_what_cannot_be_compared_is_counted_with_its_reason(tmp_path: Path) -> None:
    write(tmp_path, 4)
    lines = (tmp_path / "jobs.jsonl").read_text().splitlines()
    twin = json.dumps(json.loads(lines[0]) | {"id": "twin"})
    (tmp_path / "jobs.jsonl").write_text("\n".join([*lines, twin]) + "\n")
    batchrun(tmp_path, "run", "jobs.jsonl")
    (tmp_path / "jobs.jsonl").write_text("\n".join([lines[0], lines[1].replace("Say", "Tell"), lines[2], twin]) + "\n")
    status, found = audited(tmp_path, "--share", "100%")
    assert (status, found["identical"]) == (0, 2)
    assert found["passed_over"] == {
        "it is a copy of an equal job's answer": 1,
        "another prompt than in the run": 1,
        "no line of the input has its id": 1,
    }


def test_an_audit_looks_at_one_result_at_least_and_one_of_nothing_is_no_success(tmp_path: Path) -> None:
    write(tmp_path, 5)
    batchrun(tmp_path, "run", "jobs.jsonl")
    assert audited(tmp_path, "--share", "0.1%")[1]["audited"] == 1
    (tmp_path / "others.jsonl").write_text('{"id": "nobody", "prompt": "x"}\n')
    status, found = audited(tmp_path, "--jobs", "others.jsonl", "--share", "100%")
    assert (status, found["audited"], found["passed_over"]) == (4, 0, {"no line of the input has its id": 5})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nothing.jsonl", "--jobs", "jobs.jsonl"), "expected a results file"),
        (("jobs.results.jsonl", "--share", "0"), "a share such as 2%"),
        (("jobs.results.jsonl", "--jobs", "nothing.jsonl"), "expected a file of job lines"),
        (("other.jsonl",), "expected --jobs JOBS"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(tmp_path: Path, arguments: tuple[str, ...], said: str) -> None:
    write(tmp_path, 2)
    batchrun(tmp_path, "run", "jobs.jsonl")
    (tmp_path / "other.jsonl").write_text("")
    ran = batchrun(tmp_path, "audit", *arguments)
    assert ran.status in (2, 4)
    assert said in ran.err
    assert len(ran.err.splitlines()) == 1


@given(st.text(alphabet="abcdefgh", min_size=2, max_size=12), st.data())
def test_answers_that_part_at_a_near_tie_are_told_from_others(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    said = text[:place] + text[place].upper() + text[place + 1 :]
    near = alone(text, (NearTie(place, 0.1, ord(said[place])),))
    other = alone(text, (NearTie(place, 0.1, ord("x")),))
    assert judged(text, near, TOKENIZER.decode) is Verdict.IDENTICAL
    assert judged(said, near, TOKENIZER.decode) is Verdict.NEAR_TIE
    assert judged(said, other, TOKENIZER.decode) is Verdict.DIFFERENT
    assert judged(said, alone(text, ()), TOKENIZER.decode) is Verdict.DIFFERENT


@given(st.text(alphabet="abcdefgh", min_size=2, max_size=12), st.data())
def test_while_a_run_goes_on_its_tokens_tell(text: str, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(text) - 1))
    said = text[:place] + text[place].upper() + text[place + 1 :]
    tie, elsewhere = NearTie(place, 0.1, ord(said[place])), NearTie(place, 0.1, ord("x"))
    assert same_way(alone(text, ()), alone(text, ())) is Verdict.IDENTICAL
    assert same_way(alone(said, ()), alone(text, (tie,))) is Verdict.NEAR_TIE
    assert same_way(alone(text, (tie,)), alone(said, ())) is Verdict.NEAR_TIE
    assert same_way(alone(said, ()), alone(text, (elsewhere,))) is Verdict.DIFFERENT


def alone(text: str, near_ties: tuple[NearTie, ...]) -> Completion:
    job = Job(1, "job", (), None, None, 32, Sampling(), (), None)
    request, timing = Request(job, "digest", (1,)), Timing(0.0, 0.0, 0.0, 0.0)
    return Completion(request, text, FinishReason.STOP, Usage(), timing, tuple(text.encode()), near_ties)


def _results(folder: Path) -> list[dict[str, Any]]:
    return records((folder / "jobs.results.jsonl").read_text())
