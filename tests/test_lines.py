"""Bytes are cut at 0x0A only, wherever their blocks end, and no line fills the memory."""

import io

from hypothesis import given
from hypothesis import strategies as st

from batchrun.lines import HEAD_BYTES, LineReader, LongLine, Splitter

BLOCKS = st.lists(st.text(alphabet="ab\n\r \ufeff", max_size=9).map(str.encode), max_size=8)


@given(BLOCKS)
def test_the_borders_of_blocks_mean_nothing(blocks: list[bytes]) -> None:
    splitter = Splitter()
    found = [line for block in blocks for line in splitter.feed(block)] + splitter.end()
    assert found == [line.removesuffix(b"\n") for line in io.BytesIO(b"".join(blocks))]


@given(BLOCKS, st.integers(1, 6))
def test_a_line_that_is_too_long_is_passed_over_and_costs_no_neighbour(blocks: list[bytes], most: int) -> None:
    splitter = Splitter(most)
    found = [line for block in blocks for line in splitter.feed(block)] + splitter.end()
    wanted = [line.removesuffix(b"\n") for line in io.BytesIO(b"".join(blocks))]
    assert len(found) == len(wanted)
    for line, whole in zip(found, wanted, strict=True):
        if isinstance(line, LongLine):
            assert line.size == len(whole) > most
        else:
            assert line == whole
            assert len(whole) <= most


def test_lines_that_are_too_long_tell_themselves_apart_and_are_not_kept() -> None:
    lines = [b"x" * 5000 + tail for tail in (b"a", b"b")]
    found = list(LineReader([b"\n".join([b"first", *lines, b"last"])], most_bytes=1000))
    assert [line.number for line in found] == [1, 2, 3, 4]
    assert [line.problem is not None for line in found] == [False, True, True, False]
    assert found[1].data != found[2].data
    assert all(len(line.data) < HEAD_BYTES + 100 for line in found)
    assert found[1].problem
    assert found[1].problem.message == "the line is 5001 bytes; expected at most 1000 (see --line-bytes)"


def test_a_long_line_in_many_blocks_is_never_held() -> None:
    splitter = Splitter(1000)
    for _ in range(1000):
        assert splitter.feed(b"y" * 1000) == []
        assert sum(map(len, splitter._pieces)) <= 1000
    (line,) = splitter.feed(b"\n")
    assert isinstance(line, LongLine)
    assert line.size == 1_000_000
