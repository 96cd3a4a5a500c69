"""A model's own way to write a conversation down, whatever file it came from."""

from collections.abc import Sequence

import jinja2
from llama_cpp.llama_chat_format import Jinja2ChatFormatter

from batchrun.backends.base import ChatTemplate, Tokenizer
from batchrun.core import Message, Problem
from batchrun.errors import JobError, ModelError
from batchrun.time_limit import time_limit

RENDER_S = 2.0
MOST_WRITTEN = 100
"""Times the length of the messages that a template may make of them: one that makes more is broken, or means harm."""

TEMPLATE_FAILURES = (
    ArithmeticError,
    AttributeError,
    LookupError,
    MemoryError,
    RecursionError,
    TimeoutError,
    TypeError,
    ValueError,
)
NO_TEMPLATE = "{} has no chat template: prompts are used as plain text"
PROBE = "\ue000"  # a private-use character: no template has a meaning for it


class JinjaTemplate:
    """A template in Jinja, rendered in a sandbox (llama-cpp-python's)."""

    def __init__(self, text: str, bos: str, eos: str) -> None:
        self.text = text
        self._formatter = Jinja2ChatFormatter(template=text, eos_token=eos, bos_token=bos)

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        turns = [{"role": message.role, "content": message.content} for message in messages]
        try:
            with time_limit(RENDER_S):
                text = str(self._formatter(messages=turns, enable_thinking=thinking).prompt)
        except (jinja2.TemplateError, *TEMPLATE_FAILURES) as error:
            raise _refused(" ".join(str(error).split())[:200] or type(error).__name__) from error
        if len(text) > MOST_WRITTEN * (1000 + sum(len(message.content) for message in messages)):
            raise _refused(f"it makes {len(text)} characters of it")
        return text


def _refused(reason: str) -> JobError:
    return JobError(Problem("template_refused", f"the model's chat template refuses this job: {reason}"))


class PlainTemplate:
    """For a model without a template: the turns, one after another, and the answer continues them."""

    text = ""

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        return "\n\n".join(message.content for message in messages) + "\n\n"


def chat_template(source: str | None, bos: str, eos: str, file: str) -> ChatTemplate:
    """The template of a model file.  Raises ModelError where it cannot be read."""
    if not source:
        return PlainTemplate()
    try:
        return JinjaTemplate(source, bos, eos)
    except jinja2.TemplateError as error:
        raise ModelError(f"the chat template of {file} is broken: {error}") from error


def after_an_answer(template: ChatTemplate, tokenizer: Tokenizer) -> int | None:
    """The first token that the template writes behind an answer; None where it writes none."""
    try:
        rendered = template.render([Message("user", "Hi"), Message("assistant", PROBE)])
    except JobError:
        return None
    after = tokenizer.encode(rendered.partition(PROBE)[2], control=True)
    return after[0] if after else None
