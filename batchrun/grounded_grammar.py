"""A rewritten schema as a Lark grammar whose `x-verbatim` strings spell parts of one document and nothing else.

Lark is llguidance's: `%json` takes a schema, `%regex` with `substring_chunks` the parts of a text (a suffix automaton).
Only what leads to such a string is written out: objects, arrays, choices, references.  Characters are the chunks, each
as JSON spells it, so no part can begin or end within an escape.
"""

import json
from typing import Any

from batchrun.grounding import KEYWORD, Document
from batchrun.json_place import spelled
from batchrun.relaxing import parts

WRITTEN_OUT = frozenset({"$defs", "$ref", "anyOf", "type", "properties", "required", "additionalProperties", "items"})
COUNTS = frozenset({"minItems", "maxItems"})
LENGTHS = frozenset({"minLength", "maxLength"})
INSIDE = {
    "object": ("properties", "patternProperties", "additionalProperties"),
    "array": ("items", "prefixItems"),
}
"""Keywords that say what is inside of a value, by its kind."""

MOST_CHARACTERS = 200_000
"""Of a document whose parts the guide spells.  Beyond, the check after decoding is left alone with it."""


class NotWritten(Exception):
    """Such a string stands where this cannot follow."""


def grounded(schema: dict[str, Any], document: Document) -> str:
    """The grammar.  Raises NotWritten."""
    if len(document.pieces) > MOST_CHARACTERS:
        raise NotWritten
    return _Writer(schema).whole(document)


class _Writer:
    """Writes rules `r0`, `r1` ... as they are needed."""

    def __init__(self, schema: dict[str, Any]) -> None:
        self._schema = schema
        self._defs: dict[str, Any] = schema.get("$defs", {})
        self._rules: dict[str, str] = {}
        self._names: dict[str, str] = {}  # of rules, by what they say
        self._terminals: dict[str, str] = {}
        self._leading = _leading(self._defs)

    def whole(self, document: Document) -> str:
        start = self._rule({name: value for name, value in self._schema.items() if name != "$defs"})
        chunks = [spelled(piece) for piece, _, _ in document.pieces]
        lines = [f"start: {start}", *(f"{name}: {body}" for name, body in {**self._rules, **self._terminals}.items())]
        lines.append("SUBSTRING: %regex " + json.dumps({"substring_chunks": chunks}, ensure_ascii=False))
        return "\n".join(lines) + "\n"

    def _rule(self, node: Any) -> str:
        """The name of a rule, or of a terminal, for a node."""
        if not self._leads_there(node):
            return self._add(self._json(node))
        if "$ref" in node:
            return self._referred(node)
        if node.keys() - WRITTEN_OUT - COUNTS - LENGTHS - {KEYWORD, "prefixItems"}:
            raise NotWritten
        ways = []
        if "anyOf" in node:
            if node.keys() - {"anyOf"}:
                raise NotWritten
            ways = [self._rule(branch) for branch in node["anyOf"]]
        else:
            kinds = node.get("type", [])
            ways = [self._kind(kind, node) for kind in ([kinds] if isinstance(kinds, str) else kinds)]
        if not ways:
            raise NotWritten
        return self._add(" | ".join(ways))

    def _kind(self, kind: str, node: dict[str, Any]) -> str:
        """One kind of values of a node.  What is said inside of another kind is nothing to it."""
        if kind == "string" and node.get(KEYWORD) is True:
            return self._verbatim(node)
        if not self._leads_there({name: node[name] for name in INSIDE.get(kind, ()) if name in node}):
            return self._add(self._json({**node, "type": kind}))
        if kind == "object" and "properties" in node and not self._leads_there(node.get("additionalProperties")):
            return self._object(node)
        if kind == "array" and "items" in node and "prefixItems" not in node:
            return self._array(node)
        raise NotWritten

    def _verbatim(self, node: dict[str, Any]) -> str:
        least, most = node.get("minLength", 0), node.get("maxLength", "")
        name = f"VERBATIM_{least}_{most}"
        length = rf' & /"(\\.|[^\\"]){{{least},{most}}}"/' if LENGTHS & node.keys() else ""
        self._terminals[name] = f'("\\"" SUBSTRING "\\""){length}'
        return name

    def _array(self, node: dict[str, Any]) -> str:
        item = self._rule(node["items"])
        least, most = int(node.get("minItems", 0)), node.get("maxItems")
        if most == 0:
            return self._add('"[" "]"')
        more = f'("," {item}){{{max(least - 1, 0)},{"" if most is None else most - 1}}}'
        return self._add(f'"[" {item} {more} "]"' if least else f'"[" ({item} {more})? "]"')

    def _object(self, node: dict[str, Any]) -> str:
        """The listed properties in their order, and no others, whatever else the schema would let in.

        `later` rules follow a property, the others begin the object.
        """
        required = set(node.get("required", ()))
        members = [(name, value) for name, value in node["properties"].items() if value is not False]
        if required - {name for name, _ in members}:
            raise NotWritten
        first = later = ""
        for name, value in reversed(members):
            member = f"{_quoted(json.dumps(name, ensure_ascii=False) + ':')} {self._rule(value)}"
            begun, gone_on = f"{member} {later}".strip(), f'"," {member} {later}'.strip()
            if name not in required:
                begun, gone_on = f"({begun})", f"({gone_on})"
                begun = f"{begun} | {first}" if first else f"{begun}?"
                gone_on = f"{gone_on} | {later}" if later else f"{gone_on}?"
            first, later = self._add(begun), self._add(gone_on)
        return self._add(f'"{{" {first} "}}"')

    def _referred(self, node: dict[str, Any]) -> str:
        name = _referred_name(node)
        if node.keys() - {"$ref"}:
            raise NotWritten
        rule = f"definition_{name}"
        if rule not in self._rules:
            self._rules[rule] = ""  # its own circle ends here
            self._rules[rule] = self._rule(self._defs[name])
        return rule

    def _leads_there(self, node: Any) -> bool:
        """Whether a verbatim string stands in a node or behind its references."""
        return any(part.get(KEYWORD) is True or _referred_name(part) in self._leading for part in parts(node))

    def _json(self, node: Any) -> str:
        node = {} if node is True else node
        if not isinstance(node, dict):
            raise NotWritten
        defs = {"$defs": self._defs} if "$ref" in json.dumps(node) else {}
        options = {"x-guidance": {"whitespace_flexible": False}}
        return "%json " + json.dumps({**node, **defs, **options}, ensure_ascii=False)

    def _add(self, body: str) -> str:
        name = self._names.setdefault(body, f"r{len(self._rules)}")
        self._rules[name] = body
        return name


def _leading(defs: dict[str, Any]) -> frozenset[str]:
    """The definitions in which, or behind whose references, a verbatim string stands."""
    referring: dict[str, set[str]] = {}
    waiting = []
    for name, definition in defs.items():
        for part in parts(definition):
            referring.setdefault(_referred_name(part), set()).add(name)
            waiting += [name] if part.get(KEYWORD) is True else []
    found: set[str] = set()
    while waiting:
        name = waiting.pop()
        waiting += referring.get(name, set()) - found
        found.add(name)
    return frozenset(found)


def _referred_name(node: dict[str, Any]) -> str:
    return str(node.get("$ref", "")).removeprefix("#/$defs/")


def _quoted(text: str) -> str:
    """A text as a Lark string."""
    return json.dumps(text, ensure_ascii=False)
