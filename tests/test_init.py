"""`batchrun init`: somebody's own data and one example become a job file and a schema that guides decoding well."""

import csv
import errno
import gzip
import io
import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from shell import Ran, batchrun, here, read

from batchrun.core import Schema
from batchrun.draft.example import choices, examples
from batchrun.draft.schema import infer
from batchrun.errors import UsageError
from batchrun.schemas import checked, compact, validate

EXAMPLE = '{"product": "teapot", "mood": "good|bad|mixed", "complaints": ["leaks"]}'
TABLE = 'id,stars,review\r\na,2,"It ""leaks"",\nand it is cold."\r\nb,5,Lovely\r\n'


def init(folder: Path, *arguments: str | Path, example: str = EXAMPLE) -> Ran:
    return here(folder, "init", *arguments, "--example", example, engine="")


def made(folder: Path, text: str | bytes, *arguments: str, name: str = "in.csv") -> list[dict[str, Any]]:
    """The jobs that come of some data."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    ran = init(folder, name, *arguments)
    assert ran.status == 0, ran.err
    return read(folder / "in.jobs.jsonl")


def refused(folder: Path, text: str | bytes, *arguments: str, name: str = "in.csv") -> str:
    """The one line that some data are refused with; nothing is written."""
    (folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    before = sorted(folder.rglob("*"))
    ran = init(folder, name, *arguments)
    assert ran.status in (2, 4)
    assert ran.out == ""
    assert ran.err.count("\n") == 1, ran.err
    assert sorted(folder.rglob("*")) == before
    return ran.err.removeprefix("batchrun: ").rstrip()


# -- from data to a validated result


def test_three_commands_lead_from_a_table_to_validated_results(tmp_path: Path) -> None:
    (tmp_path / "reviews.csv").write_text(TABLE)
    ran = init(tmp_path, "reviews.csv")
    assert ran.out == "batchrun run reviews.jobs.jsonl -o reviews.results.jsonl\n"
    run = batchrun(tmp_path, *shlex.split(ran.out)[1:], engine="auto", BATCHRUN_THREADS="1")
    assert run.status == 0, run.err
    results = read(tmp_path / "reviews.results.jsonl")
    assert {result["id"]: result["status"] for result in results} == {"a": "ok", "b": "ok"}
    assert {result["id"]: result["meta"] for result in results} == {"a": {"stars": "2"}, "b": {"stars": "5"}}
    for result in results:
        assert list(result["output"]) == ["product", "mood", "complaints"]
        assert result["output"]["mood"] in ("good", "bad", "mixed")
        assert not result["closed_by_budget"]


def test_what_was_made_of_what_is_told(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(TABLE)
    assert init(tmp_path, "in.csv").err.splitlines() == [
        "batchrun: in.csv: 2 rows -> in.jobs.jsonl: 2 jobs",
        "batchrun: the text is column 'review' (the longest; --text-column names another); ids are column 'id'",
        "batchrun: schema in -> schemas/in.json: product, mood (good, bad or mixed), complaints",
        "batchrun: how long texts and lists may be is taken from the example: see maxLength and maxItems in the schema",
    ]


# -- rows


rows = st.lists(
    st.tuples(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.text("ab,\"'\n ;\t\ré")),
    min_size=1,
    max_size=8,
)


@settings(max_examples=40)
@given(rows)
def test_no_row_is_lost_and_none_is_changed(
    tmp_path_factory: pytest.TempPathFactory, table: list[tuple[str, str]]
) -> None:
    folder = tmp_path_factory.mktemp("rows")
    table = [(f"x{a.replace(chr(13), '')}", b.replace("\r", "")) for a, b in table]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("text", "other"), *table])
    jobs = made(folder, text.getvalue(), "--text-column", "text")
    assert [(job["document"], job["meta"]["other"]) for job in jobs] == table
    assert len({job["id"] for job in jobs}) == len(table)


def test_a_byte_order_mark_blank_lines_and_empty_cells_are_no_trouble(tmp_path: Path) -> None:
    jobs = made(tmp_path, "\ufefftext;n\n\nhello there;1\n;\n;2\n  \n")
    assert [(job["id"], job["document"], job["meta"]) for job in jobs] == [
        ("3", "hello there", {"n": "1"}),
        ("5", "", {"n": "2"}),
    ]


def test_ids_are_line_numbers_where_no_column_can_name_the_rows(tmp_path: Path) -> None:
    assert [job["id"] for job in made(tmp_path, "id,text\n1,one\n1,two\n")] == ["2", "3"]
    line = refused(tmp_path / "", "id,text\n1,one\n1,two\n", "--id-column", "id", "-o", "other.jsonl")
    assert line.startswith("--id-column 'id' holds '1' again in line 3; expected")


def test_columns_can_be_chosen_and_a_wrong_name_says_the_near_one(tmp_path: Path) -> None:
    text = "title,body,long\nt,b,lllllll\n"
    jobs = made(tmp_path, text, "--text-column", "title", "--text-column", "body", "--id-column", "long")
    assert (jobs[0]["id"], jobs[0]["document"]) == ("lllllll", "title: t\nbody: b")
    assert "meta" not in jobs[0]
    assert "no column 'bdy'; did you mean 'body'?" in refused(tmp_path, text, "--text-column", "bdy", "--force")


def test_json_lines_keep_their_values(tmp_path: Path) -> None:
    lines = '{"text": "hello", "n": 1, "tags": ["a"]}\n\n{"text": "bye", "n": null}\n'
    jobs = made(tmp_path, gzip.compress(lines.encode()), name="in.jsonl.gz")
    assert [(job["id"], job["document"], job["meta"]) for job in jobs] == [
        ("1", "hello", {"n": 1, "tags": ["a"]}),
        ("3", "bye", {"n": None}),
    ]
    assert "holds job lines already; run them: batchrun run in.jsonl" in refused(
        tmp_path, '{"prompt": "Hi"}\n', "--force", name="in.jsonl"
    )


def test_a_folder_of_texts_is_read_in_place_or_copied_from_elsewhere(tmp_path: Path) -> None:
    notes, work = tmp_path / "notes", tmp_path / "work"
    (notes / "deep").mkdir(parents=True)
    work.mkdir()
    (notes / "a.txt").write_text("one")
    (notes / "deep" / "b.txt").write_bytes("\ufeffzwei ü".encode())
    (notes / ".hidden").write_text("no")
    assert init(tmp_path, "notes").status == 0
    jobs = read(tmp_path / "notes.jobs.jsonl")
    assert [(job["id"], job["document_file"]) for job in jobs] == [
        ("notes/a.txt", "notes/a.txt"),
        ("notes/deep/b.txt", "notes/deep/b.txt"),
    ]
    assert init(work, "../notes/**/*.txt", "-o", "n.jsonl").status == 0
    assert [job["document"] for job in read(work / "n.jsonl")] == ["one", "zwei ü"]
    assert init(notes, ".").status == 0
    assert init(notes, ".", "--force").status == 0, "what init wrote is none of the texts"
    assert [job["document_file"] for job in read(notes / "notes.jobs.jsonl")] == ["a.txt", "deep/b.txt"]
    check = here(tmp_path, "check", "notes.jobs.jsonl")
    assert check.status == 0, check.out + check.err


# -- what cannot be read


def test_an_odd_encoding_is_one_line_with_the_option_that_reads_it(tmp_path: Path) -> None:
    text = "text,n\ncafé au lait,1\n"
    hint = "in.csv, line 2: the row is not UTF-8; expected UTF-8 text; give its --encoding (cp1252 is usual), or leave"
    assert refused(tmp_path, text.encode("cp1252")).startswith(hint)
    assert "is not UTF-8; give its --encoding" in refused(tmp_path, "tëxt\nx\n".encode("cp1252"))
    assert refused(tmp_path, text.encode("utf-16")) == "in.csv is UTF-16; add: --encoding utf-16"
    assert "--encoding is 'klingon'; expected one such as" in refused(tmp_path, text, "--encoding", "klingon")
    assert "is not ascii" in refused(tmp_path, text, "--encoding", "ascii")
    for name in ("cp1252", "utf-16"):
        jobs = made(tmp_path, text.encode(name), "--encoding", name, "--force")
        assert [job["document"] for job in jobs] == ["café au lait"]


def test_a_row_that_cannot_be_read_is_refused_or_left_out_and_told(tmp_path: Path) -> None:
    text = "text,n\nhello,1\nbad\nbye,2\nworse,1,2\n"
    line = refused(tmp_path, text)
    assert line.startswith("in.csv, line 3: the row has 1 cells; expected 2")
    assert line.endswith("and 1 more like it; mend it, or leave such out with --skip-bad")
    (tmp_path / "in.csv").write_text(text)
    ran = init(tmp_path, "in.csv", "--skip-bad")
    assert "left out, as they cannot be read: 2 (line 3, 5)" in ran.err
    assert [job["document"] for job in read(tmp_path / "in.jobs.jsonl")] == ["hello", "bye"]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("", "in.csv", "holds no rows"),
        ("text\n", "in.csv", "holds no rows"),
        ("a,a\n1,2\n", "in.csv", "names column 'a' twice"),
        ('[{"text": "x"}]', "in.json", "jq -c '.[]' in.json > in.jsonl"),
        ("x", "in.xlsx", "has a name that says not what it is; expected .csv, .tsv, .jsonl"),
        ("PK\0\3", "in.csv", "holds zero bytes and is no text"),
        ('{"n": 1}\n', "in.jsonl", "has no column of texts"),
        ("no json\n", "in.jsonl", "line 1: Expecting value"),
    ],
)
def test_data_that_make_no_jobs_are_one_line(tmp_path: Path, text: str, name: str, said: str) -> None:
    assert said in refused(tmp_path, text, name=name)


def test_what_is_there_is_not_replaced_unless_asked(tmp_path: Path) -> None:
    made(tmp_path, TABLE)
    before = (tmp_path / "in.jobs.jsonl").read_bytes()
    line = refused(tmp_path, TABLE, "--prompt", "Other")
    assert line == "in.jobs.jsonl and schemas/in.json are there already; expected another -o, or --force"
    assert (tmp_path / "in.jobs.jsonl").read_bytes() == before
    assert made(tmp_path, TABLE, "--prompt", "Other", "--force")[0]["prompt"] == "Other"
    lines = '{"text": "x"}\n'
    assert "is what is read" in refused(tmp_path, lines, "-o", "in.jsonl", "--force", name="in.jsonl")
    assert "ends in .jsonl" in refused(tmp_path, TABLE, "-o", "in.csv", "--force")


# -- texts of a folder are read as a run reads them


def folder_of(place: Path) -> Path:
    notes = place / "notes"
    notes.mkdir()
    (notes / "a.txt").write_text("one")
    return notes


def test_a_link_out_of_the_folder_and_a_pipe_are_no_texts(tmp_path: Path) -> None:
    notes = folder_of(tmp_path)
    (tmp_path / "secret").write_text("secret")
    (notes / "b.txt").symlink_to(tmp_path / "secret")
    (notes / "c.txt").symlink_to(notes / "c.txt")
    os.mkfifo(notes / "d.txt")
    ran = init(tmp_path, "notes")
    assert ran.status == 4
    assert ran.err.startswith("batchrun: notes, text 'notes/b.txt' lies outside of 'notes'; expected a file below it")
    ran = init(tmp_path, "notes", "--skip-bad")
    assert ran.status == 0
    assert "left out, as they cannot be read: 3 (notes/b.txt, notes/c.txt, notes/d.txt)\n" in ran.err
    assert [job["id"] for job in read(tmp_path / "notes.jobs.jsonl")] == ["notes/a.txt"]


def test_what_a_run_wrote_beside_the_texts_is_no_text(tmp_path: Path) -> None:
    notes = folder_of(tmp_path)
    ran = init(notes, ".")
    for words in (shlex.split(ran.out)[1:], ["run", "notes.jobs.jsonl"]):
        assert batchrun(notes, *words).status in (0, 3)
    assert len(list(notes.glob("*.results.stats.jsonl"))) == 2
    assert init(notes, ".", "--force").status == 0
    assert [job["id"] for job in read(notes / "notes.jobs.jsonl")] == ["a.txt"]


# -- both files or none


def test_a_failure_leaves_both_files_as_they_were(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made(tmp_path, TABLE)
    before = [(path, path.read_bytes()) for path in sorted(tmp_path.rglob("*.json*"))]
    other = '{"other": 1}'
    ran = init(tmp_path, "in.csv", "--force", "--prompt", "caf\udce9", example=other)
    assert ran.err == "batchrun: --prompt is not UTF-8; expected UTF-8 text\n"
    with monkeypatch.context() as broken:
        broken.setattr("batchrun.draft.command._jobs", full_disk)
        assert init(tmp_path, "in.csv", "--force", example=other).status == 6
    assert [(path, path.read_bytes()) for path in sorted(tmp_path.rglob("*.json*"))] == before


def full_disk(*_: object, **__: object) -> Iterator[dict[str, Any]]:
    yield {}
    raise OSError(errno.ENOSPC, "No space left on device")


# -- what is easily taken wrong


@pytest.mark.parametrize("name", ["hex", "zlib", "rot13", "undefined", "punycode"])
def test_an_encoding_that_is_none_of_texts_is_refused(tmp_path: Path, name: str) -> None:
    assert refused(tmp_path, TABLE, "--encoding", name).startswith(f"--encoding is '{name}'; expected one such as")


def test_columns_named_like_settings_come_back_as_they_were_written(tmp_path: Path) -> None:
    jobs = made(tmp_path, "text,temperature,seed\nhello there,007,\n")
    assert jobs[0]["meta"] == {"temperature": "007", "seed": ""}


def test_empty_texts_and_a_header_that_looks_like_a_row_are_told(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("a first review,5\nlovely,4\n ,3\n")
    said = init(tmp_path, "in.csv").err
    assert "1 row has no text: line 3; --skip-bad leaves it out\n" in said
    assert "and '5' is an odd one; is it a row of data?\n" in said
    (tmp_path / "in.csv").write_text(TABLE)
    assert "is an odd one" not in init(tmp_path, "in.csv", "--force").err


def test_a_budget_made_from_an_example_has_a_limit_that_is_told(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(TABLE)
    ran = init(tmp_path, "in.csv", example=json.dumps({"summary": "x" * 9000}))
    assert "an answer may take 4096 tokens; --max-tokens gives it more\n" in ran.err
    assert read(tmp_path / "in.jobs.jsonl")[0]["max_tokens"] == 4096


def test_a_run_whose_settings_name_another_folder_of_schemas_is_given_this_one(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(TABLE)
    (tmp_path / "batchrun.toml").write_text('schemas = "elsewhere"\n')
    (tmp_path / "elsewhere").mkdir()
    ran = init(tmp_path, "in.csv")
    assert ran.out == "batchrun run in.jobs.jsonl -o in.results.jsonl --schemas schemas\n"
    assert here(tmp_path, "check", *shlex.split(ran.out)[2:]).status == 0


# -- nothing is left out, left empty, or renamed without a word


def test_a_column_in_braces_is_refused_and_other_braces_are_text(tmp_path: Path) -> None:
    assert refused(tmp_path, TABLE, "--prompt", "Say {review}").startswith(
        "--prompt holds {review}, which nothing fills in; expected none: the text goes behind the prompt by itself"
    )
    assert made(tmp_path, TABLE, "--prompt", 'Say {} or {"a": 1}')[0]["prompt"] == 'Say {} or {"a": 1}'


def test_rows_without_a_text_are_told_with_their_lines_and_can_be_left_out(tmp_path: Path) -> None:
    lines = '{"text": "hello", "n": 1}\n{"text": null}\n{"n": 2}\n{"text": " "}\n'
    (tmp_path / "in.jsonl").write_text(lines)
    ran = init(tmp_path, "in.jsonl")
    assert "3 rows have no text: lines 2, 3 and 4; --skip-bad leaves them out\n" in ran.err
    assert len(read(tmp_path / "in.jobs.jsonl")) == 4
    ran = init(tmp_path, "in.jsonl", "--skip-bad", "--force")
    assert "3 rows have no text: lines 2, 3 and 4; left out\n" in ran.err
    assert [job["document"] for job in read(tmp_path / "in.jobs.jsonl")] == ["hello"]
    notes = folder_of(tmp_path)
    (notes / "b.txt").touch()
    assert "1 text is empty: notes/b.txt; --skip-bad leaves it out\n" in init(tmp_path, "notes").err
    (notes / "a.txt").write_text("")
    ran = init(tmp_path, "notes", "--skip-bad", "-o", "none.jsonl")
    assert (ran.status, ran.err) == (
        4,
        "batchrun: notes: nothing in it has a text; expected one text at least\n",
    )
    assert not (tmp_path / "none.jsonl").exists()


def test_a_binary_among_texts_is_named_without_a_word_of_encodings(tmp_path: Path) -> None:
    notes = folder_of(tmp_path)
    (notes / "b.png").write_bytes(b"\x89PNG\0\xff")
    ran = init(tmp_path, "notes")
    assert ran.err == (
        "batchrun: notes, notes/b.png holds zero bytes and is no text; mend it, or leave such out with --skip-bad\n"
    )
    assert "left out, as they cannot be read: 1 (notes/b.png)\n" in init(tmp_path, "notes", "--skip-bad").err
    (notes / "b.png").write_bytes("x".encode("utf-16"))
    assert "is UTF-16 text; expected UTF-8, or --encoding utf-16" in init(tmp_path, "notes", "--force").err


def test_blank_rows_and_why_a_column_names_no_rows_are_told(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text("id,text\n7,hello there\n,\n\n7,bye\n")
    said = init(tmp_path, "in.csv").err
    assert "blank rows, passed over: 2\n" in said
    assert "ids are line numbers, as column 'id' holds '7' again in line 5\n" in said


def test_a_prompt_for_one_key_speaks_of_one(tmp_path: Path) -> None:
    (tmp_path / "in.csv").write_text(TABLE)
    init(tmp_path, "in.csv", example='{"mood": "good|bad"}')
    assert "that has the key mood." in read(tmp_path / "in.jobs.jsonl")[0]["prompt"]


# -- the example


def test_an_example_may_be_a_file_of_one_or_several(tmp_path: Path) -> None:
    one, several = tmp_path / "one.json", tmp_path / "several.jsonl"
    one.write_text('{\n  "a": 1\n}\n')
    several.write_text('\ufeff{"a": 1}\n\n{"a": 2.5, "b": "x"}\n')
    assert examples([str(one), str(several), '{"c": 1}']) == [{"a": 1}, {"a": 1}, {"a": 2.5, "b": "x"}, {"c": 1}]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{name: Ann}", "Expecting property name"),
        ("[1]", "expected a JSON object, found a list"),
        ("{}", "expected an object with a key"),
        ('{"a": 1, "a": 2}', "stands twice"),
        ("none.json", "is neither JSON nor a file"),
        ('{"a": {}}', "a is an empty object; expected its keys"),
    ],
)
def test_an_example_that_shows_nothing_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "in.csv").write_text(TABLE)
    ran = init(tmp_path, "in.csv", example=text)
    assert (ran.status, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
    assert "--example is missing" in here(tmp_path, "init", "in.csv", engine="").err


# -- the schema


def test_a_schema_is_closed_and_leaves_room() -> None:
    found = infer(examples(['{"z": "teapot", "a": {"mood": "good | bad"}, "n": 1, "ok": true, "l": [{"x": 1.5}]}']))
    assert found.schema == {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {
            "z": {"type": "string", "maxLength": 60},
            "a": {
                "type": "object",
                "properties": {"mood": {"enum": ["good", "bad"]}},
                "required": ["mood"],
                "additionalProperties": False,
            },
            "n": {"type": "integer"},
            "ok": {"type": "boolean"},
            "l": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"x": {"type": "number"}},
                    "required": ["x"],
                    "additionalProperties": False,
                },
                "maxItems": 10,
            },
        },
        "required": ["z", "a", "n", "ok", "l"],
        "additionalProperties": False,
    }
    assert found.notes == []


def test_what_one_example_leaves_open_is_taken_for_something_and_told() -> None:
    found = infer([{"a": None, "b": [], "c": "x"}, {"a": None, "b": []}])
    properties = found.schema["properties"]
    assert properties["a"] == {"type": ["string", "null"], "maxLength": 60}
    assert properties["b"] == {"type": "array", "items": {"type": "string", "maxLength": 60}, "maxItems": 10}
    assert found.schema["required"] == ["a", "b"]
    assert [note.partition(" ")[0] for note in found.notes] == ["a", "b", "not"]
    with pytest.raises(UsageError):
        infer([{"a": [{}]}])


@pytest.mark.parametrize("text", ["plain", "a|", "a||b", "a|a", "x" * 60 + "|b"])
def test_only_short_different_words_between_bars_are_choices(text: str) -> None:
    assert choices(text) is None


values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(-9, 9) | st.text("abc é", max_size=99),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", min_size=1), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)
answers = st.lists(st.dictionaries(st.text("abc", min_size=1), values, min_size=1, max_size=4), min_size=1, max_size=3)


@settings(max_examples=50)
@given(answers)
def test_every_example_passes_its_own_schema(shown: list[dict[str, Any]]) -> None:
    schema: Schema = checked("x", compact("x", infer(shown).schema))
    for example in shown:
        assert validate(schema, example) == []
