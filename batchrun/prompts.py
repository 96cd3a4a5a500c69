"""From a job to token ids: the model's own chat template, the instruction and the schema before the document.

What many jobs share comes first, so that their prompts share a prefix; where many questions are put to the same
documents, that is the document (`document-first`).  Spellings of control tokens inside a job's text
(`<|im_start|>` in a document) stay text: they are tokenized apart from the template around them.
"""

import hashlib
import json
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import lru_cache, partial
from typing import Any

from batchrun.asking import AS_USUAL, PROMPT_FIRST, Asking
from batchrun.backends.base import Model, ModelCard
from batchrun.core import Grammar, Job, Language, Message, Problem, Request, Sampling, Schema
from batchrun.errors import JobError
from batchrun.guide import Guide
from batchrun.thinking import ThinkingGrammar, tags_of, with_thinking, without_thinking

GUIDING = 1  # part of the digest of every job with a schema: raise it when the same job comes to be guided otherwise
SCHEMA_LEADS = {
    Language.JSON_SCHEMA: "\n\nAnswer with one JSON value that fits this JSON Schema:\n",
    Language.REGEX: "\n\nAnswer with a text that this regular expression matches:\n",
    Language.LARK: "\n\nAnswer with a text that fits this grammar:\n",
}
UNASKED = frozenset({"$schema", "$id", "id", "$comment"})
"""Keywords at the top of a schema that tell a model nothing."""

NO_DOCUMENT = "schema {!r} wants text that stands in the document (x-verbatim); expected a job with a document"
DOCUMENT_LEAD = "Document:\n"
REMARK_LEAD = "\n\nAn earlier answer was refused: "
REMARK_END = "\nAnswer again, without that mistake."
PARTS = ("prompt", "document", "schema", "model", "settings")
"""What a job's answer hangs on; a digest has a part for each."""
PART_BYTES = 12
SHORT_PART = 12  # of the hexadecimal digits: few models, schemas and settings meet in one file
MARK = "\ue001{}\ue001"  # stands in for a text while the template around it is rendered


class Preparer:
    """Makes requests for one model."""

    def __init__(self, model: Model, guide: Guide, asking: Asking = AS_USUAL) -> None:
        self._model = model
        self._guide = guide
        self._asking = asking
        tags = tags_of(model.template.text) if asking.thinking_tokens else None
        self._thinking = partial(ThinkingGrammar, model.tokenizer, tags, asking.thinking_tokens) if tags else None
        self._thinking_tokens = self._thinking(None).budget_tokens if self._thinking else 0
        self._control = re.compile("|".join(map(re.escape, model.tokenizer.control_texts)) or r"(?!)")

    def digest(self, job: Job) -> str:
        """Identifies all that shapes a job's answer, this model included."""
        return digest(job, self._model.card, self._model.template.text, self._asking)

    def prepare(self, job: Job, job_digest: str, taken_s: float, remark: str = "") -> Request:
        """The request of a job.  Raises JobError where the schema or the template refuses it.

        `remark`: what was wrong with the last answer, where this is to be another try.
        """
        if job.schema and job.schema.is_grounded and job.document is None:
            raise JobError(Problem("document_missing", NO_DOCUMENT.format(job.schema.name)))
        grammar: Grammar | None = self._guide.compile(job.schema, job.document) if job.schema else None
        if grammar:
            _check_budget(job, grammar)
        if self._thinking:
            grammar = self._thinking(grammar)
        tokens = tuple(self._tokens(laid_out(job, self._asking, remark)))
        return Request(job, job_digest, tokens, grammar, taken_s, self._thinking_tokens)

    def sized(self, job: Job) -> Request:
        """As much of a request as says what room it takes: without its grammar, which costs more than all else."""
        return Request(job, "", tuple(self._tokens(laid_out(job, self._asking))), None, 0.0, self._thinking_tokens)

    def _tokens(self, messages: tuple[Message, ...]) -> list[int]:
        tokenizer = self._model.tokenizer
        if any(self._control.search(message.content) for message in messages):
            return tokenizer.with_bos(self._tokens_apart(messages))
        return tokenizer.with_bos(tokenizer.encode(self._rendered(messages), control=True))

    def _rendered(self, messages: Sequence[Message]) -> str:
        """The conversation in the model's own way, its thinking block closed or opened."""
        template, thinks = self._model.template, bool(self._asking.thinking_tokens)
        rendered = template.render(messages, thinking=thinks)
        return with_thinking(rendered, template.text) if thinks else without_thinking(rendered, template.text)

    def _tokens_apart(self, messages: tuple[Message, ...]) -> list[int]:
        """The template's tokens with control, the messages' without."""
        tokenizer = self._model.tokenizer
        marks = {MARK.format(place): message.content for place, message in enumerate(messages)}
        turns = [Message(message.role, mark) for message, mark in zip(messages, marks, strict=True)]
        rendered = self._rendered(turns)
        if any(rendered.count(mark) != 1 for mark in marks):
            raise JobError(Problem("control_text", "the text spells a control token and this chat template moves text"))
        pieces = re.split("(" + "|".join(map(re.escape, marks)) + ")", rendered)
        tokens: list[int] = []
        for piece in pieces:
            tokens += tokenizer.encode(marks.get(piece, piece), control=piece not in marks)
        return tokens


def laid_out(job: Job, asking: Asking = AS_USUAL, remark: str = "") -> tuple[Message, ...]:
    """The conversation as the model will read it: schema and document stand around the last user turn's words.

    What only another try is told comes last, so that it shares all else with the first.
    """
    last = job.messages[-1]
    content = last.content
    if job.schema and asking.schema_in_prompt:
        content += SCHEMA_LEADS[job.schema.language] + asked(job.schema)
    if job.document is not None:
        parts = (content, DOCUMENT_LEAD + job.document)
        content = "\n\n".join(parts if asking.layout == PROMPT_FIRST else reversed(parts))
    if remark:
        content += REMARK_LEAD + remark + REMARK_END
    return (*job.messages[:-1], replace(last, content=content))


def asked(schema: Schema) -> str:
    """A schema as a model is shown it: compact, its keys in the author's order, without what only tools read."""
    if not schema.is_json:
        return str(next(iter(schema.content.values())))
    if not isinstance(schema.content, dict) or not UNASKED & schema.content.keys():
        return schema.text
    shown = {name: value for name, value in schema.content.items() if name not in UNASKED}
    return json.dumps(shown, ensure_ascii=False, separators=(",", ":"))


def digest(job: Job, card: ModelCard, template: str, asking: Asking = AS_USUAL) -> str:
    """Identifies all that shapes a job's answer, in a part for each of `PARTS`; `id` and `meta` are not among them.

    The first two tell a million jobs apart, and are the longer for it.
    """
    content = _hash(*(part for message in job.messages for part in (message.role, message.content)))
    document = _hash() if job.document is None else _hash(job.document)
    schema, model = job.schema.text if job.schema else None, card.identity
    shared = _shared_parts(schema, job.max_tokens, job.sampling, job.stop, model, template, asking)
    return f"{content}-{document}-{shared}"


@lru_cache(maxsize=256)
def _shared_parts(
    schema: str | None,
    max_tokens: int,
    sampling: Sampling,
    stop: tuple[str, ...],
    model: str,
    template: str,
    asking: Asking,
) -> str:
    """The parts that the jobs of a run have in common, as a rule: schema, model, settings."""
    settings: dict[str, Any] = {
        "layout": asking.layout,
        "max_tokens": max_tokens,
        "sampling": asdict(sampling),
        "stop": stop,
        "grows": asking.grows,
        "thinking": asking.thinking_tokens if tags_of(template) else 0,
        "guided": [GUIDING, asking.schema_in_prompt, asking.closes] if schema is not None else None,
    }
    parts = (_hash() if schema is None else _hash(schema), _hash(model, template), _hash(json.dumps(settings)))
    return "-".join(part[:SHORT_PART] for part in parts)


def _hash(*texts: str) -> str:
    """A part of a digest, of texts that are told apart."""
    found = hashlib.blake2b(digest_size=PART_BYTES)
    for text in texts:
        data = text.encode()
        found.update(b"%d:" % len(data))
        found.update(data)
    return found.hexdigest()


def _check_budget(job: Job, grammar: Grammar) -> None:
    """Refuses a budget that no answer fits into."""
    least = grammar.least_tokens or len(grammar.opening) + 1
    if job.max_tokens < least:
        message = f"max_tokens is {job.max_tokens}, but the shortest answer to the schema takes {least}"
        raise JobError(Problem("budget_too_small", f"{message}; expected a larger budget"))
