"""From a job to token ids: the model's own chat template, the instruction and the schema before the document.

What many jobs share comes first, so that their prompts share a prefix; where many questions are put to the same
documents, that is the document (`document-first`).  Spellings of control tokens inside a job's text
(`<|im_start|>` in a document) stay text: they are tokenized apart from the template around them.
"""

import hashlib
import json
import re
from dataclasses import asdict, replace
from functools import lru_cache

from batchrun.backends.base import Model, ModelCard
from batchrun.config import LAYOUTS
from batchrun.core import Job, Message, Problem, Request, Sampling
from batchrun.errors import JobError
from batchrun.guide import Guide

LAYOUT = 1  # part of every digest: raise it when the same job comes to be written down in another way
SCHEMA_LEAD = "\n\nAnswer with one JSON value that fits this JSON Schema:\n"
DOCUMENT_LEAD = "Document:\n"
PROMPT_FIRST, DOCUMENT_FIRST = LAYOUTS
_json = json.JSONEncoder(ensure_ascii=False).encode
MARK = "\ue001{}\ue001"  # stands in for a text while the template around it is rendered


class Preparer:
    """Makes requests for one model.  `layout`: one of config.LAYOUTS, which part of a job leads."""

    def __init__(self, model: Model, guide: Guide, layout: str = PROMPT_FIRST) -> None:
        self._model = model
        self._guide = guide
        self._layout = layout
        self._control = re.compile("|".join(map(re.escape, model.tokenizer.control_texts)) or r"(?!)")

    def digest(self, job: Job) -> str:
        """Identifies all that shapes a job's answer, this model included."""
        return digest(job, self._model.card, self._model.template.text, self._layout)

    def prepare(self, job: Job, job_digest: str, taken_s: float) -> Request:
        """The request of a job.  Raises JobError where the schema or the template refuses it."""
        grammar = self._guide.compile(job.schema) if job.schema else None
        if grammar and len(grammar.opening) >= job.max_tokens:
            raise JobError(Problem("budget_too_small", _budget_message(job.max_tokens, len(grammar.opening))))
        tokens = tuple(self._tokens(laid_out(job, self._layout)))
        return Request(job, job_digest, tokens, grammar, taken_s)

    def _tokens(self, messages: tuple[Message, ...]) -> list[int]:
        tokenizer = self._model.tokenizer
        if any(self._control.search(message.content) for message in messages):
            return tokenizer.with_bos(self._tokens_apart(messages))
        return tokenizer.with_bos(tokenizer.encode(self._model.template.render(messages), control=True))

    def _tokens_apart(self, messages: tuple[Message, ...]) -> list[int]:
        """The template's tokens with control, the messages' without."""
        tokenizer = self._model.tokenizer
        marks = {MARK.format(place): message.content for place, message in enumerate(messages)}
        turns = [Message(message.role, mark) for message, mark in zip(messages, marks, strict=True)]
        rendered = self._model.template.render(turns)
        if any(rendered.count(mark) != 1 for mark in marks):
            raise JobError(Problem("control_text", "the text spells a control token and this chat template moves text"))
        pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", rendered)
        tokens: list[int] = []
        for piece in pieces:
            tokens += tokenizer.encode(marks.get(piece, piece), control=piece not in marks)
        return tokens


def laid_out(job: Job, layout: str) -> tuple[Message, ...]:
    """The conversation as the model will read it: schema and document stand around the last user turn's words."""
    last = job.messages[-1]
    content = last.content
    if job.schema:
        content += SCHEMA_LEAD + job.schema.text
    if job.document is not None:
        parts = (content, DOCUMENT_LEAD + job.document)
        content = "\n\n".join(parts if layout == PROMPT_FIRST else reversed(parts))
    return (*job.messages[:-1], replace(last, content=content))


def digest(job: Job, card: ModelCard, template: str, layout: str) -> str:
    """Identifies all that shapes a job's answer: sha256 over canonical JSON.  `id` and `meta` are not part of it."""
    document = "null" if job.document is None else _json(job.document)
    messages = ",".join(f"[{_json(message.role)},{_json(message.content)}]" for message in job.messages)
    layout_mark = f"{LAYOUT}" if layout == PROMPT_FIRST else f'[{LAYOUT},"{layout}"]'
    own = f'{{"document":{document},"layout":{layout_mark},"max_tokens":{job.max_tokens},"messages":[{messages}],'
    shared = _shared_shape(job.sampling, job.schema.text if job.schema else None, job.stop, card.identity, template)
    return hashlib.sha256((own + shared).encode()).hexdigest()


@lru_cache(maxsize=64)
def _shared_shape(sampling: Sampling, schema: str | None, stop: tuple[str, ...], model: str, template: str) -> str:
    """The part of the canonical JSON that the jobs of a run have in common, as a rule; keys in order."""
    shape = {"model": model, "sampling": asdict(sampling), "schema": schema, "stop": stop, "template": template}
    return json.dumps(shape, ensure_ascii=False, sort_keys=True, separators=(",", ":"))[1:]


def _budget_message(max_tokens: int, opening: int) -> str:
    return (
        f"max_tokens is {max_tokens}, but the schema's fixed beginning alone takes {opening}; expected a larger budget"
    )
