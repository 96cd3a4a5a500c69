"""Runs batchrun as a user would, in a folder of its own: as a process, or, where that is not the point, in this one."""

import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest

from batchrun import cli

COMMAND = [sys.executable, "-m", "batchrun"]
PATIENCE_S = 60.0
"""How long anything is waited for; a test that waits so long has failed."""


class Ran(NamedTuple):
    """How a command ended, and what it said."""

    status: int
    out: str
    err: str

    @property
    def records(self) -> list[dict[str, Any]]:
        """Standard output as lines of JSON: all of it must be."""
        return records(self.out)


def environment(**variables: str) -> dict[str, str]:
    """The tests' own environment less settings, with `batchrun` on the path."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BATCHRUN_")}
    return kept | {"PATH": f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"} | variables


def batchrun(
    folder: Path, *arguments: str | Path, stdin: str | bytes = b"", engine: str = "fake", **variables: str
) -> Ran:
    """Runs a command to its end."""
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    command = [*COMMAND, *map(str, arguments), "--engine", engine]
    run = subprocess.run(
        command,
        cwd=folder,
        input=data,
        capture_output=True,
        env=environment(**variables),
        timeout=PATIENCE_S,
        check=False,
    )
    return Ran(run.returncode, run.stdout.decode(), run.stderr.decode())


def here(folder: Path, *arguments: str | Path, stdin: str | bytes = b"", engine: str = "fake", **variables: str) -> Ran:
    """The same in this very process: for what a command does, where no other process, signal or terminal is the point.

    It takes a twentieth of the time.
    """
    data = stdin if isinstance(stdin, bytes) else stdin.encode()
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.TextIOWrapper(io.BytesIO(), "utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BATCHRUN_")}
    with (
        contextlib.chdir(folder),
        mock.patch.object(sys, "argv", ["batchrun", *map(str, arguments), *(["--engine", engine] if engine else [])]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), "utf-8")),
        mock.patch.object(sys, "stdout", out),
        mock.patch.object(sys, "stderr", err),
        mock.patch.dict(os.environ, kept | variables, clear=True),
        warnings.catch_warnings(),
        pytest.raises(SystemExit) as ended,
    ):
        cli.main()
    texts = []
    for stream in (out, err):
        stream.flush()
        texts.append(stream.buffer.getvalue().decode())  # type: ignore[attr-defined]
    return Ran(int(ended.value.code or 0), *texts)


def start(folder: Path, *arguments: str | Path, engine: str = "fake", **variables: str) -> "subprocess.Popen[bytes]":
    """Starts a command whose three streams are pipes without a buffer here."""
    command = [*COMMAND, *map(str, arguments), "--engine", engine]
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0, env=environment(**variables)
    )


def records(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.split("\n")[:-1]]


def read(path: Path) -> list[dict[str, Any]]:
    """The records of a file of lines, each of which must be whole."""
    text = path.read_bytes().decode()
    assert not text or text.endswith("\n")
    return records(text)


def statuses(found: Iterable[dict[str, Any]]) -> dict[str, str]:
    """Status by id; no id may come twice."""
    pairs = [(record["id"], record["status"]) for record in found]
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def write_jobs(path: Path, jobs: Iterable[dict[str, Any] | str | bytes]) -> Path:
    """A job file.  Text and bytes are written as they are."""
    lines = [json.dumps(job, ensure_ascii=False) if isinstance(job, dict) else job for job in jobs]
    path.write_bytes(b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines))
    return path
