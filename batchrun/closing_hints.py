"""What a rewritten schema gives away about short answers: hints for the search of `closing.py`.  Pure."""

from typing import Any

from batchrun.closing import Hints
from batchrun.formats import ENGINE_FORMATS
from batchrun.json_place import spelled
from batchrun.keywords import EXAMPLES
from batchrun.pattern_tails import tails
from batchrun.relaxing import parts

MOST_JUMPS = 256
LONGEST_TEXT = 1 << 16


def hints_of(schema: Any) -> Hints:
    """The names that are required somewhere, and texts that lead strings to an end: the shortest listed values, ways
    through patterns, short texts of known formats."""
    keys: set[bytes] = set()
    jumps: set[bytes] = set()
    for part in parts(schema):
        keys |= {_bytes(name) + b'"' for name in part.get("required", ())}
        least = part.get("minLength", 0)
        jumps |= {b"a" * least} if least <= LONGEST_TEXT else set()
        texts = [value for value in part.get("enum", ()) if isinstance(value, str)]
        jumps |= {_bytes(text) for text in sorted(texts, key=len)[:1]}
        jumps |= {_bytes(text) for text in tails(part["pattern"])} if "pattern" in part else set()
        jumps |= {_bytes(text) for text in part.get(EXAMPLES, ())}
        example = ENGINE_FORMATS.get(part.get("format", ""), "")
        jumps |= {_bytes(example[at:]) for at in range(len(example))}
    shortest = sorted(jumps - {b""}, key=lambda jump: (len(jump), jump))
    return Hints(keys=frozenset(keys), jumps=tuple(shortest[:MOST_JUMPS]))


def _bytes(text: str) -> bytes:
    return spelled(text).encode(errors="surrogatepass")
