"""Lines end at byte 0x0A only, whoever writes them and however slowly."""

import io
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.errors import InputError
from batchrun.line import Line
from batchrun.lines import LineReader
from batchrun.source import READ_AHEAD_LINES, FileSource, Source, StreamSource

AWHILE_S = 60.0
"""How long a line that is on its way is waited for; a test that waits so long has failed."""

Opened = Callable[[bytes], Source]


def all_lines(source: Source) -> list[Line]:
    lines = []
    while not source.ended:
        line = source.next(AWHILE_S)
        if line:
            lines.append(line)
    return lines


def pairs(source: Source) -> list[tuple[int, bytes]]:
    """Number and bytes of every line."""
    return [(line.number, line.data) for line in all_lines(source)]


def one(source: Source, wait_s: float = AWHILE_S) -> tuple[int, bytes]:
    line = source.next(wait_s)
    assert line
    return line.number, line.data


@pytest.fixture(params=["file", "stream"])
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Opened:
    """Opens bytes as a source, both ways."""

    def open_source(data: bytes) -> Source:
        if request.param == "stream":
            return StreamSource(io.BytesIO(data))
        path = tmp_path / "jobs.jsonl"
        path.write_bytes(data)
        return FileSource(path)

    return open_source


def test_lines_are_numbered_from_one_and_blank_ones_counted(opened: Opened) -> None:
    source = opened(b"a\n\n  \t\nb\n\r\nc")
    assert pairs(source) == [(1, b"a"), (4, b"b"), (6, b"c")]
    assert source.blank == 3


def test_a_byte_order_mark_and_carriage_returns_are_dropped(opened: Opened) -> None:
    assert pairs(opened(b'\xef\xbb\xbf{"a":1}\r\n{"b":2}\r\n')) == [(1, b'{"a":1}'), (2, b'{"b":2}')]


def test_a_byte_order_mark_alone_is_a_blank_line(opened: Opened) -> None:
    source = opened(b"\xef\xbb\xbf\r\nx")
    assert pairs(source) == [(2, b"x")]
    assert source.blank == 1


def test_a_byte_order_mark_further_down_is_data(opened: Opened) -> None:
    assert pairs(opened(b"a\n\xef\xbb\xbfb")) == [(1, b"a"), (2, b"\xef\xbb\xbfb")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\r"])
def test_no_other_separator_splits_a_line(opened: Opened, separator: str) -> None:
    line = f'{{"prompt":"a{separator}b"}}'.encode()
    assert pairs(opened(line + b"\n" + line)) == [(1, line), (2, line)]


def test_a_last_line_needs_no_end(opened: Opened) -> None:
    assert pairs(opened(b"a\nb")) == pairs(opened(b"a\nb\n"))


def test_nothing_holds_no_lines(opened: Opened) -> None:
    source = opened(b"")
    assert source.next(AWHILE_S) is None
    assert source.ended
    assert source.next(AWHILE_S) is None


def test_a_very_long_line_is_one_line(opened: Opened) -> None:
    line = b'"' + b"x" * 5_000_000 + b'"'
    assert pairs(opened(line + b"\n" + line)) == [(1, line), (2, line)]


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"")), max_size=8))
def test_a_stream_and_a_survey_agree_on_the_lines(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    source = StreamSource(io.BytesIO(data))
    found = all_lines(source)
    assert len(found) == sum(map(len, LineReader([data]).batches()))
    assert source.blank + len(found) == len(list(io.BytesIO(data)))


def test_the_total_of_a_file_is_what_it_was_told(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_bytes(b"a\n")
    assert FileSource(tmp_path / "jobs", 7).total == 7
    assert StreamSource(io.BytesIO(b"")).total is None


# -- streams


def broken() -> Iterator[bytes]:
    """A medium that gives out after its first line."""
    yield b"one\n"
    raise OSError(5, "Input/output error")


class Writer:
    """The other end of a pipe."""

    def __init__(self) -> None:
        reading, self._writing = os.pipe()
        self.source = StreamSource(os.fdopen(reading, "rb"))

    def write(self, data: bytes) -> None:
        os.write(self._writing, data)

    def close(self) -> None:
        os.close(self._writing)


def test_a_slow_writer_is_not_waited_for() -> None:
    writer = Writer()
    assert writer.source.next(0) is None
    assert not writer.source.ended
    writer.write(b"one\n")
    assert one(writer.source) == (1, b"one")
    writer.write(b"tw")
    assert writer.source.next(0) is None
    writer.write(b"o\nthree")
    assert one(writer.source) == (2, b"two")
    assert not writer.source.ended
    writer.close()
    assert one(writer.source) == (3, b"three")
    assert writer.source.next(AWHILE_S) is None
    assert writer.source.ended


def test_a_writer_in_another_thread_loses_nothing() -> None:
    writer = Writer()
    count = 3 * READ_AHEAD_LINES
    thread = threading.Thread(target=lambda: [writer.write(b"%d\n" % n) for n in range(count)] and writer.close())
    thread.start()
    assert [line.data for line in all_lines(writer.source)] == [b"%d" % number for number in range(count)]
    thread.join(AWHILE_S)
    assert not thread.is_alive()


def test_a_named_pipe_is_opened_without_waiting_for_its_writer(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    source = StreamSource(tmp_path / "pipe")
    assert source.next(0) is None
    (tmp_path / "pipe").write_bytes(b"one\n")
    assert pairs(source) == [(1, b"one")]


def test_a_named_pipe_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        StreamSource(tmp_path / "pipe").next(AWHILE_S)


def test_a_fast_writer_is_held_back() -> None:
    taken = 0

    def lines() -> Iterator[bytes]:
        nonlocal taken
        for taken in range(1, 10 * READ_AHEAD_LINES):  # noqa: B007
            yield b"x\n"

    source = StreamSource(lines())
    for _ in range(5):
        assert source.next(AWHILE_S)
    assert taken <= READ_AHEAD_LINES + 7


def test_a_stream_that_breaks_is_an_error_and_no_end() -> None:
    source = StreamSource(broken())
    assert one(source) == (1, b"one")
    with pytest.raises(InputError, match="Input/output error"):
        source.next(AWHILE_S)


def test_a_file_that_breaks_is_an_error_and_no_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "jobs").write_bytes(b"one\ntwo\n")
    source = FileSource(tmp_path / "jobs")
    pieces = broken()
    monkeypatch.setattr(os, "read", lambda handle, size: next(pieces))
    assert one(source, 0) == (1, b"one")
    with pytest.raises(InputError, match="Input/output error"):
        source.next(0)
