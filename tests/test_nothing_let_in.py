"""What strangers write into job files, documents, schemas and models stays what it is: data."""

import contextlib
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from shell import batchrun, environment, here, read, write_jobs

from batchrun.backends.chat_template import JinjaTemplate
from batchrun.backends.probe import probe
from batchrun.confinement import Outside, read_below, resolved_below
from batchrun.core import Message
from batchrun.errors import JobError, ModelError
from batchrun.models import identity, locate
from batchrun.printable import printable, printable_lines

SHORT = {"max_tokens": 400}


def codes(folder: Path, *arguments: str) -> dict[str, str]:
    """The code of each rejection, by id; `ok` for what ran."""
    records = here(folder, "run", "in/jobs.jsonl", "-o", "-", *arguments).records
    return {record["id"]: record["errors"][0]["code"] if record["errors"] else "ok" for record in records}


# -- files that lines name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of jobs beside one that is none of their business."""
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "in" / "page.txt").write_text("mine")
    (tmp_path / "in" / "sub" / "page.txt").write_text("mine too")
    (tmp_path / "out" / "secret.txt").write_text("secret")
    (tmp_path / "out" / "secret.json").write_text('{"enum": ["secret"]}')
    (tmp_path / "in" / "link.txt").symlink_to("../out/secret.txt")
    (tmp_path / "in" / "links").symlink_to("../out")
    (tmp_path / "in" / "inside.txt").symlink_to("sub/page.txt")
    (tmp_path / "in" / "good.json").write_text('{"enum": ["good"]}')
    (tmp_path / "in" / "bad.json").symlink_to("../out/secret.json")
    return tmp_path


OUTSIDE = {
    "dots": "../out/secret.txt",
    "deeper": "sub/../../out/secret.txt",
    "link": "link.txt",
    "folder": "links/secret.txt",
    "passwd": "/etc/passwd",
    "proc": "/proc/self/environ",
}


def test_documents_lie_below_the_folder_of_the_job_file_or_the_root(folder: Path) -> None:
    inside = {"plain": "page.txt", "sub": "./sub/page.txt", "dots-inside": "sub/../page.txt", "inside": "inside.txt"}
    inside["absolute"] = str(folder / "in" / "page.txt")
    names = inside | OUTSIDE
    jobs = [{"id": key, "prompt": key, "document_file": name} | SHORT for key, name in names.items()]
    write_jobs(folder / "in" / "jobs.jsonl", jobs)
    assert codes(folder) == dict.fromkeys(inside, "ok") | dict.fromkeys(OUTSIDE, "document_unreadable")
    rooted = codes(folder, "--root", ".")
    assert {key for key, code in rooted.items() if code != "ok"} == {"passwd", "proc"}


def test_schemas_lie_there_too_unless_the_user_names_them(folder: Path) -> None:
    names = {"plain": "good.json", "link": "bad.json", "dots": "../out/secret.json", "absolute": "/etc/hostname.json"}
    jobs = [{"id": key, "prompt": key, "schema": name} | SHORT for key, name in names.items()]
    write_jobs(folder / "in" / "jobs.jsonl", jobs)
    assert codes(folder) == {
        "plain": "ok",
        "link": "schema_unreadable",
        "dots": "schema_unreadable",
        "absolute": "schema_unknown",
    }
    write_jobs(folder / "in" / "jobs.jsonl", [{"id": "users-own", "prompt": "p"} | SHORT])
    assert codes(folder, "--schema", "out/secret.json") == {"users-own": "ok"}


def test_a_link_that_is_put_there_at_the_last_moment_is_not_followed(folder: Path) -> None:
    with pytest.raises(Outside):
        resolved_below(folder / "in" / "link.txt", folder / "in")
    place = resolved_below(folder / "in" / "page.txt", folder / "in")
    place.unlink()
    place.symlink_to(folder / "out" / "secret.txt")
    with pytest.raises(JobError, match="lies outside"):
        read_below("page.txt", folder / "in", folder / "in", 100, "code", "document_file")


def test_a_root_does_not_hold_what_only_begins_like_it(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "inner.txt").touch()
    with pytest.raises(Outside):
        resolved_below(tmp_path / "inner.txt", tmp_path / "in")
    assert resolved_below(tmp_path / "inner.txt", Path("/")) == tmp_path / "inner.txt"


# -- sizes


def test_lines_documents_and_schemas_are_bounded(folder: Path) -> None:
    (folder / "in" / "big.txt").write_text("x" * 3000)
    (folder / "in" / "big.json").write_text('{"enum": ["' + "x" * (5 << 20) + '"]}')
    jobs = [
        {"id": "good", "prompt": "p"} | SHORT,
        {"id": "document", "prompt": "p", "document_file": "big.txt"},
        {"id": "schema", "prompt": "p", "schema": "big.json"},
        {"id": "line", "prompt": "x" * 3000},
        {"id": "last", "prompt": "p"} | SHORT,
    ]
    write_jobs(folder / "in" / "jobs.jsonl", jobs)
    assert codes(folder, "--line-bytes", "2000") == {
        "good": "ok",
        "document": "document_unreadable",
        "schema": "schema_invalid",
        "4": "line_too_long",
        "last": "ok",
    }


def test_an_inline_schema_is_bounded_in_size_depth_and_time(folder: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(60):
        deep = {"properties": {"a": deep}}
    slow = {"type": "string", "pattern": "^(a+)+$", "minLength": 30, "maxLength": 40}
    jobs = [
        {"id": "big", "prompt": "p", "schema": {"enum": ["x" * (5 << 20)]}},
        {"id": "deep", "prompt": "p", "schema": deep},
        {"id": "slow", "prompt": "p", "schema": slow} | SHORT,
        {"id": "remote", "prompt": "p", "schema": {"$ref": "https://example.org/schema.json"}},
        {"id": "file", "prompt": "p", "schema": {"$ref": "file:///etc/passwd"}},
        {"id": "good", "prompt": "p"} | SHORT,
    ]
    write_jobs(folder / "in" / "jobs.jsonl", jobs)
    found = codes(folder)
    assert found.keys() == {"big", "2", "slow", "remote", "file", "good"}
    assert (found["big"], found["2"], found["good"]) == ("schema_invalid", "bad_json", "ok")
    assert found["remote"] == found["file"] == "schema_invalid"


# -- the network

NO_NETWORK = """
import sys

def no_network(event, arguments):
    if event.startswith("socket.") and event not in ("socket.__new__", "socket.gethostname"):
        sys.stderr.write(f"NETWORK {event} {arguments}\\n")

sys.addaudithook(no_network)
"""


@pytest.mark.parametrize("engine", ["fake", "auto"])
def test_no_run_asks_for_the_network(tmp_path: Path, engine: str) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(NO_NETWORK)
    jobs = [
        {"prompt": "Say hi.", "max_tokens": 4},
        {"prompt": "p", "schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "boolean"}},
        {"prompt": "p", "schema": {"$ref": "https://example.org/schema.json"}},
        {"prompt": "p", "document": "https://example.org/page", "max_tokens": 4},
    ]
    write_jobs(tmp_path / "jobs.jsonl", jobs)
    paths = os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", "")])
    ran = batchrun(tmp_path, "run", "jobs.jsonl", engine=engine, PYTHONPATH=paths, HF_HUB_OFFLINE="1")
    assert ran.status == 3
    assert len(read(tmp_path / "jobs.results.jsonl")) == 4
    talk = [line for line in ran.err.splitlines() if line.startswith("NETWORK") and "AF_UNIX" not in line]
    assert not talk


def test_the_hook_would_hear_the_network(tmp_path: Path) -> None:
    code = NO_NETWORK + "import socket\ntry: socket.create_connection(('127.0.0.1', 9))\nexcept OSError: pass"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "NETWORK socket." in ran.stderr


# -- the terminal

ESCAPES = "\x1b]0;owned\x07\x1b[31m\x9b2J\x7f\u202e\u2066\r\n\u2028"


def test_nothing_that_a_terminal_obeys_reaches_it_raw(tmp_path: Path) -> None:
    jobs = [
        {"id": f"a{ESCAPES}", "prompt": ESCAPES, "document": ESCAPES, "meta": {ESCAPES: ESCAPES}} | SHORT,
        {"id": f"b{ESCAPES}", "prompt": "p", ESCAPES: 1},
        {"id": f"c{ESCAPES}", "prompt": "p", "schema": ESCAPES},
        {"id": f"d{ESCAPES}", "prompt": "p", "document_file": ESCAPES},
    ]
    write_jobs(tmp_path / f"jobs{ESCAPES[:6]}.jsonl", jobs)
    for arguments in (("run", "-o", "-"), ("run", "-o", "-", "--format", "openai"), ("check",), ("check", "--json")):
        ran = here(tmp_path, arguments[0], f"jobs{ESCAPES[:6]}.jsonl", *arguments[1:])
        for text in (ran.out, ran.err):
            assert all(char.isprintable() or char == "\n" for char in text), arguments
    missing = here(tmp_path, "run", f"no{ESCAPES}.jsonl")
    assert missing.status == 4
    assert missing.err.rstrip("\n").isprintable()


def test_printable_text_is_left_as_it_is() -> None:
    assert printable("é🎈 x") == "é🎈 x"
    assert printable("a\x1b\n\u202e") == r"a\x1b\n\u202e"
    assert printable_lines("a\tb\n\x1bc\n") == "a\tb\n\\x1bc\n"


# -- models and their templates


@pytest.mark.parametrize(
    "text",
    [
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.__init__.__globals__ }}",
        "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
        "{% for a in range(10**9) %}x{% endfor %}",
        "{% for a in range(9999) %}{% for b in range(9999) %}{% if a == b + 9999 %}{% endif %}{% endfor %}{% endfor %}",
        "{{ 'x' * 10**8 }}",
        "{{ 1 / 0 }}",
        "{{ messages[99].content }}",
        "{{ raise_exception('no') }}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    ],
)
def test_a_template_that_means_harm_is_an_error_of_its_job(text: str) -> None:
    with pytest.raises(JobError, match="the model's chat template refuses this job"):
        JinjaTemplate(text, "", "").render([Message("user", "hi")])


def test_a_damaged_model_is_an_error_whatever_it_does_to_its_reader(tmp_path: Path) -> None:
    data = bytearray(locate("smollm2").read_bytes()[: 2 << 20])
    damage = random.Random(1)
    for number in range(4):
        bad = bytearray(data)
        for _ in range(10):
            bad[damage.randrange(1 << 20)] ^= 1 << damage.randrange(8)
        path = tmp_path / f"{number}.gguf"
        path.write_bytes(bad)
        with contextlib.suppress(ModelError):
            probe(path, identity(path), tmp_path / "opened")
        ran = batchrun(tmp_path, "check", "-", "--model", str(path), stdin='{"prompt":"p"}', engine="auto")
        assert ran.status in (0, 5), ran
        assert "Traceback" not in ran.err


ABORTING = """
import os
from batchrun.backends import llamacpp_model

class LlamaModel:
    def __init__(self, *arguments): os.abort()

llamacpp_model.LlamaModel = LlamaModel
"""


def test_a_model_that_kills_its_reader_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "hook").mkdir()
    (tmp_path / "hook" / "sitecustomize.py").write_text(ABORTING)
    paths = os.pathsep.join([str(tmp_path / "hook"), os.environ.get("PYTHONPATH", "")])
    cache = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    ran = batchrun(tmp_path, "check", "-", stdin='{"prompt":"p"}', engine="auto", **cache)
    assert ran.status == 5
    assert "makes llama.cpp end by SIGABRT; expected a sound GGUF file" in ran.err
    assert ran.err.count("\n") == 1


# -- files that are made


@pytest.mark.parametrize("mask", [0o022, 0o077])
def test_files_have_the_users_umask(tmp_path: Path, mask: int) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"id": "a", "prompt": "p"} | SHORT, {"id": "b", "prompt": ""}])
    command = f"umask {mask:o}; batchrun run jobs.jsonl --engine fake --order input"
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, check=False)
    names = {"jobs.results.jsonl", "jobs.results.journal.jsonl", "jobs.results.stats.jsonl"}
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir() if path.name in names}
    assert modes == dict.fromkeys(names, 0o666 & ~mask)


def test_a_results_file_keeps_its_mode_when_it_is_tidied_up(tmp_path: Path) -> None:
    write_jobs(tmp_path / "jobs.jsonl", [{"id": "a", "prompt": "p"} | SHORT])
    here(tmp_path, "run", "jobs.jsonl")
    (tmp_path / "jobs.results.jsonl").chmod(0o640)
    here(tmp_path, "run", "jobs.jsonl", "--max-tokens", "1", "--temperature", "1", "--seed", "9")
    assert (tmp_path / "jobs.results.jsonl").stat().st_mode & 0o777 == 0o640
    assert json.loads((tmp_path / "jobs.results.replaced.jsonl").read_text())["id"] == "a"
