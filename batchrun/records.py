"""Reads one line as one JSON object, strictly: what is wrong with it is said with its column."""

import json
import re
from collections import Counter
from typing import Any, NoReturn

from batchrun.core import Problem
from batchrun.errors import JobError
from batchrun.schemas import MOST_NESTED, is_too_deep, kind_of

_SUSPECT = re.compile(rb"\\[uU]|[0-9][eE]|[0-9]{300}")
"""What half a surrogate pair or a number beyond all floats needs: few lines have it, and only those are looked into."""


def parse_object(line: bytes) -> dict[str, Any]:
    """The JSON object of a line.  Raises JobError with the column where it breaks."""
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(line[: error.start].decode("utf-8")) + 1
        refuse("bad_encoding", f"byte 0x{line[error.start]:02x} is not UTF-8; expected UTF-8 text", column)
    try:
        record = _DECODER.decode(text)
        if not isinstance(record, dict):
            refuse("bad_json", f"expected a JSON object, found {kind_of(record)}", 1)
        if line.count(b"[") + line.count(b"{") > MOST_NESTED and is_too_deep(record):
            refuse("bad_json", f"nested more than {MOST_NESTED} levels deep")
        if _SUSPECT.search(line):
            json.dumps(record, ensure_ascii=False, allow_nan=False).encode()
    except json.JSONDecodeError as error:
        refuse("bad_json", f"{error.msg}; expected one JSON object on the line", error.colno)
    except UnicodeEncodeError:
        refuse("bad_encoding", r"a string holds half a surrogate pair (\ud800 to \udfff); expected whole characters")
    except RecursionError:
        refuse("bad_json", f"nested more than {MOST_NESTED} levels deep")
    except ValueError as error:
        refuse("bad_json", _plain(str(error)))
    return record


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    record = dict(pairs)
    if len(record) < len(pairs):
        twice = next(name for name, count in Counter(name for name, _ in pairs).items() if count > 1)
        raise ValueError(f"key {named(twice)} stands twice in one object")
    return record


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON; expected a number")


def _plain(reason: str) -> str:
    """A reason in words for people who do not write Python."""
    if "integer string conversion" in reason:
        return "a whole number has more than 4300 digits"
    return "a number is beyond what JSON readers hold" if "not JSON compliant" in reason else reason


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_constant)


def named(text: str) -> str:
    """A text from the input, quoted and cut to what a message can hold."""
    return repr(text if len(text) <= 80 else text[:77] + "...")


def shown(value: Any) -> str:
    """A value from the input as JSON, cut to what a message can hold."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 40 else text[:37] + "..."


def refuse(code: str, message: str, column: int | None = None) -> NoReturn:
    raise JobError(Problem(code, message, column=column))
