"""What is fuzzed: bytes in, and nothing but the errors that a user may see out.

By itself it is a program for atheris (`pip install atheris`), which looks for new paths through the code:
`python tests/fuzz_targets.py lines -max_total_time=60`, with another target's name in place of `lines`.
"""

import contextlib
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from batchrun.batch_api import CHAT
from batchrun.config import resolve
from batchrun.core import Defaults, Job, Rejection, Result, Status, Usage
from batchrun.errors import BatchrunError, InputError
from batchrun.jobs import JobReader
from batchrun.journal import Journal
from batchrun.line import Line, Origin
from batchrun.lines import LineReader
from batchrun.results import as_line, reject
from batchrun.schema_folders import SchemaFolders
from batchrun.tables import TableReader
from batchrun.templates import Layout, Template

GOOD = b'{"id":"good","prompt":"p"}'


def _reader(layout: Layout | None = None) -> JobReader:
    return JobReader(Defaults(), SchemaFolders([], []), Path("/nowhere"), layout=layout)


def _written(found: Job | Rejection) -> None:
    """What was read can be written: a rejection as a result, and a job's id and meta."""
    if isinstance(found, Rejection):
        assert json.loads(as_line(reject(found, "m")))["id"] == found.id
    else:
        result = Result(found.id, 1, Status.OK, None, None, (), Usage(), None, 1, 1, "m", "d", found.meta)
        assert json.loads(as_line(result))["id"] == found.id


def lines(data: bytes) -> None:
    """A job file: every line is a job or a rejection, and a good one behind it is found."""
    reader = _reader()
    found = [reader.read_line(line) for line in LineReader([data, b"\n", GOOD], most_bytes=200)]
    for item in found:
        _written(item)
    assert isinstance(found[-1], Job) or found[-1].problem.code == "duplicate_id"


def records(data: bytes) -> None:
    """One line of columns, from which a prompt is made."""
    layout = Layout(Template("{text}", "p"), Template("{a}{b}", "d"), "key")
    _written(_reader(layout).read_line(Line(1, data, Origin(is_table=True))))


def batch_lines(data: bytes) -> None:
    """The body of a batch line."""
    line = b'{"custom_id":"x","method":"POST","url":"' + CHAT.encode() + b'","body":' + data + b"}"
    _written(_reader().read(line, 1))


def tables(data: bytes) -> None:
    """A table behind its header: every row is a record or a problem."""
    reader = _reader(Layout(Template("{a}", "p")))
    for line in TableReader([b"a,b,id\n", data, b"\nlast,row,good\n"], most_bytes=200):
        assert line.problem or json.loads(line.data).keys() == {"a", "b", "id"}
        _written(reader.read_line(line))


def headers(data: bytes) -> None:
    """A table from its first byte."""
    with contextlib.suppress(InputError):
        list(TableReader([data], most_bytes=200))


def toml(data: bytes) -> None:
    """A settings file."""
    with tempfile.NamedTemporaryFile() as file:
        file.write(data)
        file.flush()
        with contextlib.suppress(BatchrunError):
            resolve({}, {}, Path(file.name))


def journals(data: bytes) -> None:
    """A results file in any state: refused and left as it is, or completed."""
    result = Result("good", 1, Status.OK, "x", None, (), Usage(), None, 1, 1, "m", "d" * 64, None)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "out.jsonl")
        path.write_bytes(as_line(result) + data)
        try:
            with Journal(path) as journal:
                if journal.claim("good", "d" * 64) is None:
                    journal.append(result)
                journal.complete = True
        except InputError:
            assert path.read_bytes() == as_line(result) + data
            return
        found = [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        assert [record["digest"] for record in found if record["id"] == "good"].count("d" * 64) >= 1


TARGETS: dict[str, Callable[[bytes], None]] = {
    target.__name__: target for target in (lines, records, batch_lines, tables, headers, toml, journals)
}

if __name__ == "__main__":
    import atheris  # type: ignore[import-not-found]

    target = TARGETS[sys.argv.pop(1)]
    atheris.instrument_all()
    atheris.Setup(sys.argv, target)
    atheris.Fuzz()
