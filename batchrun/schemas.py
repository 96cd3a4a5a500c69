"""JSON Schemas: checked, and used to validate answers.  The only file that validates with jsonschema.

Validation follows the draft that `$schema` names (2020-12 otherwise) and checks formats.  References are resolved
inside the schema and to the published meta-schemas (`references.py`); nothing is ever fetched.
"""

import json
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from typing import Any, cast
from urllib.parse import quote

import jsonschema
from jsonschema.protocols import Validator
from referencing.exceptions import Unresolvable
from referencing.jsonschema import SchemaRegistry

from batchrun.core import Language, Problem, Quote, Schema
from batchrun.errors import JobError
from batchrun.grounding import KEYWORD, demands_document, document, marked, misuse, without_demands
from batchrun.references import draft_of, registry_with
from batchrun.schema_walk import pointer
from batchrun.time_limit import time_limit

VALIDATORS_KEPT = 256
PROBLEMS_SHOWN = 8
CHECK_S = 1.0
MOST_BYTES = 4 << 20
MOST_NESTED = 100
"""Levels of a JSON value.  Deeper ones are refused where they come in: nothing later then meets a recursion limit."""

IN_DOCUMENT = "text of the document"
"""The format that stands for a demand of verbatim text in what jsonschema is given."""

CHECKER_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What checks inside jsonschema let out: for `a{99999999999999999999}` as a pattern, for a number beyond all floats."""

FAILURES = (TimeoutError, Unresolvable, RecursionError, *CHECKER_FAILURES)
"""All for which a check has no outcome."""


def validate(schema: Schema, value: Any, text: str | None = None) -> list[Problem]:
    """What is wrong with an answer, at most `PROBLEMS_SHOWN` things, each with its place; empty if it is valid.

    `text`: the document that verbatim strings have to stand in.
    """
    try:
        with time_limit(CHECK_S):
            return [
                Problem(*_said(error), path=pointer(error.absolute_path))
                for error, _ in zip(_checker(schema, text).iter_errors(value), range(PROBLEMS_SHOWN), strict=False)
            ]
    except TimeoutError:
        return [Problem("schema", f"the answer could not be checked within {CHECK_S:g} s: see the schema's patterns")]
    except Unresolvable as error:
        return [Problem("schema", f"the schema refers to {error.ref!r}, which is not in it")]
    except RecursionError:
        return [Problem("schema", "the schema refers to itself without end, or too often for an answer this deep")]
    except CHECKER_FAILURES as error:
        return [Problem("schema", f"the answer could not be checked: {_short(str(error))}")]


def quotes(schema: Schema, value: Any, text: str) -> tuple[Quote, ...]:
    """Where in a document the verbatim strings of a valid answer stand; none where that cannot be told."""
    if not schema.is_grounded:
        return ()
    try:
        with time_limit(CHECK_S):
            found = dict(_places(_grounded(schema, lambda string: document(text).find(string) is None), value, text))
    except FAILURES:
        return ()
    return tuple(Quote(path, *found[path]) for path in sorted(found))


def _places(checker: Validator, value: Any, text: str) -> Iterator[tuple[str, tuple[int, int]]]:
    """The places of the strings that a checker, which knows each of them to be found, refuses for being found."""
    waiting = list(checker.iter_errors(value))
    while waiting:
        error = waiting.pop()
        waiting += error.context or ()
        place = document(text).find(str(error.instance)) if _is_of_document(error) else None
        if place:
            yield pointer(error.absolute_path), place


def is_valid_text(schema: Schema, text: str | None, answer: bytes) -> bool:
    """Whether an answer is JSON that passes a schema.  `text`: the document, as for `validate`."""
    try:
        return not validate(schema, json.loads(answer), text)
    except (ValueError, RecursionError):
        return False


@lru_cache(maxsize=VALIDATORS_KEPT)
def checked(name: str, text: str) -> Schema:
    """A schema from its compact text.  Raises JobError where it is no valid JSON Schema.

    `{"regex": "..."}` and `{"lark": "..."}` are constraints in other languages: the grammar engine checks them.
    """
    content = json.loads(text)
    if not isinstance(content, dict | bool):
        raise JobError(Problem("schema_invalid", f"schema {name!r} is {kind_of(content)}; expected an object"))
    if language := _other_language(content):
        return Schema(name, text, content, language)
    try:
        with time_limit(CHECK_S):
            _class(content).check_schema(cast(dict[str, Any], content))  # booleans are schemas too, its stub forgets
    except TimeoutError as error:
        message = f"schema {name!r} could not be checked within {CHECK_S:g} s"
        raise JobError(Problem("schema_invalid", message)) from error
    except jsonschema.SchemaError as error:
        place = pointer(error.absolute_path)
        message = f"schema {name!r} is not a valid JSON Schema at {place or '/'}: {_short(error.message)}"
        raise JobError(Problem("schema_invalid", message, path=place)) from error
    except RecursionError as error:
        raise JobError(Problem("schema_invalid", f"schema {name!r} is nested too deeply")) from error
    except CHECKER_FAILURES as error:
        message = f"schema {name!r} is not a valid JSON Schema: {_short(str(error))}"
        raise JobError(Problem("schema_invalid", message)) from error
    if stray := misuse(content):
        message = f"schema {name!r} has {KEYWORD} at {stray}; expected true or false, at a string"
        raise JobError(Problem("schema_invalid", message, path=stray))
    return Schema(name, text, content, is_grounded=demands_document(content))


def ungrounded(schema: Schema) -> Schema:
    """The same schema without its demands that text stands in the document."""
    if not schema.is_grounded:
        return schema
    content = without_demands(schema.content)
    return checked(schema.name, compact(schema.name, content))


def _other_language(content: Any) -> Language | None:
    for keyword, language in (("regex", Language.REGEX), ("lark", Language.LARK)):
        if isinstance(content, dict) and content.keys() == {keyword} and isinstance(content[keyword], str):
            return language
    return None


def is_too_deep(value: Any) -> bool:
    """Whether a JSON value has more than `MOST_NESTED` levels of lists and objects."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        if not inner:
            return False
        level = [part for parts in inner for part in parts]
    return True


def admits(schema: Schema, part: Any, value: Any) -> bool:
    """Whether a value passes a part of a schema, taken by itself; True where that cannot be told."""
    cls = draft_of(part, _class(schema.content))
    try:
        with time_limit(CHECK_S):
            return bool(cls(part, registry=registry_with(part), format_checker=_formats(cls)).is_valid(value))
    except FAILURES:
        return True


def knows_format(schema: Schema, name: str) -> bool:
    """Whether answers to a schema are checked for a format."""
    return name in _formats(_class(schema.content)).checkers


def _checker(schema: Schema, text: str | None) -> Validator:
    if not schema.is_grounded:
        return _validator(schema)
    return _grounded(schema, lambda string: document(text or "").find(string) is not None)


def _grounded(schema: Schema, passes: Callable[[str], bool]) -> Validator:
    """A validator that passes verbatim strings of which `passes` says so.

    They are of a format, for jsonschema: unlike a keyword of our own, it holds below subschemas of other drafts too.
    """
    cls = _class(schema.content)
    formats = jsonschema.FormatChecker(())
    formats.checkers = dict(_formats(cls).checkers)
    formats.checks(IN_DOCUMENT)(lambda value: not isinstance(value, str) or passes(value))
    content, registry = _marked(schema)
    return cls(content, registry=registry, format_checker=formats)


@lru_cache(maxsize=VALIDATORS_KEPT)
def _marked(schema: Schema) -> tuple[Any, SchemaRegistry]:
    content = marked(schema.content, IN_DOCUMENT)
    return content, registry_with(content)


def _said(error: jsonschema.ValidationError) -> tuple[str, str]:
    """The code and the message of a problem."""
    if _is_of_document(error):
        return "not_in_document", _short(f"not in document: {error.instance!r}")
    return "schema", _short(error.message)


def _is_of_document(error: jsonschema.ValidationError) -> bool:
    return (error.validator, error.validator_value) == ("format", IN_DOCUMENT)


@lru_cache(maxsize=VALIDATORS_KEPT)
def _validator(schema: Schema) -> Validator:
    cls = _class(schema.content)
    # a registry of our own: the default one would fetch references from the network
    return cls(schema.content, registry=registry_with(schema.content), format_checker=_formats(cls))


@cache
def _formats(cls: type[Validator]) -> jsonschema.FormatChecker:
    """The formats of a draft.  IRIs are checked as the URIs they map to, which needs no grammar compiled at start."""
    known = cls.FORMAT_CHECKER
    formats = jsonschema.FormatChecker(())
    formats.checkers = dict(known.checkers)
    for iri, uri in (("iri", "uri"), ("iri-reference", "uri-reference")):
        formats.checks(iri)(lambda text, uri=uri: not isinstance(text, str) or known.conforms(_as_uri(text), uri))
    return formats


def _as_uri(iri: str) -> str:
    """RFC 3987, section 3.1: what is beyond ASCII is written as escaped bytes."""
    return re.sub("[^\0-\x9f\ufdd0-\ufdef\ufff0-\uffff]+", lambda found: quote(found[0]), iri)


def _class(content: Any) -> type[Validator]:
    return draft_of(content, jsonschema.Draft202012Validator)


def compact(name: str, value: Any) -> str:
    """A schema as text that every later step can hold: no NaN, no half of a surrogate pair, no endless nesting."""
    if is_too_deep(value):
        raise JobError(Problem("schema_invalid", f"schema {name!r} is nested more than {MOST_NESTED} levels deep"))
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        text.encode()
    except UnicodeEncodeError as error:
        raise JobError(Problem("schema_invalid", f"schema {name!r} holds half a surrogate pair")) from error
    except ValueError as error:
        raise JobError(Problem("schema_invalid", f"schema {name!r} is not JSON: {error}")) from error
    check_size(name, len(text))
    return text


def check_size(name: str, size: int) -> None:
    """Raises JobError for a schema of so many bytes that holding it in every form would cost too much."""
    if size > MOST_BYTES:
        message = f"schema {named(name)} is over {MOST_BYTES} bytes; expected a smaller one"
        raise JobError(Problem("schema_invalid", message))


def named(name: str) -> str:
    """A schema's name, as messages show it."""
    return repr(name if len(name) <= 80 else name[:77] + "...")


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-80:]}"


def kind_of(value: Any) -> str:
    """What a JSON value is, in words; for a value that is no object."""
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), "a number")
