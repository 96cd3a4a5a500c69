"""Prompts made from columns: `Summarise: {text}` takes the column `text` of each record.

Only plain names stand in braces: no attribute, index or format can be asked for.  `{{` and `}}` are braces.
"""

import difflib
import json
import string
from collections.abc import Container, Mapping
from typing import Any

from batchrun.core import Problem
from batchrun.errors import JobError, UsageError


class Template:
    """A text with columns to fill in.  Raises UsageError where it is none; `flag` says whose it is."""

    def __init__(self, text: str, flag: str) -> None:
        try:
            parsed = list(string.Formatter().parse(text))
        except ValueError as error:
            raise UsageError(f"{flag}: {error}; expected column names in braces, and {{{{ for a brace") from error
        self._parts = [(before, name) for before, name, _, _ in parsed]
        for _, name, form, conversion in parsed:
            if name is not None and (not name.strip() or form or conversion):
                raise UsageError(f"{flag}: expected a column's name between braces, and {{{{ for a brace")
        self.columns = frozenset(name for _, name in self._parts if name is not None)

    def filled(self, record: Mapping[str, Any]) -> str:
        """The text for one record.  Text goes in as it is, other values as JSON.  Raises JobError for a missing one."""
        return "".join(before + (_text(record, name) if name is not None else "") for before, name in self._parts)


class Layout:
    """How records become job lines: texts made of their columns, and the column that is their id.

    `columns`: those that it takes.
    """

    def __init__(
        self, prompt: Template | None = None, document: Template | None = None, id_column: str | None = None
    ) -> None:
        self.prompt = prompt
        self.document = document
        self.id_column = id_column
        taken = [template.columns for template in (prompt, document) if template]
        self.columns: frozenset[str] = frozenset().union(*taken, [id_column] if id_column else [])

    def laid_out(self, record: dict[str, Any], fields: Container[str], is_table: bool) -> dict[str, Any]:
        """The job line that a record stands for.  `fields`: keys of job lines, which keep their meaning.

        Other keys go into `meta`, less those that a text was made of; where no column is asked for and the record is of
        no table they stay, for the check to refuse.  Raises JobError for a missing column.
        """
        columns = self.columns
        if not columns and not is_table:
            return self._with_texts(record, record) if self.prompt or self.document else record
        job = {key: value for key, value in record.items() if key in fields and not (is_table and value == "")}
        if self.id_column:
            job["id"] = _text(record, self.id_column)
        elif isinstance(job.get("id"), int):
            job["id"] = str(job["id"])
        others = {key: value for key, value in record.items() if key not in fields and key not in columns}
        if others:
            meta = job.get("meta")
            job["meta"] = others if meta is None else others | {"meta": meta}
        return self._with_texts(job, record)

    def _with_texts(self, job: dict[str, Any], record: Mapping[str, Any]) -> dict[str, Any]:
        """A line's own prompt or document wins, unless it is a column of ours."""
        made = {}
        if self.prompt and ("prompt" in self.prompt.columns or not {"prompt", "messages"} & _present(job)):
            made["prompt"] = self.prompt.filled(record)
        if self.document and ("document" in self.document.columns or not _DOCUMENTS & _present(job)):
            made["document"] = self.document.filled(record)
        return job | made


_DOCUMENTS = {"document", "document_file"}


def _present(job: Mapping[str, Any]) -> set[str]:
    return {key for key, value in job.items() if value is not None}


def _text(record: Mapping[str, Any], name: str) -> str:
    if name not in record:
        near = difflib.get_close_matches(name, record, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"it has: {', '.join(list(record)[:20])}"
        raise JobError(Problem("no_column", f"the record has no {name!r}, which the prompt asks for; {hint}"))
    value = record[name]
    return value if isinstance(value, str) else "" if value is None else json.dumps(value, ensure_ascii=False)
