"""How results come out: in which order, in which dialect, and how a run to standard output is resumed."""

import csv
import io
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shell import Ran, environment, read, records, start, statuses, write_jobs
from shell import here as batchrun

from batchrun.core import Result, Status, Usage
from batchrun.csv_table import MOST_COLUMNS, header
from batchrun.outlet import ViewFile
from batchrun.sink import MOST_HELD, Relay

SCHEMA = {"type": "object", "properties": {"kind": {"enum": ["a", "b"]}, "n": {"type": "integer", "maximum": 99}}}
SCHEMA |= {"required": ["kind", "n"], "additionalProperties": False}
GUIDED = {"schema": SCHEMA, "max_tokens": 200}


def jobs(count: int) -> list[dict[str, object]]:
    """Jobs that do not end in the order in which they begin."""
    return [{"id": f"job-{n}", "prompt": f"say {n}", "max_tokens": 300 if n % 3 else 5} for n in range(count)]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_jobs(tmp_path / "jobs.jsonl", [*jobs(40), "broken"])
    return tmp_path


def run(folder: Path, *arguments: str) -> Ran:
    return batchrun(folder, "run", "jobs.jsonl", *arguments)


def indices(text: str) -> list[int]:
    return [record["index"] for record in records(text)]


# -- order


def test_results_come_as_they_are_done_or_in_the_order_of_the_input(folder: Path) -> None:
    done, ordered = run(folder, "-o", "-"), run(folder, "-o", "-", "--order", "input")
    assert indices(ordered.out) == list(range(1, 42))
    assert indices(done.out) != list(range(1, 42))
    assert sorted(indices(done.out)) == list(range(1, 42))


def test_an_ordered_file_has_a_journal_beside_it_that_is_written_at_once(folder: Path) -> None:
    process = start(folder, "run", "-", "-o", "out.jsonl", "--order", "input", "--context", "65536")
    assert process.stdin
    try:
        long = {"id": "long", "prompt": "p", "max_tokens": 60_000, "schema": {"type": "string", "minLength": 50_000}}
        process.stdin.write(json.dumps(long).encode() + b'\n{"id":"short","prompt":"p","max_tokens":300}\n')
        journal = folder / "out.journal.jsonl"
        while not journal.exists() or not journal.stat().st_size:
            assert process.poll() is None
            time.sleep(0.01)
        assert not (folder / "out.jsonl").exists(), "the output appears when it is whole"
    finally:
        process.kill()
        process.communicate()
    assert statuses(read(journal)) == {"short": "ok"}


def test_an_ordered_file_is_the_same_after_a_resume(folder: Path) -> None:
    run(folder, "--limit", "15", "-o", "out.jsonl", "--order", "input")
    assert [record["index"] for record in read(folder / "out.jsonl")] == list(range(1, 16)), "what there is so far"
    ran = run(folder, "-o", "out.jsonl", "--order", "input")
    assert "; 15 done before -> out.jsonl" in ran.err
    assert [record["index"] for record in read(folder / "out.jsonl")] == list(range(1, 42))
    assert sorted(entry.name for entry in folder.iterdir()) == [
        "jobs.jsonl",
        "out.journal.jsonl",
        "out.jsonl",
        "out.stats.jsonl",
    ]


def test_a_run_over_a_part_brings_the_whole_output_up_to_date(folder: Path) -> None:
    run(folder, "-o", "out.jsonl", "--order", "input")
    first = read(folder / "out.jsonl")
    run(folder, "-o", "out.jsonl", "--order", "input", "--only", first[7]["id"], "--where", "status=ok")
    again = read(folder / "out.jsonl")
    assert [record["id"] for record in again] == [record["id"] for record in first]
    assert [a["id"] for a, b in zip(again, first, strict=True) if a["ended_at"] != b["ended_at"]] == [first[7]["id"]]


def test_an_output_that_no_journal_explains_is_not_replaced(folder: Path) -> None:
    (folder / "out.csv").write_text("mine\n")
    ran = run(folder, "-o", "out.csv", "--format", "csv")
    assert ran.status == 4
    assert "out.csv exists, and out.csv.journal.jsonl does not, so it is not known to be ours" in ran.err
    assert (folder / "out.csv").read_text() == "mine\n"


class Lines:
    """An outlet that keeps what it gets."""

    def __init__(self) -> None:
        self.indices: list[int] = []

    def write(self, line: bytes) -> None:
        self.indices.append(json.loads(line)["index"])

    def close(self, complete: bool) -> None:
        pass

    def abandon(self) -> None:
        pass


def result(index: int) -> Result:
    return Result(str(index), index, Status.OK, "x", None, (), Usage(), None, 1, 1, "m", f"{index:064}", None)


def test_results_that_wait_for_one_are_few() -> None:
    outlet = Lines()
    relay = Relay(None, outlet, ordered=True)
    for index in range(1, MOST_HELD + 1):
        assert not relay.full
        relay.begin(index)
        if index > 1:
            relay.append(result(index))
    assert relay.full
    assert outlet.indices == []
    relay.append(result(1))
    assert not relay.full
    assert outlet.indices == list(range(1, MOST_HELD + 1))


def test_what_waits_at_the_end_is_handed_on_in_order() -> None:
    outlet = Lines()
    relay = Relay(None, outlet, ordered=True)
    for index in (1, 2, 3, 4):
        relay.begin(index)
    for index in (4, 2):
        relay.append(result(index))
    relay.close()
    assert outlet.indices == [2, 4]


# -- tables


def table(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_a_table_has_a_column_for_each_key(tmp_path: Path) -> None:
    lines = [
        {"id": "a", "prompt": "p", "meta": {"page": 3, "id": "x"}} | GUIDED,
        {"id": "b", "prompt": "free", "max_tokens": 400},
        {"id": "c", "prompt": ""},
    ]
    write_jobs(tmp_path / "jobs.jsonl", lines)
    ran = run(tmp_path, "--format", "csv", "--order", "input")
    assert ran.status == 3
    rows = table((tmp_path / "jobs.results.csv").read_text())
    assert list(rows[0]) == ["id", "status", "errors", "kind", "n", "output", "page", "meta.id"]
    assert rows[0]["kind"] in ("a", "b")
    assert (rows[0]["output"], rows[0]["page"], rows[0]["meta.id"]) == ("", "3", "x")
    assert (rows[1]["kind"], bool(rows[1]["output"])) == ("", True)
    assert rows[2]["errors"] == 'prompt is ""; expected a non-empty string'
    assert table(run(tmp_path, "--format", "csv", "-o", "-", "--order", "input").out) == rows


def test_answers_with_too_many_keys_are_no_columns() -> None:
    line = {"id": "a", "status": "ok", "output": {str(n): n for n in range(MOST_COLUMNS + 1)}, "errors": [], "meta": 1}
    lines = [json.dumps(line).encode() + b"\n"]
    first, second = csv.reader(io.StringIO(b"".join(header(lines).rows(lines)).decode()))
    assert first == ["id", "status", "errors", "output", "meta"]
    assert json.loads(second[3]) == line["output"]


def test_a_table_on_a_terminal_shows_no_escapes(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"id": "\x1b[31mred\x9b", "prompt": "p", "meta": {"\x1b]0;x\x07": "\u202e"}}])
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "batchrun", "run", "jobs.jsonl", "--engine", "fake", "-o", "-", "--format", "csv"]
    subprocess.run(command, cwd=tmp_path, env=environment(), stdout=theirs, stderr=subprocess.DEVNULL, check=False)
    shown = os.read(ours, 1 << 16).decode()
    os.close(ours)
    os.close(theirs)
    assert all(char.isprintable() or char in "\r\n" for char in shown)
    assert r"\x1b[31mred\x9b" in shown


# -- standard output that can be resumed


def test_a_state_folder_makes_a_run_to_standard_output_resumable(folder: Path) -> None:
    data = (folder / "jobs.jsonl").read_bytes()
    first = batchrun(folder, "run", "-", "--state", "state", stdin=b"".join(data.splitlines(keepends=True)[:10]))
    assert len(first.records) == 10
    second = batchrun(folder, "run", "-", "--state", "state", stdin=data)
    assert "; 10 done before -> standard output" in second.err
    assert len(statuses(second.records)) == 41, "all of them, so the command may be pasted again"
    kept = {record["id"]: record for record in first.records}
    assert all(kept.get(record["id"], record) == record for record in second.records)
    assert sorted(entry.name for entry in (folder / "state").iterdir()) == ["results.jsonl", "results.stats.jsonl"]


def test_a_stopped_run_with_a_state_folder_says_how_to_go_on(folder: Path) -> None:
    process = start(folder, "run", "-", "--state", "state")
    assert process.stdin
    assert process.stdout
    assert process.stderr
    process.stdin.write(b'{"id":"a","prompt":"p"}\n')
    assert process.stdout.readline()
    process.send_signal(2)
    process.stdout.read()
    assert b"stopped early; resume with: batchrun run - --state state" in process.stderr.read()
    assert process.wait() == 130
    process.communicate()


def test_a_state_folder_that_cannot_be_made_ends_with_6(folder: Path) -> None:
    ran = batchrun(folder, "run", "-", "--state", "jobs.jsonl/x", stdin=b'{"prompt":"p"}')
    assert ran.status == 6
    assert "--state jobs.jsonl/x cannot be made" in ran.err


@pytest.mark.parametrize("arguments", ["", "--order input", "--format openai", "--format csv", "--state s"])
def test_a_reader_that_leaves_ends_the_run_quietly(tmp_path: Path, arguments: str) -> None:
    write_jobs(tmp_path / "jobs.jsonl", jobs(1500))
    line = f"batchrun run jobs.jsonl -o - --engine fake {arguments} 2>err | head -1 >out; echo ${{PIPESTATUS[0]}}"
    ran = subprocess.run(["bash", "-c", line], cwd=tmp_path, env=environment(), capture_output=True, check=True)
    assert ran.stdout == b"141\n"
    assert (tmp_path / "out").read_bytes().count(b"\n") == 1
    said = (tmp_path / "err").read_text()
    assert "Traceback" not in said
    assert "Broken" not in said


def test_a_view_that_is_not_complete_leaves_nothing_behind(tmp_path: Path) -> None:
    view = ViewFile(tmp_path / "out.csv", bytes, table=True)
    view.write(b'{"id":"a","status":"ok","output":1,"errors":[],"meta":null}\n')
    view.close(complete=False)
    assert list(tmp_path.iterdir()) == []


def test_a_part_of_the_input_with_nothing_in_it_is_no_error(folder: Path) -> None:
    ran = run(folder, "-o", "out.csv", "--format", "csv", "--only", "nobody")
    assert (ran.status, (folder / "out.csv").exists()) == (0, False)


def test_an_empty_stream_leaves_the_output_as_it_was(folder: Path) -> None:
    run(folder, "-o", "out.csv", "--format", "csv")
    before = (folder / "out.csv").read_text()
    assert batchrun(folder, "run", "-", "-o", "out.csv", "--format", "csv", "--prune", stdin="").status == 4
    assert (folder / "out.csv").read_text() == before


def test_an_output_is_never_its_input(folder: Path) -> None:
    before = (folder / "jobs.jsonl").read_bytes()
    ran = run(folder, "-o", "jobs.jsonl", "--fresh", "--force")
    assert ran.status == 2
    assert "jobs.jsonl would be read and written" in ran.err
    assert (folder / "jobs.jsonl").read_bytes() == before


def test_a_run_over_a_folder_does_not_read_its_own_results(tmp_path: Path) -> None:
    (tmp_path / "a.md").write_text("text")
    arguments = ("run", "--documents", ".", "--prompt", "Sum it up.", "--max-tokens", "8", "--context", "4096")
    for _ in range(2):
        batchrun(tmp_path, *arguments)
        (results,) = tmp_path.glob("*.results.jsonl")
        assert statuses(read(results)).keys() == {"a.md"}
