"""JSON Schemas: found, checked, and used to validate answers.  The only file that knows jsonschema.

A schema is named by a file in a schemas folder, by a path, or given inline.  Validation follows the draft that
`$schema` names (2020-12 otherwise) and checks formats.  References are resolved inside the schema and to the published
meta-schemas; nothing is ever fetched.
"""

import difflib
import json
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import jsonschema
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from jsonschema_specifications import REGISTRY
from referencing.exceptions import Unresolvable

from batchrun.confinement import Outside, resolved_below
from batchrun.core import Problem, Schema
from batchrun.errors import JobError
from batchrun.line import Origin
from batchrun.time_limit import time_limit

VALIDATORS_KEPT = 256
PROBLEMS_SHOWN = 8
CHECK_S = 2.0
MOST_BYTES = 4 << 20
MOST_NESTED = 100
"""Levels of a JSON value.  Deeper ones are refused where they come in: nothing later then meets a recursion limit."""

CHECKER_FAILURES = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""What checks inside jsonschema let out: for `a{99999999999999999999}` as a pattern, for a number beyond all floats."""


class SchemaFolders:
    """Where the schema names of a job file are looked up: `folders` for names, `bases` for relative paths."""

    def __init__(self, folders: Sequence[Path], bases: Sequence[Path]) -> None:
        self._folders = folders
        self._bases = bases
        self._by_name: dict[tuple[str | Path, ...], Schema] = {}

    def load(self, value: Any, origin: Origin | None = None) -> Schema:
        """The schema that a job names or holds.  Raises JobError: unknown, unreadable, or no valid schema.

        `origin`: of a line that names it, whose files must lie below its root or in one of the folders.  None: the user
        names it, and any file will do.
        """
        if not isinstance(value, str):
            return checked("inline", _compact("inline", value))
        key = (value, *((origin.base, origin.root) if origin else ()))
        if key not in self._by_name:
            self._by_name[key] = self._read(value, origin)
        return self._by_name[key]

    def _read(self, name: str, origin: Origin | None) -> Schema:
        path = self._find(name, origin)
        try:
            with path.open("rb") as file:
                data = file.read(MOST_BYTES + 1)
            _check_size(name, len(data))
            return checked(name, _compact(name, json.loads(data.decode("utf-8-sig"))))
        except OSError as error:
            raise JobError(Problem("schema_unreadable", f"schema {name!r}: {error.strerror}")) from error
        except (ValueError, RecursionError) as error:
            raise JobError(Problem("schema_invalid", f"schema {name!r} is not JSON: {error}")) from error

    def _find(self, name: str, origin: Origin | None) -> Path:
        is_path = "/" in name or name.endswith(".json")
        bases = (*self._bases, origin.base) if origin else self._bases
        by_path = [place / name for place in (*bases, *self._folders)]
        places = by_path if is_path else [folder / f"{name}.json" for folder in self._folders]
        for path in places:
            try:
                if path.is_file():
                    return resolved_below(path, origin.root, *self._folders) if origin else path
            except Outside:
                message = f"schema {_named(name)} lies outside of {_named(str(origin and origin.root))}; see --root"
                raise JobError(Problem("schema_unreadable", message)) from None
            except OSError as error:
                raise JobError(Problem("schema_unreadable", f"schema {_named(name)}: {error.strerror}")) from error
        known = sorted({file.stem for folder in self._folders if folder.is_dir() for file in folder.glob("*.json")})
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(known[:10]) or 'none'}"
        raise JobError(Problem("schema_unknown", f"schema {_named(name)} not found{'' if is_path else hint}"))


def validate(schema: Schema, value: Any) -> list[Problem]:
    """What is wrong with an answer, at most `PROBLEMS_SHOWN` things, each with its place; empty if it is valid."""
    try:
        with time_limit(CHECK_S):
            return [
                Problem("schema", _short(error.message), path=pointer(error.absolute_path))
                for error, _ in zip(_validator(schema).iter_errors(value), range(PROBLEMS_SHOWN), strict=False)
            ]
    except TimeoutError:
        return [Problem("schema", f"the answer could not be checked within {CHECK_S:g} s: see the schema's patterns")]
    except Unresolvable as error:
        return [Problem("schema", f"the schema refers to {error.ref!r}, which is not in it")]
    except RecursionError:
        return [Problem("schema", "the schema refers to itself without end, or too often for an answer this deep")]
    except CHECKER_FAILURES as error:
        return [Problem("schema", f"the answer could not be checked: {_short(str(error))}")]


@lru_cache(maxsize=VALIDATORS_KEPT)
def checked(name: str, text: str) -> Schema:
    """A schema from its compact text.  Raises JobError where it is no valid JSON Schema."""
    content = json.loads(text)
    if not isinstance(content, dict | bool):
        raise JobError(Problem("schema_invalid", f"schema {name!r} is {kind_of(content)}; expected an object"))
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
    return Schema(name, text, content)


def pointer(path: Iterable[str | int]) -> str:
    """A JSON pointer (RFC 6901)."""
    return "".join("/" + str(part).replace("~", "~0").replace("/", "~1") for part in path)


def is_too_deep(value: Any) -> bool:
    """Whether a JSON value has more than `MOST_NESTED` levels of lists and objects."""
    level = [value]
    for _ in range(MOST_NESTED + 1):
        inner = [part.values() if isinstance(part, dict) else part for part in level if isinstance(part, dict | list)]
        if not inner:
            return False
        level = [part for parts in inner for part in parts]
    return True


@lru_cache(maxsize=VALIDATORS_KEPT)
def _validator(schema: Schema) -> Validator:
    cls = _class(schema.content)
    # a registry of our own: the default one would fetch references from the network
    return cls(schema.content, registry=REGISTRY, format_checker=_formats(cls))


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
    """The draft that `$schema` names.  One that is no text is left for that draft's own check to refuse."""
    if isinstance(content, dict) and not isinstance(content.get("$schema", ""), str):
        return jsonschema.Draft202012Validator
    return validator_for(content, default=jsonschema.Draft202012Validator)


def _check_size(name: str, size: int) -> None:
    if size > MOST_BYTES:
        message = f"schema {_named(name)} is over {MOST_BYTES} bytes; expected a smaller one"
        raise JobError(Problem("schema_invalid", message))


def _compact(name: str, value: Any) -> str:
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
    _check_size(name, len(text))
    return text


def _short(text: str) -> str:
    return text if len(text) <= 300 else f"{text[:200]} ... {text[-80:]}"


def _named(name: str) -> str:
    return repr(name if len(name) <= 80 else name[:77] + "...")


def kind_of(value: Any) -> str:
    """What a JSON value is, in words; for a value that is no object."""
    return {list: "a list", str: "a string", type(None): "null"}.get(type(value), "a number")
