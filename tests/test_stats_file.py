"""The stats file goes on where it ended, and is no place for anything else."""

import json
import os
from pathlib import Path

import pytest

from batchrun.errors import InputError, OutputError
from batchrun.stats import BurstStats, Meter, Tally, burst_stats
from batchrun.stats_file import NoStatsFile, StatsFile


def stats(burst: int) -> BurstStats:
    return burst_stats(
        burst,
        "2024-01-01T00:00:00",
        Meter(),
        Tally(),
        wall_s=1,
        rest_s=0,
        predicted_s=1,
        slots={"rows": 1},
        width={"rows": 1, "reason": "as asked"},
    )


def append(path: Path, count: int = 1, *, fresh: bool = False) -> None:
    file = StatsFile(path, fresh=fresh)
    for _ in range(count):
        file.append(stats(file.next_burst))
        file.next_burst += 1
    file.close()


def bursts(path: Path) -> list[int]:
    data = path.read_bytes()
    assert data.endswith(b"\n")
    return [json.loads(line)["burst"] for line in data.splitlines()]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.stats.jsonl"


def test_a_run_without_a_burst_makes_no_file(path: Path) -> None:
    StatsFile(path, fresh=False).close()
    assert not path.exists()


def test_bursts_are_numbered_on_from_run_to_run(path: Path) -> None:
    append(path, 2)
    append(path)
    assert bursts(path) == [1, 2, 3]


def test_a_fresh_run_begins_with_the_first_burst(path: Path) -> None:
    append(path, 2)
    append(path, fresh=True)
    assert bursts(path) == [1]


def test_a_last_line_cut_at_any_byte_is_written_again(path: Path) -> None:
    append(path, 2)
    data = path.read_bytes()
    for size in range(data.index(b"\n") + 1, len(data)):
        path.write_bytes(data[:size])
        append(path)
        assert bursts(path) == [1, 2]


@pytest.mark.parametrize(
    "data", [b"# Read me\n", b"Read me", b'{"id":"a"}\n', b'{"burst":"x"}\n', b"[" * 100_000, b'{"id":"a"}', b"\0\0"]
)
@pytest.mark.parametrize("fresh", [False, True])
def test_a_foreign_file_is_refused_and_not_touched(path: Path, data: bytes, fresh: bool) -> None:
    path.write_bytes(data)
    with pytest.raises(InputError, match="choose another --stats"):
        StatsFile(path, fresh=fresh)
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", ["/dev/null", "."])
def test_what_is_no_regular_file_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="not a regular file"):
        StatsFile(tmp_path / name, fresh=True)


def test_a_second_run_may_not_write_the_same_stats(path: Path) -> None:
    first = StatsFile(path, fresh=False)
    with pytest.raises(InputError, match=rf"is being written by process {os.getpid()} on .+ or choose another --stats"):
        StatsFile(path, fresh=False)
    first.append(stats(1))
    first.close()
    append(path)
    assert bursts(path) == [1, 2]
    assert list(path.parent.iterdir()) == [path]


def test_a_place_that_cannot_be_written_is_an_output_error(tmp_path: Path) -> None:
    with pytest.raises(OutputError, match="cannot be written"):
        StatsFile(tmp_path / "missing" / "stats.jsonl", fresh=False).append(stats(1))


def test_no_stats_file_takes_anything() -> None:
    none = NoStatsFile()
    none.append(stats(none.next_burst))
    none.close()
