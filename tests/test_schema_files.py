"""Schemas that refer to other files: each reference leads where it led in its file, or is refused; none is endless."""

import json
from pathlib import Path
from typing import Any

import pytest
from building import GUIDE
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core import Schema
from batchrun.errors import JobError
from batchrun.schema_files import Bundle
from batchrun.schema_folders import SchemaFolders
from batchrun.schemas import validate

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
HERE = "https://example.org/schemas/a.json"


def load(folder: Path, files: dict[str, Any], name: str = "a.json") -> Schema:
    for path, content in files.items():
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(json.dumps(content))
    return SchemaFolders([folder], [folder]).load(name)


def is_integer(schema: Schema) -> bool:
    """Whether the schema takes whole numbers and nothing else, by the check and by the guide."""
    assert GUIDE.compile(schema).least_tokens == 1
    return not validate(schema, 1) and bool(validate(schema, "1"))


INTEGER = {"type": "integer"}
IN_DEFS = {"$defs": {"n": INTEGER}}

LEADING = {
    "beside it": {"a.json": {"$ref": "b.json"}, "b.json": INTEGER},
    "a part": {"a.json": {"$ref": "b.json#/$defs/n"}, "b.json": IN_DEFS},
    "an anchor": {"a.json": {"$ref": "b.json#n"}, "b.json": {"$defs": {"n": {"$anchor": "n"} | INTEGER}}},
    "an id of its own": {"a.json": {"$id": HERE, "$ref": "b.json#/$defs/n"}, "b.json": IN_DEFS},
    "itself by its file": {"a.json": {"$ref": "a.json#/$defs/n"} | IN_DEFS},
    "itself by its file beside an id": {"a.json": {"$id": HERE, "$ref": "./a.json#/$defs/n"} | IN_DEFS},
    "itself from another id": {"a.json": {"$id": "https://example.org/x", "$ref": "a.json#/$defs/n"} | IN_DEFS},
    "itself from another file": {"a.json": {"$ref": "b.json"} | IN_DEFS, "b.json": {"$ref": "a.json#/$defs/n"}},
    "a file by its id": {
        "a.json": {"$ref": "https://example.org/n"},
        "b.json": {"$id": "https://example.org/n"} | INTEGER,
    },
    "a file by an id from a base": {"a.json": {"$id": HERE, "$ref": "n"}, "b.json": {"$id": HERE[:-6] + "n"} | INTEGER},
    "a file that calls itself otherwise": {"a.json": {"$ref": "b.json"}, "b.json": {"$id": "other"} | INTEGER},
    "up and down": {"a.json": {"$ref": "sub/b.json"}, "sub/b.json": {"$ref": "../c.json"}, "c.json": INTEGER},
    "beside another": {"a.json": {"$ref": "sub/b.json"}, "sub/b.json": {"$ref": "c.json"}, "sub/c.json": INTEGER},
    "namesakes": {
        "a.json": {"anyOf": [{"$ref": "b.json"}, {"$ref": "sub/c.json"}], "type": "integer"},
        "sub/c.json": {"$ref": "b.json"},
        "sub/b.json": INTEGER,
        "b.json": {"type": "string"},
    },
    "a circle": {
        "a.json": {"anyOf": [{"$ref": "b.json"}, INTEGER]},
        "b.json": {"type": "array", "items": {"$ref": "a.json"}, "not": {}},
    },
    "draft 7": {"a.json": {"$schema": DRAFT_7, "$ref": "b.json"}, "b.json": {"$ref": "c.json"}, "c.json": INTEGER},
    "a property called default": {
        "a.json": {"$ref": "b.json#/properties/default"},
        "b.json": {"properties": {"default": {"$ref": "c.json"}}},
        "c.json": INTEGER,
    },
    "by a file that is true": {"a.json": {"allOf": [{"$ref": "b.json"}, INTEGER]}, "b.json": True},
    "odd characters": {"a.json": {"$ref": "b%20%C3%A4.json"}, "b ä.json": INTEGER},
}


@pytest.mark.parametrize("files", LEADING.values(), ids=LEADING)
def test_a_reference_leads_where_it_led_in_its_file(tmp_path: Path, files: dict[str, Any]) -> None:
    assert is_integer(load(tmp_path, files))


DANGLING = {
    "a part": {"a.json": {"$ref": "b.json#/nowhere"}, "b.json": INTEGER},
    "an anchor": {"a.json": {"$ref": "b.json#nowhere"}, "b.json": INTEGER},
    "a part behind another": {"a.json": {"$ref": "b.json"}, "b.json": {"$ref": "c.json#/x"}, "c.json": {}},
    "a part of itself": {"a.json": {"$ref": "a.json#/nowhere"}},
    "a part of itself beside an id": {"a.json": {"$id": HERE, "$ref": "a.json#/nowhere"}},
    "no file": {"a.json": {"$ref": "b.json"}},
    "no file behind another": {"a.json": {"$ref": "b.json"}, "b.json": {"$ref": "../../b.json"}},
    "no name of a file": {"a.json": {"$ref": "%00.json"}},
    "no uri": {"a.json": {"$ref": "b.json"}, "b.json": {"$ref": "http://[x"}},
    "an id that is none": {"a.json": {"$ref": "b.json#/nowhere"}, "b.json": {"$defs": {"x": {"$id": "//[x"}}}},
}


@pytest.mark.parametrize("files", DANGLING.values(), ids=DANGLING)
def test_a_reference_to_nothing_is_refused_in_one_line(tmp_path: Path, files: dict[str, Any]) -> None:
    with pytest.raises(JobError, match=r"^schema 'a.json' ") as caught:
        GUIDE.compile(load(tmp_path, files))
    assert caught.value.problem.code == "schema_invalid"


@pytest.mark.parametrize(
    ("content", "reason"), [([], "a list; expected an object"), ("x", "a string; expected an object")]
)
def test_a_file_that_is_no_schema_is_refused(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(JobError, match=rf"refers to b.json at /\$ref, which is {reason}"):
        load(tmp_path, {"a.json": {"$ref": "b.json"}, "b.json": content})


def test_a_schema_without_references_to_files_is_left_as_it_is() -> None:
    content = {"$defs": {"n": INTEGER}, "properties": {"default": {"$ref": "#/$defs/n"}}, "default": {"$ref": "x.json"}}
    assert json.dumps(Bundle("a", content, None, []).whole()) == json.dumps(content)


def test_a_link_that_leads_out_is_not_followed_for_its_id(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "secret.json").write_text('{"$id": "https://example.org/n", "type": "integer"}')
    (tmp_path / "in" / "b.json").symlink_to(tmp_path / "secret.json")
    with pytest.raises(JobError, match="not in it"):
        GUIDE.compile(load(tmp_path / "in", {"a.json": {"$ref": "https://example.org/n"}}))


NAMES = st.sampled_from(
    ["a.json", "b.json", "../b.json", "sub/b.json", "#", "#/x", "b.json#/x", HERE, "https://x/b", ""]
)


@given(st.dictionaries(st.sampled_from(["$id", "$ref", "$schema"]), NAMES | st.just(DRAFT_7), max_size=2), NAMES, NAMES)
def test_whatever_files_refer_to_there_is_an_end(
    tmp_path_factory: pytest.TempPathFactory, head: dict[str, Any], first: str, second: str
) -> None:
    folder = tmp_path_factory.mktemp("schemas")
    files = {"a.json": head | {"properties": {"x": {"$ref": first}}}, "b.json": head | {"items": {"$ref": second}}}
    try:
        schema = load(folder, files)
    except JobError:
        return
    assert isinstance(validate(schema, {"x": [1]}), list)
