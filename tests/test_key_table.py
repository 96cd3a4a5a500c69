"""A table of digests says what a dictionary would say, in far less memory."""

import sys

from hypothesis import given
from hypothesis import strategies as st

from batchrun.key_table import MOST, KeyTable, key_of

KEYS = st.binary(min_size=16, max_size=16)
CROWDED = st.binary(min_size=2, max_size=2).map(lambda data: b"\0\0" + 7 * data)
"""Keys of one bucket, in which one is easily found across the border of two others."""


@given(st.lists(st.tuples(KEYS | CROWDED, st.integers(0, MOST))), KEYS | CROWDED)
def test_a_table_is_a_dictionary(pairs: list[tuple[bytes, int]], stranger: bytes) -> None:
    table, wanted = KeyTable(), {}
    for key, value in pairs:
        assert table.put(key, value) == (key not in wanted)
        wanted[key] = value
    assert len(table) == len(wanted)
    assert sorted(table.values()) == sorted(wanted.values())
    for key in [*wanted, stranger]:
        assert table.get(key) == wanted.get(key)
        assert (key in table) == (key in wanted)


def test_a_default_is_set_once() -> None:
    table = KeyTable()
    assert [table.setdefault(b"k" * 16, value) for value in (5, 6)] == [5, 5]


def test_a_hundred_thousand_keys_take_a_few_megabytes() -> None:
    table = KeyTable()
    for number in range(100_000):
        table.put(key_of(str(number)), number)
    size = sum(sys.getsizeof(bucket) for bucket in table._buckets if bucket) + sys.getsizeof(table._buckets)
    assert size < 9e6
    assert all(table.get(key_of(str(number))) == number for number in range(0, 100_000, 97))


@given(st.lists(st.text(), min_size=2, max_size=2, unique=True))
def test_other_texts_have_other_keys(texts: list[str]) -> None:
    assert key_of(texts[0]) != key_of(texts[1])
    assert key_of(*texts) != key_of(*texts[::-1])
