"""A place in a JSON text: what is open, and that texts which end alike stand in the same place."""

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from batchrun.json_place import Phase, Place

START = Place()
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


def place(text: str) -> Place:
    return START.after(text.encode())


@given(VALUES, st.integers(0, 200), st.booleans())
def test_it_does_not_matter_in_which_pieces_a_text_comes(value: Any, cut: int, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    assert START.after(text[:cut]).after(text[cut:]) == START.after(text)


@given(st.lists(VALUES, max_size=3) | st.dictionaries(st.text(max_size=3), VALUES, max_size=3))
def test_behind_a_whole_value_nothing_is_open(value: Any) -> None:
    end = START.after(json.dumps(value).encode())
    assert (end.phase, end.open, end.inside) == (Phase.BETWEEN, 0, None)


@given(VALUES, st.integers(0, 200))
def test_what_is_open_is_never_more_than_what_follows(value: Any, cut: int) -> None:
    text = json.dumps(value, separators=(",", ":")).encode()
    assert START.after(text[:cut]).open <= len(text[cut:])


def test_strings_keys_and_numbers_are_told_apart() -> None:
    phases = {'{"a': Phase.KEY, '{"a":"b': Phase.STRING, "[1": Phase.SCALAR, '{"a":1,"': Phase.KEY, '["': Phase.STRING}
    assert {text: place(text).phase for text in phases} == phases
    assert place('["a\\').phase is Phase.STRING_ESCAPE
    assert place('["a\\"').phase is Phase.STRING


def test_objects_that_said_the_same_last_key_stand_in_the_same_place() -> None:
    assert place('{"a":1,"b":true') == place('{"b":null') != place('{"a":null')


def test_lists_with_as_many_elements_stand_in_the_same_place() -> None:
    assert place("[1,22") != place('["x",true')  # another offset in the number
    assert place("[1,22,") == place('["x",true,') != place("[1,")


def test_the_offset_counts_the_bytes_of_a_string() -> None:
    assert (place('["').offset, place('["ab').offset, place('["ab","c').offset) == (0, 2, 1)
