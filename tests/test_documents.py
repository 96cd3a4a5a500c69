"""A folder or a glob of files is a list of jobs, the same on every machine."""

import json
from pathlib import Path

import pytest

from batchrun.documents import DocumentSource, document_lines, pattern
from batchrun.errors import InputError


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ["notes/b.md", "notes/a.md", "notes/a.txt", "notes/deep/er/c.md", "notes/.hidden/d.md", "notes/.e.md"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def names(text: str) -> list[str]:
    return [json.loads(line.data)["document_file"] for line in document_lines([pattern(text)], None)]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("notes", ["notes/a.md", "notes/a.txt", "notes/b.md", "notes/deep/er/c.md"]),
        ("notes/", ["notes/a.md", "notes/a.txt", "notes/b.md", "notes/deep/er/c.md"]),
        ("notes/*.md", ["notes/a.md", "notes/b.md"]),
        ("./notes/**/*.md", ["notes/a.md", "notes/b.md", "notes/deep/er/c.md"]),
        ("**/er/*", ["notes/deep/er/c.md"]),
        ("*/[ab].m?", ["notes/a.md", "notes/b.md"]),
        ("notes/.hidden/*", ["notes/.hidden/d.md"]),
        ("notes/**/.*", ["notes/.e.md"]),
        ("notes/a.txt", ["notes/a.txt"]),
        ("nothing*", []),
    ],
)
def test_a_pattern_names_files_in_their_order(folder: Path, text: str, wanted: list[str]) -> None:
    assert names(text) == wanted


def test_an_absolute_pattern_names_absolute_files(folder: Path) -> None:
    assert names(f"{folder}/notes/*.txt") == [f"{folder}/notes/a.txt"]


def test_a_place_that_is_not_there_is_refused(folder: Path) -> None:
    with pytest.raises(InputError, match="--documents nowhere: no such file or folder"):
        pattern("nowhere")


def test_folders_are_not_walked_through_links(folder: Path) -> None:
    (folder / "notes" / "loop").symlink_to(folder / "notes")
    assert "notes/loop/a.md" not in names("notes/**/*.md")


def test_every_file_is_a_job_named_by_its_path(folder: Path) -> None:
    source = DocumentSource([pattern("notes/*.md"), pattern("notes/a.txt")])
    lines = []
    while not source.ended:
        lines.append(source.next(0))
    assert [line and (line.number, json.loads(line.data)["id"]) for line in lines] == [
        (1, "notes/a.md"),
        (2, "notes/b.md"),
        (3, "notes/a.txt"),
        None,
    ]


def test_a_name_that_is_no_text_is_a_rejection(folder: Path) -> None:
    Path("notes", "x\udcff.md").touch()
    lines = list(document_lines([pattern("notes/*.md")], None))
    assert [line.problem and line.problem.code for line in lines] == [None, None, "bad_encoding"]
