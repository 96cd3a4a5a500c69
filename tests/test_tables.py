"""CSV and TSV: a row is a record, and a bad row costs no neighbour."""

import csv
import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.errors import InputError
from batchrun.line import Line
from batchrun.tables import TAB, TableReader


def read(text: str | bytes, delimiter: str = ",", **options: Any) -> list[Line]:
    data = text.encode() if isinstance(text, str) else text
    return list(TableReader([data], delimiter=delimiter, **options))


def records(text: str | bytes, delimiter: str = ",") -> list[Any]:
    """The records of a table; for a row that is none, the code of its problem."""
    return [line.problem.code if line.problem else json.loads(line.data) for line in read(text, delimiter)]


def test_columns_are_keys_and_cells_are_text() -> None:
    assert records("id,text\n1,a\n2,b\n") == [{"id": "1", "text": "a"}, {"id": "2", "text": "b"}]


def test_a_quoted_cell_may_hold_anything() -> None:
    found = read('id,text\n1,"a, ""b""\r\nc"\n2,d\n')
    assert [json.loads(line.data)["text"] for line in found] == ['a, "b"\r\nc', "d"]
    assert [line.number for line in found] == [2, 4]


def test_a_number_among_the_keys_of_a_job_is_a_number() -> None:
    assert records("prompt,max_tokens,temperature,seed\np,5,0.5,\nq,many,,7\n") == [
        {"prompt": "p", "max_tokens": 5, "temperature": 0.5, "seed": None},
        {"prompt": "q", "max_tokens": "many", "temperature": None, "seed": 7},
    ]


def test_a_byte_order_mark_crlf_and_blank_rows_are_no_matter() -> None:
    reader = TableReader([b'\xef\xbb\xbfa,b\r\n"1",2\r\n\r\n , \r\n3,4'])
    assert [json.loads(line.data) for line in reader] == [{"a": "1", "b": "2"}, {"a": "3", "b": "4"}]
    assert reader.blank == 2


def test_tabs_and_semicolons_part_columns_too() -> None:
    assert records("a\tb\n1,5\t2\n", TAB) == [{"a": "1,5", "b": "2"}]
    assert records("a;b\n1,5;2\n") == [{"a": "1,5", "b": "2"}]


def test_a_column_without_a_name_gets_one() -> None:
    assert records(",b\n1,2\n") == [{"column_1": "1", "b": "2"}]


@pytest.mark.parametrize("text", ["a,a\n1,2\n", b"a\xff,b\n", 'a,"b\n'])
def test_a_first_line_that_is_no_header_is_refused(text: str | bytes) -> None:
    with pytest.raises(InputError, match="its first line"):
        read(text)


def test_a_column_that_is_asked_for_has_to_be_there() -> None:
    with pytest.raises(InputError, match="has no column 'txet'; did you mean 'text'"):
        read("id,text\n", needs=frozenset({"txet"}))


def test_nothing_holds_no_records() -> None:
    assert records("") == records("\n\n") == records("a,b\n") == []


# -- rows that are none


def test_a_row_of_another_length_is_turned_away_with_both_numbers() -> None:
    found = read("a,b\n1\n1,2,3\n4,5\n")
    assert [line.problem is None for line in found] == [False, False, True]
    assert found[0].problem
    assert found[0].problem.message == "the row has 1 cells; expected 2, as many as the header"


@pytest.mark.parametrize("bad", ['"x"y,2', '"open,2', 'a,"', '"'])
@pytest.mark.parametrize("after", [[], ['3,"two\nlines"'], ['"q",5', "6,7"]])
def test_a_stray_quote_costs_its_own_row_only(bad: str, after: list[str]) -> None:
    rows = ["1,2", bad, *after]
    found = records("a,b\n" + "\n".join(rows) + "\n")
    assert found[0] == {"a": "1", "b": "2"}
    assert found.count("bad_row") >= 1
    if not any('"' in row for row in after):
        assert found[2:] == [{"a": row.split(",")[0], "b": row.split(",")[1]} for row in after]


def test_a_quote_that_is_never_closed_swallows_nothing() -> None:
    rows = "".join(f"{number},ok\n" for number in range(500))
    found = records('a,b\n1,"open\n' + rows)
    assert found[0] == "bad_row"
    assert found[1:] == [{"a": str(number), "b": "ok"} for number in range(500)]


def test_rows_that_open_and_close_each_other_without_end_take_no_longer_than_their_length() -> None:
    lines = 20_000
    found = records("a,b\n" + 'a","\n' * lines)
    assert len(found) >= lines // 2
    assert set(map(str, found)) == {"bad_row"}


def test_a_byte_that_is_no_utf8_costs_its_own_row_only() -> None:
    assert records(b"a,b\n1,\xff\n3,4\n") == ["bad_encoding", {"a": "3", "b": "4"}]


def test_a_row_that_is_too_long_costs_its_own_row_only() -> None:
    found = read("a,b\n1," + "x" * 500 + "\n3,4\n", most_bytes=100)
    assert [line.problem and line.problem.code for line in found] == ["line_too_long", None]


def test_a_record_of_many_lines_that_is_too_long_is_given_up() -> None:
    rows = "\n".join(f"{number},ok" for number in range(100))
    found = read('a,b\n"' + rows + "\n", most_bytes=50)
    assert sum(line.problem is None for line in found) == 99


CELL = st.text(alphabet='ab",;\n\r\t é', max_size=6)


@given(st.lists(st.tuples(CELL, CELL, CELL), max_size=6), st.sampled_from([",", TAB]))
def test_what_a_csv_writer_wrote_is_read_back(rows: list[tuple[str, str, str]], delimiter: str) -> None:
    written = io.StringIO()
    writer = csv.writer(written, delimiter=delimiter, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(["x", "y", "z"])
    writer.writerows(rows)
    found = records(written.getvalue(), delimiter)
    assert found == [dict(zip("xyz", row, strict=True)) for row in rows if any(cell.strip() for cell in row)]


@given(st.lists(st.text(alphabet='ab",\n', max_size=10).map(str.encode) | st.binary(max_size=10), max_size=6))
def test_any_bytes_behind_a_header_give_records_or_problems(blocks: list[bytes]) -> None:
    for line in TableReader([b"a,b\n", *blocks], most_bytes=30):
        assert line.problem or json.loads(line.data).keys() == {"a", "b"}


@given(st.lists(st.text(alphabet='ab",\n', max_size=12), max_size=6))
def test_a_good_row_at_the_end_is_found_whatever_stands_before_it(rows: list[str]) -> None:
    text = "a,b\n" + "".join(row.replace("\n", "") + "\n" for row in rows) + "last,row\n"
    found = records(text)
    assert found, "something is there"
    assert {"a": "last", "b": "row"} in found or any("last,row" in str(record) for record in found)
