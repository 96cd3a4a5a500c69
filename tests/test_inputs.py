"""What a command can read: several files, packed ones, tables, folders, and streams whose writers are slow."""

import gzip
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from shell import PATIENCE_S, environment, read, start, statuses, write_jobs
from shell import batchrun as piped
from shell import here as batchrun

from batchrun.errors import InputError
from batchrun.line import Line
from batchrun.source import FileSource

JOBS = [{"prompt": f"say {number}", "max_tokens": 400} for number in range(3)]


def write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


# -- several files, packed files


def test_several_files_are_one_input_and_lines_have_ids_of_their_own(tmp_path: Path) -> None:
    write_jobs(tmp_path / "a.jsonl", [JOBS[0], {"id": "named", "prompt": "p"}, ""])
    write(tmp_path / "b.jsonl.gz", gzip.compress(b'{"prompt":"q","max_tokens":400}\n{"id":"named","prompt":"r"}\n'))
    write(tmp_path / "sub" / "c.csv", 'id,prompt,max_tokens\nfrom-csv,"s\nt",400\n')
    run = batchrun(tmp_path, "run", "a.jsonl", "b.jsonl.gz", "sub/c.csv", "-o", "out.jsonl")
    assert run.status == 3
    found = {record["id"]: record for record in read(tmp_path / "out.jsonl") if record["status"] == "ok"}
    assert {job_id: record["index"] for job_id, record in found.items()} == {
        "a.jsonl:1": 1,
        "named": 2,
        "b.jsonl.gz:1": 4,
        "from-csv": 7,
    }
    (twice,) = [record for record in read(tmp_path / "out.jsonl") if record["status"] == "rejected"]
    assert twice["index"] == 5
    assert twice["errors"][0] | {"message": ""} == {
        "code": "duplicate_id",
        "message": "",
        "line": 2,
        "file": "b.jsonl.gz",
    }
    assert "1 blank line skipped" in run.err
    assert (
        "nothing to do; 5 done"
        in batchrun(tmp_path, "run", "a.jsonl", "b.jsonl.gz", "sub/c.csv", "-o", "out.jsonl").err
    )


def test_files_and_a_stream_may_be_mixed(tmp_path: Path) -> None:
    write_jobs(tmp_path / "a.jsonl", [JOBS[0]])
    run = batchrun(tmp_path, "run", "a.jsonl", "-", stdin=json.dumps(JOBS[1]))
    assert statuses(run.records) == {"a.jsonl:1": "ok", "-:1": "ok"}


def test_relative_names_are_looked_up_beside_the_file_that_says_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write(tmp_path / name / "page.txt", f"the page of {name}")
        write_jobs(tmp_path / name / "jobs.jsonl", [{"prompt": "p", "document_file": "page.txt", "max_tokens": 400}])
    run = batchrun(tmp_path, "run", "one/jobs.jsonl", "two/jobs.jsonl", "-o", "-")
    assert len({record["digest"] for record in run.records}) == 2
    assert run.status == 0


def test_a_stream_may_be_packed_or_a_table(tmp_path: Path) -> None:
    data = gzip.compress("".join(json.dumps(job) + "\n" for job in JOBS).encode())
    assert statuses(piped(tmp_path, "run", "-", stdin=data).records).keys() == {"1", "2", "3"}
    table = b"name,text\nx,hello\ny,there\n"
    run = batchrun(
        tmp_path, "run", "-", "--input-format", "csv", "--prompt", "Greet {name}: {text}", "--id-column", "name",
        stdin=table,
    )  # fmt: skip
    assert statuses(run.records) == {"x": "ok", "y": "ok"}


@pytest.mark.parametrize("data", [gzip.compress(b'{"prompt":"p"}\n' * 50)[:-9], b"\x1f\x8b\x08garbage that is no gzip"])
def test_a_torn_packed_file_is_an_error_and_what_was_read_is_kept(tmp_path: Path, data: bytes) -> None:
    write(tmp_path / "jobs.jsonl.gz", data)
    run = batchrun(tmp_path, "run", "jobs.jsonl.gz")
    assert run.status == 4
    assert "could not be read to its end" in run.err
    assert "Traceback" not in run.err
    run = piped(tmp_path, "run", "-", "-o", "out.jsonl", stdin=data)
    assert run.status == 4
    assert "results so far are kept" in run.err


# -- tables and documents


def test_a_table_gives_jobs_and_its_other_columns_come_back(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", "id,text,city\n7,hello,Berlin\n8,there,Rome\nbad\n")
    run = batchrun(tmp_path, "run", "rows.csv", "--prompt", "Summarise: {text}", "--max-tokens", "400")
    assert run.status == 3
    found = {record["id"]: record for record in read(tmp_path / "rows.results.jsonl")}
    assert {job_id: record["status"] for job_id, record in found.items()} == {"7": "ok", "8": "ok", "4": "rejected"}
    assert found["7"]["meta"] == {"city": "Berlin"}
    assert found["4"]["errors"][0]["code"] == "bad_row"


def test_a_column_that_is_not_there_is_refused_before_the_run(tmp_path: Path) -> None:
    write(tmp_path / "rows.tsv", "id\ttext\n1\tx\n")
    for command in ("run", "check"):
        run = batchrun(tmp_path, command, "rows.tsv", "--prompt", "Summarise: {txt}")
        assert run.status == 4
        assert "rows.tsv: its first line has no column 'txt'; did you mean 'text'?" in run.err
    assert not (tmp_path / "rows.results.jsonl").exists()


def test_a_folder_of_documents_is_a_job_each(tmp_path: Path) -> None:
    for name in ("notes/a.md", "notes/deep/b.md", "notes/c.txt"):
        write(tmp_path / name, f"# {name}")
    write(tmp_path / "p.txt", "What is this?")
    arguments = ["--documents", "notes/**/*.md", "--prompt-file", "p.txt", "--max-tokens", "400"]
    assert batchrun(tmp_path, "run", *arguments).status == 0
    assert statuses(read(tmp_path / "notes.results.jsonl")) == {"notes/a.md": "ok", "notes/deep/b.md": "ok"}
    assert "2 jobs: 0 would run, 2 are done" in batchrun(tmp_path, "check", *arguments).out


def test_documents_that_are_none_are_rejected_and_harm_no_neighbour(tmp_path: Path) -> None:
    write(tmp_path / "notes/a.md", "text")
    write(tmp_path / "notes/b.md", b"\xff\xfe")
    (tmp_path / "notes/c.md").symlink_to("/etc/hostname")
    run = batchrun(tmp_path, "run", "--documents", "notes", "--prompt", "p", "--max-tokens", "400", "-o", "-")
    assert statuses(run.records) == {"notes/a.md": "ok", "notes/b.md": "rejected", "notes/c.md": "rejected"}


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        ((), 2, "no JOBS are there; expected job files, - for standard input, or --documents"),
        (("jobs.jsonl", "--documents", "."), 2, "both JOBS and --documents are there"),
        (("--documents", "nowhere"), 4, "--documents nowhere: no such file or folder"),
        (("--documents", "*.none", "--prompt", "p"), 4, "holds no jobs; expected files"),
        (("jobs.jsonl", "missing.jsonl"), 4, "missing.jsonl: No such file or directory"),
        (("jobs.jsonl", "--prompt", "{"), 2, "--prompt: "),
        (("jobs.jsonl", "--prompt-file", "none.txt"), 2, "--prompt-file none.txt: No such file"),
        (("jobs.jsonl", "--prompt-file", "jobs.jsonl", "--prompt", "p"), 2, "both --prompt and --prompt-file"),
        (("jobs.jsonl", "--input-format", "xml"), 2, "input_format 'xml' is unknown"),
        (("jobs.jsonl", "--root", "nowhere"), 2, "--root nowhere is no folder"),
        ((".",), 4, ". is a folder; expected a file of job lines, or --documents . for its files"),
    ],
)
def test_inputs_that_mean_nothing_are_refused(
    tmp_path: Path, arguments: tuple[str, ...], status: int, words: str
) -> None:
    write_jobs(tmp_path / "jobs.jsonl", JOBS)
    run = batchrun(tmp_path, "run", *arguments)
    assert run.status == status
    assert words in run.err
    assert run.err.count("\n") == 1
    assert [entry.name for entry in tmp_path.iterdir()] == ["jobs.jsonl"]


# -- streams


def test_a_job_of_a_slow_writer_joins_the_batch_that_runs(tmp_path: Path) -> None:
    process = start(tmp_path, "run", "-", "--context", "65536")
    assert process.stdin
    assert process.stdout
    try:
        long = {"id": "long", "prompt": "p", "max_tokens": 60_000, "schema": {"type": "string", "minLength": 50_000}}
        process.stdin.write(json.dumps(long).encode() + b"\n")
        for number in range(3):  # each is answered while the long one runs and the end of input is not in sight
            process.stdin.write(f'{{"id":"short-{number}","prompt":"{number}","max_tokens":300}}\n'.encode())
            assert json.loads(process.stdout.readline())["id"] == f"short-{number}"
    finally:
        process.kill()
        process.communicate()


# -- a file that somebody writes to meanwhile


def lines(source: FileSource) -> list[Line]:
    found = []
    while not source.ended:
        line = source.next(0)
        if line:
            found.append(line)
    return found


BLOCK_LINES = 60_000  # more than one block


def test_a_file_that_grows_is_read_as_it_was(tmp_path: Path) -> None:
    path = write(tmp_path / "jobs", b"line %d\n" * BLOCK_LINES)
    source = FileSource(path)
    assert source.next(0)
    with path.open("ab") as file:
        file.write(b"more\n" * 1000)
    assert len(lines(source)) == BLOCK_LINES - 1


@pytest.mark.parametrize("how", ["in its head", "to nothing", "all over"])
def test_a_file_that_is_rewritten_under_the_run_is_an_error(tmp_path: Path, how: str) -> None:
    path = write(tmp_path / "jobs", b"a line\n" * BLOCK_LINES)
    source = FileSource(path)
    assert source.next(0)
    time.sleep(0.02)  # file systems count time in ticks
    if how == "to nothing":
        os.truncate(path, 0)
    else:
        with path.open("r+b") as file:
            file.write(b"b line\n" * (1 if how == "in its head" else BLOCK_LINES))
    with pytest.raises(InputError, match="was rewritten while the run read it; results so far are kept"):
        lines(source)


def test_a_file_that_another_takes_the_place_of_is_read_to_its_end(tmp_path: Path) -> None:
    path = write(tmp_path / "jobs", b"a line\n" * BLOCK_LINES)
    source = FileSource(path)
    assert source.next(0)
    os.replace(write(tmp_path / "new", b"b line\n"), path)
    assert {line.data for line in lines(source)} == {b"a line"}


REWRITE = """
import subprocess, sys, time
process = subprocess.Popen([sys.executable, "-m", "batchrun", "run", "jobs.jsonl", "--engine", "fake"])
while process.poll() is None:
    try:
        if open("jobs.results.jsonl").read(1):
            break
    except FileNotFoundError:
        time.sleep(0.001)
data = open("jobs.jsonl").read()
open("jobs.jsonl", "r+").write(data.replace("say", "SAY"))
sys.exit(process.wait())
"""


def test_a_job_file_rewritten_in_place_ends_the_run_with_4_and_a_rerun_completes(tmp_path: Path) -> None:
    jobs = [{"id": f"job-{number}", "prompt": f"say {number}", "max_tokens": 400} for number in range(15_000)]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    ran = subprocess.run(
        [sys.executable, "-c", REWRITE],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=PATIENCE_S,
        check=False,
    )
    assert ran.returncode == 4
    assert b"was rewritten while the run read it" in ran.stderr
    kept = len(read(tmp_path / "jobs.results.jsonl"))
    assert 0 < kept < len(jobs)
