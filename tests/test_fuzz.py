"""Whatever stands in files from strangers: never a traceback, never a lost neighbour."""

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from fuzz_targets import TARGETS
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import environment, here, read, statuses

TARGETS_FILE = Path(__file__).with_name("fuzz_targets.py")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
NAMES = """
id prompt messages document document_file schema system max_tokens temperature stop seed meta timeout_s group keep
custom_id body text
"""
KEYS = st.sampled_from(NAMES.split())
LINES = st.dictionaries(KEYS, JSON, max_size=5).map(lambda record: json.dumps(record, ensure_ascii=False).encode())
CUT = st.tuples(LINES, st.integers(0, 40), st.binary(max_size=3)).map(lambda cut: cut[0][: cut[1]] + cut[2])
TEXT = st.text(alphabet='a",;\n\r\t=[]{}é\ufeff\0', max_size=30).map(str.encode)


@pytest.mark.parametrize("name", TARGETS)
@given(data=st.one_of(LINES, CUT, TEXT, st.binary(max_size=60)))
def test_a_target_takes_any_bytes(name: str, data: bytes) -> None:
    TARGETS[name](data)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", TARGETS)
def test_a_target_takes_what_atheris_finds(tmp_path: Path, name: str) -> None:
    command = [sys.executable, str(TARGETS_FILE), name, "-max_total_time=25", "-max_len=300"]
    run = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr[-3000:]


# -- whole commands

GOOD = {"prompt": "p", "max_tokens": 300}


def good(number: int) -> dict[str, Any]:
    return GOOD | {"id": f"good-{number}", "prompt": f"p{number}"}


@settings(max_examples=60)
@given(st.lists(st.one_of(LINES, CUT, st.binary(max_size=20)).map(lambda data: data.replace(b"\n", b"")), max_size=6))
def test_good_jobs_among_any_lines_are_answered(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    data = [json.dumps(good(0)).encode()]
    for number, line in enumerate(lines, 1):
        data += [line, json.dumps(good(number)).encode()]
    (folder / "jobs.jsonl").write_bytes(b"\n".join(data))
    run = here(folder, "run", "jobs.jsonl", "--max-tokens", "20")
    assert run.status in (0, 3)
    found = read(folder / "jobs.results.jsonl")
    assert len(found) == sum(bool(line.strip()) for line in data)
    assert {record["index"] for record in found} == {n for n, line in enumerate(data, 1) if line.strip()}
    answered = {record["id"]: record["status"] for record in found if record["id"].startswith("good-")}
    assert answered == {f"good-{number}": "ok" for number in range(len(lines) + 1)}
    again = here(folder, "run", "jobs.jsonl", "--max-tokens", "20")
    assert "done before" in again.err
    assert len(read(folder / "jobs.results.jsonl")) == len(found)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 2000), st.binary(max_size=4)), max_size=3), st.integers(0, 2000))
def test_a_results_file_in_any_state_is_refused_or_completed(
    tmp_path_factory: pytest.TempPathFactory, changes: list[tuple[int, bytes]], cut: int
) -> None:
    folder = tmp_path_factory.mktemp("torn")
    jobs = [good(number) for number in range(4)]
    (folder / "jobs.jsonl").write_text("".join(json.dumps(job) + "\n" for job in jobs))
    here(folder, "run", "jobs.jsonl")
    results = folder / "jobs.results.jsonl"
    data = results.read_bytes()[: cut or None]
    for place, piece in changes:
        data = data[:place] + piece + data[place + len(piece) :]
    results.write_bytes(data)
    run = here(folder, "run", "jobs.jsonl")
    if run.status == 4:
        assert "is not a result of batchrun" in run.err
        assert results.read_bytes() == data
        return
    assert run.status in (0, 3)
    found = [record for record in read(results) if record["id"].startswith("good-")]
    assert statuses(found).keys() >= {job["id"] for job in jobs} or data != results.read_bytes()
    assert {job["id"] for job in jobs} <= {record["id"] for record in found}


@settings(max_examples=40)
@given(st.one_of(TEXT, st.binary(max_size=40)))
def test_a_settings_file_of_any_bytes_is_taken_or_refused(
    tmp_path_factory: pytest.TempPathFactory, data: bytes
) -> None:
    folder = tmp_path_factory.mktemp("toml")
    (folder / "batchrun.toml").write_bytes(data)
    run = here(folder, "run", "-", stdin=json.dumps(GOOD))
    assert run.status in (0, 2)
    assert run.err.count("\n") == 1 or run.status == 0
