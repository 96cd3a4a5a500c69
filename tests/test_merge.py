"""Parts of a job array come together: every id once, with its best result."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from shell import Ran, here, read, statuses, write_jobs

from batchrun.core import Result, Status, Usage
from batchrun.merge import merge
from batchrun.results import as_line

JOBS = [{"id": f"job-{number}", "prompt": f"say {number}", "max_tokens": 400} for number in range(30)]


def line(job_id: str, status: Status = Status.OK, index: int = 1, output: str = "x") -> bytes:
    return as_line(Result(job_id, index, status, output, None, (), Usage(), None, 1, 1, "m", "d" * 64, None))


class Kept:
    """An outlet that keeps what it gets."""

    def __init__(self) -> None:
        self.lines: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.lines.append(data)

    def close(self, complete: bool) -> None:
        pass

    def abandon(self) -> None:
        pass


def test_the_shards_of_a_job_array_are_merged_and_the_whole_can_be_resumed(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", JOBS)
    for number in (1, 2, 3, 4):
        assert here(tmp_path, "run", "jobs.jsonl", "--shard", f"{number}/4", "-o", f"part-{number}.jsonl").status == 0
    names = sorted(path.name for path in tmp_path.glob("part-?.jsonl"))
    ran = here_without_engine(tmp_path, "merge", *names, "-o", "all.jsonl", "--order", "input")
    assert ran.status == 0
    assert "30 ok from 4 parts" in ran.err
    assert [record["index"] for record in read(tmp_path / "all.jsonl")] == list(range(1, 31))
    assert here(tmp_path, "run", "jobs.jsonl", "-o", "all.jsonl").err.startswith("batchrun: nothing to do; 30 done")


def here_without_engine(folder: Path, *arguments: str) -> Ran:
    """`merge` and `schedule` know no engine."""
    return here(folder, *arguments, engine="")


def test_of_several_results_the_best_and_of_equals_the_latest_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(line("x", Status.ERROR) + line("y", output="old") + line("z", Status.INVALID))
    (tmp_path / "b").write_bytes(line("x", Status.INVALID) + line("y", output="new") + line("z", Status.CANCELLED))
    kept = Kept()
    found = merge([tmp_path / "a", tmp_path / "b"], kept, ordered=False)
    assert statuses(map(json.loads, kept.lines)) == {"x": "invalid", "y": "ok", "z": "invalid"}
    assert [json.loads(data)["output"] for data in kept.lines if b'"y"' in data] == ["new"]
    assert (found.doubles, found.all_ok) == (3, False)


def test_a_torn_end_is_told_and_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line("x") + line("y")[:-9])
    ran = here_without_engine(tmp_path, "merge", "a.jsonl", "-o", "-")
    assert statuses(ran.records) == {"x": "ok"}
    assert "1 parts end in a torn line" in ran.err


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (("missing.jsonl",), 4, "missing.jsonl: No such file"),
        (("foreign.jsonl",), 4, "foreign.jsonl line 1 is not a result of batchrun"),
        (("a.jsonl", "-o", "a.jsonl"), 2, "is both a part and the output"),
        (("a.jsonl", "-o", "b.jsonl"), 4, "b.jsonl exists; add --force to replace it"),
        (("a.jsonl", "-o", "no/b.jsonl"), 6, "cannot be written"),
        (("a.jsonl", "--format", "xml"), 2, "--format is 'xml'"),
        (("a.jsonl", "--order", "x"), 2, "--order is 'x'"),
        ((), 2, ""),
    ],
)
def test_what_cannot_be_merged_is_refused(tmp_path: Path, arguments: tuple[str, ...], status: int, words: str) -> None:
    for name in ("a.jsonl", "b.jsonl"):
        (tmp_path / name).write_bytes(line("x"))
    (tmp_path / "foreign.jsonl").write_text('{"prompt":"p"}\n')
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    ran = here_without_engine(tmp_path, "merge", *arguments)
    assert ran.status == status
    assert words in ran.err
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_merge_may_change_the_format(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(line("x") + line("y", Status.INVALID))
    ran = here_without_engine(tmp_path, "merge", "a.jsonl", "--format", "csv", "-o", "out.csv")
    assert ran.status == 3
    assert (tmp_path / "out.csv").read_text().splitlines() == ["id,status,errors,output", "x,ok,,x", "y,invalid,,x"]
    shown = here_without_engine(tmp_path, "merge", "a.jsonl", "--format", "openai").records
    assert [record["response"]["status_code"] for record in shown] == [200, 422]


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from(list(Status)), st.integers(1, 9)), max_size=5),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
def test_every_id_is_there_once_whatever_the_parts_hold(
    tmp_path_factory: pytest.TempPathFactory, parts: list[list[tuple[str, Status, int]]], ordered: bool
) -> None:
    folder = tmp_path_factory.mktemp("merge")
    paths = [folder / str(number) for number in range(len(parts))]
    for path, lines in zip(paths, parts, strict=True):
        path.write_bytes(b"".join(line(*entry) for entry in lines))
    kept = Kept()
    found = merge(paths, kept, ordered=ordered)
    records = [json.loads(data) for data in kept.lines]
    wanted = {job_id for lines in parts for job_id, _, _ in lines}
    assert statuses(records).keys() == wanted
    assert found.statuses.total() == len(wanted)
    for job_id, status in statuses(records).items():
        held = {entry[1] for lines in parts for entry in lines if entry[0] == job_id}
        assert status == "ok" or Status.OK not in held
    if ordered:
        assert [record["index"] for record in records] == sorted(record["index"] for record in records)
