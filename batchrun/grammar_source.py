"""From a schema to what the grammar engine compiles, and what is known of it: keywords, hints, what it may not be.

The closest schema is made (`grammar_schema.py`), what nothing fits is refused (`satisfiable.py`), and where the engine
still refuses something it is loosened (`relaxing.py`).  The engine itself is asked through a function.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from batchrun.closing import Hints
from batchrun.closing_hints import hints_of
from batchrun.core import Language, Problem, Schema
from batchrun.errors import JobError
from batchrun.grammar_schema import BrokenReference, Rewritten, rewrite
from batchrun.grammar_subschema import Oracles
from batchrun.grounded_grammar import NotWritten, grounded
from batchrun.grounding import KEYWORD, document
from batchrun.keywords import Keyword, Treatment
from batchrun.least_size import least_bytes
from batchrun.references import root_scope
from batchrun.relaxing import culprit, relaxed
from batchrun.satisfiable import Reason, pruned
from batchrun.schemas import admits, knows_format

Refusal = Callable[[Any], str]
"""Why the engine refuses a JSON Schema; empty if it takes it."""

LONGEST_ANSWER_BYTES = 1 << 16
"""Of the shortest answer to a schema: beyond that, no budget holds one."""

UNSATISFIABLE = "Unsatisfiable schema"


@dataclass(frozen=True, slots=True)
class GrammarSource:
    """What is to be compiled: a JSON Schema as an object, an expression or a grammar as text."""

    language: Language
    content: Any
    hints: Hints
    keywords: tuple[Keyword, ...] = ()

    @property
    def is_exact(self) -> bool:
        """Whether the grammar lets nothing through that the schema does not."""
        return not any(keyword.treatment is Treatment.CHECKED for keyword in self.keywords)


def grammar_source(schema: Schema, refusal: Refusal, quoted: str | None = None) -> GrammarSource:
    """The grammar of a schema.  Raises JobError where nothing fits it, or a reference leads nowhere.

    `quoted`: the document that verbatim strings are to be parts of; without one they are left to the check.
    """
    if not schema.is_json:
        (text,) = schema.content.values()
        return GrammarSource(schema.language, text, Hints(is_json=False))
    try:
        return _closest(schema, refusal, quoted)
    except BrokenReference as error:
        message = f"schema {schema.name!r} refers to {error.args[0]!r} at {error.place}, which is not in it"
        raise JobError(Problem("schema_invalid", message, path=error.place)) from error
    except RecursionError as error:
        raise JobError(Problem("schema_invalid", f"schema {schema.name!r} is nested too deeply")) from error


def _closest(schema: Schema, refusal: Refusal, quoted: str | None) -> GrammarSource:
    oracles = Oracles(lambda part: not refusal(part), partial(admits, schema), partial(knows_format, schema))
    closest = rewrite(schema.content, root_scope(schema.content), oracles)
    content = pruned(closest.content, closest.places)
    if isinstance(content, Reason):
        raise _unsatisfiable(schema, content.place, content.text)
    keywords = {(keyword.place, keyword.name): keyword for keyword in closest.keywords}
    if isinstance(content, dict) and (reason := refusal(content)):
        if UNSATISFIABLE in reason:
            part = culprit(content, lambda inner: UNSATISFIABLE in refusal(inner))
            inner = refusal({**part, "$defs": content.get("$defs", {})}) or reason
            raise _unsatisfiable(schema, closest.places.get(id(part), ""), inner.partition(": ")[2])
        content = relaxed(content, refusal, partial(_leave, closest, keywords))
    if (least := least_bytes(content)) > LONGEST_ANSWER_BYTES:
        message = f"the shortest answer to schema {schema.name!r} takes {least} bytes"
        raise JobError(Problem("schema_too_long", f"{message}; expected one of at most {LONGEST_ANSWER_BYTES}"))
    language, hints = Language.JSON_SCHEMA, hints_of(content)
    if any(name == KEYWORD for _, name in keywords):
        text = _grounded(content, quoted)
        if text is None:
            _leave_all(keywords, KEYWORD, "the guide cannot follow it there")
        else:
            language, content = Language.LARK, text
    return GrammarSource(language, content, hints, tuple(keywords.values()))


def _grounded(content: Any, quoted: str | None) -> str | None:
    try:
        return grounded(content, document(quoted)) if quoted is not None else None
    except NotWritten:
        return None


def _leave_all(keywords: dict[tuple[str, str], Keyword], name: str, note: str) -> None:
    """Leaves a keyword to the check wherever it stands."""
    for place, known in [key for key in keywords if key[1] == name]:
        if keywords[place, known].treatment is Treatment.ENFORCED:
            keywords[place, known] = Keyword(place, known, Treatment.CHECKED, note)


def _leave(closest: Rewritten, keywords: dict[tuple[str, str], Keyword], part: Any, name: str) -> None:
    """Takes down that a keyword was dropped: by its name, or all that were written as it."""
    place = closest.places.get(id(part), "")
    names = [name] if (place, name) in keywords else [known for at, known in keywords if at == place]
    for known in names:
        if keywords[place, known].treatment is Treatment.ENFORCED:
            keywords[place, known] = Keyword(place, known, Treatment.CHECKED, "the engine refuses it here")


def _unsatisfiable(schema: Schema, place: str, reason: str) -> JobError:
    text = " ".join(reason.split()).partition(" while processing")[0]
    message = f"nothing can satisfy schema {schema.name!r}: at {place or '/'}: {text}"
    return JobError(Problem("schema_unsatisfiable", message, path=place))
