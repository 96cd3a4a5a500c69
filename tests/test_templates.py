"""Prompts made from columns, and the records that they are made of."""

import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchrun.core import Defaults, Job, Rejection
from batchrun.errors import JobError, UsageError
from batchrun.jobs import JobReader
from batchrun.line import Line, Origin
from batchrun.schema_folders import SchemaFolders
from batchrun.templates import Layout, Template

TABLE = Origin(is_table=True)


def filled(text: str, record: dict[str, Any]) -> str:
    return Template(text, "--prompt").filled(record)


def read(record: dict[str, Any], layout: Layout, origin: Origin = Origin()) -> Job | Rejection:  # noqa: B008
    reader = JobReader(Defaults(), SchemaFolders([], []), Path(), layout=layout)
    return reader.read_line(Line(2, json.dumps(record).encode(), origin))


def layout(prompt: str | None = None, document: str | None = None, id_column: str | None = None) -> Layout:
    return Layout(prompt and Template(prompt, "p"), document and Template(document, "d"), id_column)  # type: ignore[arg-type]


def test_columns_fill_their_places() -> None:
    assert filled("{a} and {b c}, {{a}}", {"a": "x{b c}", "b c": "y"}) == "x{b c} and y, {a}"


def test_what_is_no_text_goes_in_as_json() -> None:
    assert filled("{n}{l}{z}{t}", {"n": 5, "l": ["é"], "z": None, "t": True}) == '5["é"]true'


@pytest.mark.parametrize("text", ["{", "}", "{}", "{a!r}", "{a:5}", "{ }", "{a:}x{"])
def test_a_template_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"^--prompt: "):
        Template(text, "--prompt")


@pytest.mark.parametrize("name", ["a.__class__", "a[0]", "0", "__import__('os')"])
def test_nothing_but_a_column_can_be_asked_for(name: str) -> None:
    with pytest.raises(JobError, match="which the prompt asks for"):
        filled(f"{{{name}}}", {"a": "x"})


@given(st.text(), st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3))
def test_any_text_is_a_template_or_refused(text: str, record: dict[str, str]) -> None:
    with contextlib.suppress(UsageError, JobError):
        assert isinstance(filled(text, record), str)


def test_a_missing_column_names_the_nearest() -> None:
    with pytest.raises(JobError, match="has no 'txet', which the prompt asks for; did you mean 'text'"):
        filled("{txet}", {"text": "x"})


# -- records


def test_a_record_with_extra_keys_becomes_a_job() -> None:
    job = read({"id": 5, "text": "hello", "lang": "en", "max_tokens": 9}, layout("Translate: {text}"))
    assert isinstance(job, Job)
    assert (job.id, job.messages[0].content, job.max_tokens) == ("5", "Translate: hello", 9)
    assert job.meta == {"lang": "en"}, "what went into the prompt is not said twice"


def test_meta_of_its_own_is_kept_beside_other_keys() -> None:
    job = read({"text": "x", "lang": "en", "meta": 7}, layout("{text}"))
    assert isinstance(job, Job)
    assert job.meta == {"lang": "en", "meta": 7}


def test_a_prompt_of_the_run_leaves_records_with_their_own_alone() -> None:
    own = read({"prompt": "mine"}, layout("ours"))
    none = read({"document": "text"}, layout("ours"))
    assert isinstance(own, Job)
    assert isinstance(none, Job)
    assert (own.messages[0].content, none.messages[0].content) == ("mine", "ours")


def test_a_template_that_takes_the_prompt_column_wins_over_it() -> None:
    job = read({"prompt": "mine"}, layout("Say: {prompt}"))
    assert isinstance(job, Job)
    assert job.messages[0].content == "Say: mine"


def test_a_document_may_be_a_column() -> None:
    job = read({"body": "long text", "n": 1}, layout("Summarise.", "{body}"))
    assert isinstance(job, Job)
    assert (job.messages[0].content, job.document, job.meta) == ("Summarise.", "long text", {"n": 1})


def test_an_id_may_be_another_column() -> None:
    job = read({"key": 17, "text": "x"}, layout("{text}", id_column="key"))
    assert isinstance(job, Job)
    assert job.id == "17"


def test_without_columns_an_unknown_key_is_still_a_mistake() -> None:
    rejection = read({"promt": "x"}, layout("Say something."))
    assert isinstance(rejection, Rejection)
    assert rejection.problem.code == "unknown_key"


def test_columns_of_a_table_are_no_mistakes_and_empty_cells_are_absent() -> None:
    job = read({"prompt": "x", "id": "", "schema": "", "city": "", "n": "1"}, layout(), TABLE)
    assert isinstance(job, Job)
    assert (job.id, job.schema, job.meta) == ("2", None, {"city": "", "n": "1"})
