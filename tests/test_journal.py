"""Whatever happens to the results file, a job comes to have exactly one final line in it."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core import Result, Status, Usage
from batchrun.errors import InputError, OutputError
from batchrun.journal import Journal
from batchrun.result_lines import finished_keys
from batchrun.results import as_line

Key = tuple[str, str]
KEYS: list[Key] = [("a", "1" * 64), ("ü/\n", "2" * 64), ("", "3" * 64), ("🎈", "4" * 64)]


def result(key: Key, status: Status = Status.OK, output: str = "said") -> Result:
    return Result(key[0], 1, status, output, None, (), Usage(), None, 1, 1, "model", key[1], None)


def line(key: Key, status: Status = Status.OK) -> bytes:
    return as_line(result(key, status))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def keys_in(path: Path) -> list[Key]:
    """Id and digest of every line, each of which must be whole."""
    data = path.read_bytes()
    assert data.endswith(b"\n")
    records = [json.loads(text) for text in data.split(b"\n")[:-1]]
    return [(record["id"], record["digest"]) for record in records]


def complete(path: Path, keys: Iterable[Key]) -> list[Key]:
    """What a run does: claims every job and writes those that are missing.  Gives those."""
    with Journal(path) as journal:
        missing = [key for key in keys if journal.claim(*key) is None]
        for key in missing:
            journal.append(result(key))
    return missing


# -- writing and reading back


def test_results_are_on_disk_as_soon_as_they_are_appended(path: Path) -> None:
    with Journal(path) as journal:
        journal.append(result(KEYS[0]))
        assert keys_in(path) == KEYS[:1]
        journal.append(result(KEYS[1]))
        assert keys_in(path) == KEYS[:2]
        journal.sync()


def test_a_final_result_is_found_once_with_its_status(path: Path) -> None:
    statuses = [Status.OK, Status.INVALID, Status.TRUNCATED, Status.REJECTED]
    path.write_bytes(b"".join(line(key, status) for key, status in zip(KEYS, statuses, strict=True)))
    with Journal(path) as journal:
        assert journal.unclaimed == 4
        assert [journal.claim(*key) for key in KEYS] == statuses
        assert [journal.claim(*key) for key in KEYS] == [None] * 4


@pytest.mark.parametrize("status", [Status.ERROR, Status.CANCELLED, Status.EXPIRED])
def test_a_result_that_is_not_final_is_not_found(path: Path, status: Status) -> None:
    path.write_bytes(line(KEYS[0], status))
    with Journal(path) as journal:
        assert journal.claim(*KEYS[0]) is None


def test_id_and_digest_must_both_be_the_same(path: Path) -> None:
    path.write_bytes(line(KEYS[0]))
    with Journal(path) as journal:
        assert journal.claim("a", "2" * 64) is None
        assert journal.claim("b", "1" * 64) is None


def test_twins_are_found_once_each_and_both_stay(path: Path) -> None:
    path.write_bytes(line(KEYS[0], Status.REJECTED) * 2)
    assert complete(path, [KEYS[0]] * 3) == KEYS[:1]
    assert keys_in(path) == KEYS[:1] * 3
    assert complete(path, [KEYS[0]] * 3) == []
    assert keys_in(path) == KEYS[:1] * 3


def test_a_run_that_wrote_nothing_leaves_nothing(path: Path) -> None:
    Journal(path).close()
    assert list(path.parent.iterdir()) == []


def test_a_file_that_needs_nothing_is_left_as_it_was(path: Path) -> None:
    path.write_bytes(b"".join(map(line, KEYS)))
    before = path.read_bytes(), path.stat().st_ino
    complete(path, KEYS)
    assert (path.read_bytes(), path.stat().st_ino) == before
    assert list(path.parent.iterdir()) == [path]


def test_a_journal_may_be_closed_twice(path: Path) -> None:
    with Journal(path) as journal:
        journal.close()


def test_finished_keys_are_read_without_a_lock(path: Path) -> None:
    assert finished_keys(path) == Counter()
    path.write_bytes(line(KEYS[0]) * 2 + line(KEYS[1], Status.ERROR) + line(KEYS[2])[:-1])
    with Journal(path):
        assert finished_keys(path) == {KEYS[0]: 2}


# -- torn tails


def cuts() -> Iterator[tuple[int, bytes]]:
    """A file of three lines cut at every byte of its last two, with the whole lines that are left."""
    data = b"".join(map(line, KEYS[:3]))
    for size in range(len(line(KEYS[0])), len(data) + 1):
        yield data[:size].count(b"\n"), data[:size]


def test_a_file_cut_at_any_byte_comes_to_hold_every_job_once(path: Path) -> None:
    for whole, data in cuts():
        path.write_bytes(data)
        assert complete(path, KEYS[:3]) == KEYS[whole:3]
        assert keys_in(path) == KEYS[:3]


def test_a_first_line_cut_at_any_byte_is_written_again(path: Path) -> None:
    data = line(KEYS[1])
    for size in range(len(data)):
        path.write_bytes(data[:size])
        assert complete(path, KEYS[1:2]) == KEYS[1:2]
        assert path.read_bytes() == data


def test_a_torn_tail_is_reported_and_cut_off_at_once(path: Path) -> None:
    for _, data in cuts():
        path.write_bytes(data)
        with Journal(path) as journal:
            assert journal.torn_bytes == len(data) - data.rfind(b"\n") - 1
            assert path.read_bytes() == data[: data.rfind(b"\n") + 1]


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff", b"{", b'{"id":"\xf0\x9f'])
def test_a_tail_of_odd_bytes_is_cut_off(path: Path, tail: bytes) -> None:
    path.write_bytes(line(KEYS[0]) + tail)
    assert complete(path, KEYS[:1]) == []
    assert keys_in(path) == KEYS[:1]


# -- files that are not ours

JOB = b'{"id":"a","prompt":"p"}'
FOREIGN = {
    "a README": b"# Read me\n\nhello\n",
    "one without an end": b"Read me",
    "a job file": JOB + b"\n" + JOB + b"\n",
    "a job file of one line without an end": JOB,
    "empty JSON": b"{}",
    "a list": b"[]\n",
    "a number": b"5",
    "a blank line first": b"\n" + line(KEYS[0]),
    "bytes": b"\x7fELF\0\0\0\0",
    "zeroes": b"\0" * 64,
    "deep JSON": b"[" * 100_000 + b"\n",
    "deep JSON without an end": b'{"id":"a","x":' + b"[" * 100_000,
    "results of another kind": b'{"id":1,"status":"ok","digest":"d"}\n',
    "a job after a result": line(KEYS[0]) + JOB + b"\n",
    "a job after a result without an end": line(KEYS[0]) + JOB,
}


@pytest.mark.parametrize("name", FOREIGN)
def test_a_foreign_file_is_refused_and_not_touched(path: Path, name: str) -> None:
    path.write_bytes(FOREIGN[name])
    with pytest.raises(InputError, match=r"is not a result of batchrun; choose another -o"):
        Journal(path)
    assert path.read_bytes() == FOREIGN[name]
    assert list(path.parent.iterdir()) == [path]


def test_an_id_of_half_a_surrogate_pair_harms_nothing(path: Path) -> None:
    path.write_bytes(rb'{"id":"\ud800","status":"ok","digest":"d"}' + b"\n")
    assert complete(path, KEYS[:1]) == KEYS[:1]


@pytest.mark.parametrize("name", ["/dev/null", "folder", "pipe"])
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not a regular file"):
        Journal(tmp_path / name)
    assert (tmp_path / name).exists()


@pytest.mark.parametrize("name", ["missing/out.jsonl", "x" * 300, "file/out.jsonl"])
def test_a_place_that_cannot_be_written_is_an_output_error(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match="cannot be written"):
        Journal(tmp_path / name)
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_links_to_nowhere_and_to_themselves(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OutputError):
        Journal(tmp_path / "loop")
    (tmp_path / "link").symlink_to("real")
    complete(tmp_path / "link", KEYS)
    assert keys_in(tmp_path / "real") == KEYS


# -- starting over


def test_fresh_refuses_to_lose_results_without_force(path: Path) -> None:
    path.write_bytes(line(KEYS[0]))
    with pytest.raises(InputError, match="add --force"):
        Journal(path, fresh=True)
    assert keys_in(path) == KEYS[:1]
    assert list(path.parent.iterdir()) == [path]


def test_fresh_with_force_starts_over(path: Path) -> None:
    path.write_bytes(line(KEYS[0]))
    with Journal(path, fresh=True, force=True) as journal:
        assert journal.claim(*KEYS[0]) is None
        journal.append(result(KEYS[1]))
    assert keys_in(path) == KEYS[1:2]


def test_a_fresh_run_that_never_began_loses_nothing(path: Path) -> None:
    path.write_bytes(line(KEYS[0]))
    Journal(path, fresh=True, force=True).close()
    assert keys_in(path) == KEYS[:1]


def test_a_fresh_run_that_began_finds_nothing_to_resume(path: Path) -> None:
    path.write_bytes(line(KEYS[0]))
    with Journal(path, fresh=True, force=True) as journal:
        assert journal.claim(*KEYS[1]) is None
    assert complete(path, KEYS[:1]) == KEYS[:1]


@pytest.mark.parametrize("data", [None, b""])
def test_fresh_needs_no_force_where_nothing_is_lost(path: Path, data: bytes | None) -> None:
    if data is not None:
        path.write_bytes(data)
    with Journal(path, fresh=True) as journal:
        journal.append(result(KEYS[0]))
    assert keys_in(path) == KEYS[:1]


# -- replaced results

CHANGED = ("a", "9" * 64)


def replaced(path: Path) -> list[Key]:
    return keys_in(path.with_name("out.replaced.jsonl"))


def test_the_old_result_of_a_changed_job_is_moved(path: Path) -> None:
    path.write_bytes(line(KEYS[0]) + line(KEYS[1]))
    with Journal(path) as journal:
        journal.claim(*CHANGED)
        journal.claim(*KEYS[1])
        journal.append(result(CHANGED))
    assert keys_in(path) == [KEYS[1], CHANGED]
    assert replaced(path) == KEYS[:1]
    assert journal.replaced == 1


def test_a_result_that_was_not_final_is_moved_once_its_job_ran_again(path: Path) -> None:
    path.write_bytes(line(KEYS[0], Status.ERROR) + line(KEYS[1], Status.CANCELLED))
    assert complete(path, KEYS[:1]) == KEYS[:1]
    assert keys_in(path) == [KEYS[1], KEYS[0]]
    assert replaced(path) == KEYS[:1]


def test_results_whose_jobs_are_gone_stay(path: Path) -> None:
    path.write_bytes(b"".join(map(line, KEYS)))
    complete(path, [CHANGED])
    assert keys_in(path) == [*KEYS[1:], CHANGED]


def test_replaced_results_are_kept_from_one_run_to_the_next(path: Path) -> None:
    for digest in "123":
        complete(path, [("a", digest)])
    assert keys_in(path) == [("a", "3")]
    assert replaced(path) == [("a", "1"), ("a", "2")]


def test_nothing_is_glued_to_a_torn_replaced_result(path: Path) -> None:
    path.write_bytes(line(KEYS[0]))
    path.with_name("out.replaced.jsonl").write_bytes(line(("z", "0")) + b'{"id":"to')
    complete(path, [CHANGED])
    assert replaced(path) == [("z", "0"), KEYS[0]]


def test_a_killed_run_leaves_its_tidying_to_the_next(path: Path) -> None:
    path.write_bytes(line(KEYS[0]) + line(KEYS[1]) + line(CHANGED))  # killed after it wrote a changed job
    assert complete(path, [CHANGED, KEYS[1]]) == []
    assert keys_in(path) == [KEYS[1], CHANGED]
    assert replaced(path) == KEYS[:1]


def test_a_job_that_changed_back_keeps_the_result_that_fits(path: Path) -> None:
    path.write_bytes(line(KEYS[0]) + line(CHANGED))
    assert complete(path, KEYS[:1]) == []
    assert keys_in(path) == KEYS[:1]
    assert replaced(path) == [CHANGED]


def test_mode_and_link_outlive_the_moving(path: Path, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    real = tmp_path / "real" / "out.jsonl"
    path.symlink_to(real)
    real.write_bytes(line(KEYS[0]))
    real.chmod(0o640)
    complete(path, [CHANGED])
    assert path.is_symlink()
    assert keys_in(real) == [CHANGED]
    assert real.stat().st_mode & 0o777 == 0o640
    assert [entry.name for entry in sorted(real.parent.iterdir())] == ["out.jsonl", "out.replaced.jsonl"]


# -- the lock

HOLD = """
import sys
from pathlib import Path
from batchrun.journal import Journal
journal = Journal(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
journal.close()
"""


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Another process that holds the journal until its standard input ends."""
    process = subprocess.Popen([sys.executable, "-c", HOLD, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == b"held\n"
    yield process
    process.kill()
    process.communicate()


def test_a_second_process_is_refused_and_told_who_writes(path: Path, holder: subprocess.Popen[bytes]) -> None:
    for name in (path, path.parent / "link"):
        if name is not path:
            name.symlink_to(path)
        with pytest.raises(InputError, match=rf"is being written by process {holder.pid} on .+; wait for it"):
            Journal(name)
    holder.communicate()
    complete(path, KEYS)
    assert not list(path.parent.glob(".*"))


def test_the_lock_of_a_killed_process_is_taken_over(path: Path, holder: subprocess.Popen[bytes]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert list(path.parent.glob(".*.lock"))
    complete(path, KEYS)
    assert keys_in(path) == KEYS
    assert not list(path.parent.glob(".*"))


def test_a_refused_journal_leaves_the_lock_of_the_other_alone(path: Path) -> None:
    with Journal(path) as journal:
        for _ in range(3):
            with pytest.raises(InputError):
                Journal(path)
        journal.append(result(KEYS[0]))
    assert keys_in(path) == KEYS[:1]


def test_many_who_race_for_a_file_write_it_one_at_a_time(path: Path) -> None:
    inside, most_inside, turns = 0, 0, 0
    counting = threading.Lock()

    def race(number: int) -> None:
        nonlocal inside, most_inside, turns
        for turn in range(40):
            try:
                journal = Journal(path)
            except InputError:
                continue
            with counting:
                inside, turns = inside + 1, turns + 1
                most_inside = max(inside, most_inside)
            journal.append(result((f"{number}-{turn}", "d")))
            with counting:
                inside -= 1
            journal.close()

    threads = [threading.Thread(target=race, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most_inside == 1
    assert len(set(keys_in(path))) == len(keys_in(path)) == turns


# -- a full disk

FILL = """
import resource, signal, sys
from pathlib import Path
from batchrun.errors import OutputError
from test_journal import Journal, result
if len(sys.argv) > 2:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)
with Journal(Path(sys.argv[1])) as journal:
    try:
        for number in range(1000):
            journal.append(result((str(number), "d"), output="x" * 1000))
    except OutputError as error:
        print(error)
"""


class Disk:
    """A disk of 64 KiB where one can be mounted; else a limit of that size on what a process may write."""

    def __init__(self, folder: Path, mount: bool) -> None:
        folder.mkdir()
        self.path = folder / "out.jsonl"
        self._folder = folder
        self.mounted = mount and os.geteuid() == 0 and sys.platform == "linux" and self._mount("size=64k")

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self._folder)]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def fill(self) -> str:
        """Writes until nothing fits.  Gives what the error said."""
        command = [sys.executable, "-c", FILL, self.path, *([] if self.mounted else ["65536"])]
        return subprocess.run(command, capture_output=True, text=True, check=True, cwd=Path(__file__).parent).stdout

    def make_room(self) -> None:
        if self.mounted:
            assert self._mount("remount,size=4m")

    def close(self) -> None:
        if self.mounted:
            subprocess.run(["umount", str(self._folder)], check=True)


@pytest.fixture(params=["a disk", "a limit"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Disk]:
    small = Disk(tmp_path / "disk", mount=request.param == "a disk")
    yield small
    small.close()


def test_a_full_disk_keeps_whole_lines_and_the_run_can_be_resumed(disk: Disk) -> None:
    said = disk.fill()
    assert "could not be written" in said
    assert "whole lines are kept" in said
    keys = [(str(number), "d") for number in range(200)]
    written = keys_in(disk.path)
    assert 10 < len(written) < 100
    assert written == keys[: len(written)]
    disk.make_room()
    assert complete(disk.path, keys) == keys[len(written) :]
    assert keys_in(disk.path) == keys


def test_results_that_cannot_be_moved_stay(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path.write_bytes(line(KEYS[0]))
    before = path.read_bytes() + line(CHANGED)

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(OutputError, match="No space left"):
        complete(path, [CHANGED])
    assert path.read_bytes() == before
    monkeypatch.undo()
    complete(path, [CHANGED])
    assert keys_in(path) == [CHANGED]
    assert not list(path.parent.glob(".*"))


# -- whatever happens

RUNS = st.lists(
    st.tuples(
        st.dictionaries(st.integers(0, 4), st.integers(0, 2), max_size=3),  # jobs that change, and what to
        st.sets(st.integers(0, 4), max_size=2),  # jobs whose rows fail
        st.integers(0, 5),  # jobs that get done before the end
        st.none() | st.floats(0, 1),  # closed, or killed with so much of the file on disk
    ),
    max_size=6,
)


@settings(max_examples=200)
@given(RUNS)
def test_after_any_history_a_whole_run_leaves_one_final_line_a_job(history: list) -> None:
    versions = dict.fromkeys(range(5), 0)
    data = b""
    with tempfile.TemporaryDirectory() as folder:
        for number, (changes, failing, budget, kept) in enumerate([*history, ({}, set(), 5, None)]):
            path = Path(folder, str(number), "out.jsonl")  # a killed process frees its lock: a new place has none
            path.parent.mkdir()
            path.write_bytes(data)
            versions |= changes
            keys = [(f"job-{job}", f"{version}") for job, version in versions.items()]
            journal = Journal(path)
            missing = [(job, key) for job, key in enumerate(keys) if journal.claim(*key) is None]
            for job, key in missing[:budget]:
                journal.append(result(key, Status.ERROR if job in failing else Status.OK))
            if kept is None:
                journal.close()
            data = path.read_bytes() if path.exists() else b""
            if kept is not None:
                data = data[: round(kept * len(data))]
                journal.close()
        records = [json.loads(text) for text in data.splitlines()]
        assert sorted((record["id"], record["digest"]) for record in records) == keys
        assert {record["status"] for record in records} == {"ok"}


# -- jobs that come back, damage, and files taken away


def test_a_job_that_changes_and_changes_back_gets_its_old_result_without_running(path: Path) -> None:
    first, second = ("a", "1" * 64), ("a", "2" * 64)
    assert complete(path, [first]) == [first]
    assert complete(path, [second]) == [second]
    assert complete(path, [first]) == []
    assert keys_in(path) == [first]


def test_a_document_that_was_missing_for_one_run_costs_no_finished_result(path: Path) -> None:
    good, refused = ("a", "1" * 64), ("a", "9" * 64)
    complete(path, [good])
    with Journal(path) as journal:
        assert journal.claim(*refused) is None
        journal.append(result(refused, Status.REJECTED))
    assert keys_in(path) == [refused]
    assert complete(path, [good]) == []
    assert keys_in(path) == [good]


@pytest.mark.parametrize("damage", [b"garbage\n", b"\n", b"\xff\xfe\n"])
def test_a_damaged_line_in_the_middle_costs_its_own_job_only(path: Path, damage: bytes) -> None:
    path.write_bytes(line(KEYS[0]) + damage + line(KEYS[2]))
    assert complete(path, KEYS[:3]) == [KEYS[1]]
    assert keys_in(path) == [KEYS[0], KEYS[2], KEYS[1]]


@pytest.mark.parametrize("what", ["removed", "moved", "cut"])
def test_a_results_file_that_is_taken_away_in_mid_run_is_told(path: Path, what: str) -> None:
    journal = Journal(path)
    journal.append(result(KEYS[0]))
    if what == "removed":
        path.unlink()
    elif what == "moved":
        path.rename(path.with_name("elsewhere.jsonl"))
    else:
        os.truncate(path, 3)
    with pytest.raises(OutputError, match=r"moved, replaced or cut|could not be kept"):
        journal.sync()
    journal.close()
