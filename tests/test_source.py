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
from batchrun.source import LONGEST_KEPT, READ_AHEAD_LINES, FileSource, Line, Source, StreamSource, survey

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
    assert all_lines(source) == [(1, b"a"), (4, b"b"), (6, b"c")]
    assert source.blank == 3


def test_a_byte_order_mark_and_carriage_returns_are_dropped(opened: Opened) -> None:
    assert all_lines(opened(b'\xef\xbb\xbf{"a":1}\r\n{"b":2}\r\n')) == [(1, b'{"a":1}'), (2, b'{"b":2}')]


def test_a_byte_order_mark_alone_is_a_blank_line(opened: Opened) -> None:
    source = opened(b"\xef\xbb\xbf\r\nx")
    assert all_lines(source) == [(2, b"x")]
    assert source.blank == 1


def test_a_byte_order_mark_further_down_is_data(opened: Opened) -> None:
    assert all_lines(opened(b"a\n\xef\xbb\xbfb")) == [(1, b"a"), (2, b"\xef\xbb\xbfb")]


@pytest.mark.parametrize("separator", ["\u2028", "\u2029", "\x85", "\x0c", "\x0b", "\x1c", "\r"])
def test_no_other_separator_splits_a_line(opened: Opened, separator: str) -> None:
    line = f'{{"prompt":"a{separator}b"}}'.encode()
    assert all_lines(opened(line + b"\n" + line)) == [(1, line), (2, line)]


def test_a_last_line_needs_no_end(opened: Opened) -> None:
    assert all_lines(opened(b"a\nb")) == all_lines(opened(b"a\nb\n"))


def test_nothing_holds_no_lines(opened: Opened) -> None:
    source = opened(b"")
    assert source.next(AWHILE_S) is None
    assert source.ended
    assert source.next(AWHILE_S) is None


def test_a_very_long_line_is_one_line(opened: Opened) -> None:
    line = b'"' + b"x" * 5_000_000 + b'"'
    assert all_lines(opened(line + b"\n" + line)) == [(1, line), (2, line)]


@given(st.lists(st.binary(max_size=8).map(lambda data: data.replace(b"\n", b"")), max_size=8))
def test_a_stream_and_a_survey_agree_on_the_lines(lines: list[bytes]) -> None:
    data = b"\n".join(lines)
    source = StreamSource(io.BytesIO(data))
    found = all_lines(source)
    assert len(found) == survey(io.BytesIO(data)).lines
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
    assert writer.source.next(AWHILE_S) == (1, b"one")
    writer.write(b"tw")
    assert writer.source.next(0) is None
    writer.write(b"o\nthree")
    assert writer.source.next(AWHILE_S) == (2, b"two")
    assert not writer.source.ended
    writer.close()
    assert writer.source.next(AWHILE_S) == (3, b"three")
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
    assert all_lines(source) == [(1, b"one")]


def test_a_named_pipe_that_is_gone_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        StreamSource(tmp_path / "pipe").next(AWHILE_S)


def test_a_fast_writer_is_held_back() -> None:
    taken = 0

    def lines() -> Iterator[bytes]:
        nonlocal taken
        for taken in range(1, 10 * READ_AHEAD_LINES):  # noqa: B007
            yield b"x\n"

    source = StreamSource(lines())  # type: ignore[arg-type]
    for _ in range(5):
        assert source.next(AWHILE_S)
    assert taken <= READ_AHEAD_LINES + 7


def test_a_stream_that_breaks_is_an_error_and_no_end() -> None:
    source = StreamSource(broken())  # type: ignore[arg-type]
    assert source.next(AWHILE_S) == (1, b"one")
    with pytest.raises(InputError, match="Input/output error"):
        source.next(AWHILE_S)


def test_a_file_that_breaks_is_an_error_and_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "open", lambda path, mode: broken())
    source = FileSource(Path("jobs"))
    assert source.next(0) == (1, b"one")
    with pytest.raises(InputError, match="Input/output error"):
        source.next(0)


# -- the look over a file


def test_a_survey_counts_lines_and_budgets() -> None:
    found = survey([b"\xef\xbb\xbf\n", b'{"max_tokens": 7}\n', b"\n", b'{"max_tokens":\t12 }', b"{}"])
    assert (found.lines, found.budgets, found.max_tokens) == (3, 2, 12)


def test_a_survey_keeps_the_weightiest_lines_with_their_numbers() -> None:
    lines = [b"x" * (1 + number % 100) for number in range(300)]
    found = survey(lines)
    assert len(found.longest) == LONGEST_KEPT
    assert min(len(line.data) for line in found.longest) >= 79
    assert all(lines[line.number - 1] == line.data for line in found.longest)


def test_a_survey_weighs_lines_as_it_is_told() -> None:
    found = survey([b"%d" % number for number in range(100, 300)], weigh=lambda line: -int(line))
    assert max(int(line.data) for line in found.longest) == 99 + LONGEST_KEPT


def test_a_budget_that_only_looks_like_one_does_no_harm() -> None:
    text = b'{"prompt":"say \\"max_tokens\\": 999999"}'
    assert survey([text]).max_tokens == 0
    assert survey([b'{"max_tokens": 99999999999999999999}', b'{"max_tokens": "many"}']).max_tokens < 10**9
