"""Short texts that lead to a match of a regular expression, from its middle too.  Hints and no more: pure guesswork.

`^[A-Z]+(_LEFT|_RIGHT)$` gives `A_LEFT` and `_LEFT`.  Who looks for the shortest way to an end tries them where single
characters show no progress; the grammar says which of them are right.  What a reader of such expressions would need to
know beyond that (back references, look-around, flags) is read past.
"""

from dataclasses import dataclass
from functools import lru_cache
from string import ascii_lowercase, ascii_uppercase, digits

PREFERRED = "a0A_-.:/ " + ascii_lowercase + ascii_uppercase + digits + "@+#,;=?&%!$'()*<>[]^`{|}~\"\\"
CLASSES = {"d": digits, "w": "a0A_" + ascii_lowercase + ascii_uppercase + digits, "s": " ", "h": " ", "v": "\n"}
CONTROLS = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "0": "\0", "a": "\a"}
LONGEST_REPEAT = 4096
MOST_TAILS = 32
MOST_NESTED = 40
WIDEST_RANGE = 512


@dataclass(frozen=True, slots=True)
class _Char:
    """One character, already chosen; empty for what takes no room."""

    text: str


@dataclass(frozen=True, slots=True)
class _Repeat:
    """At least so many of something."""

    node: "_Node"
    least: int


@dataclass(frozen=True, slots=True)
class _Choice:
    """One of several runs."""

    runs: tuple[tuple["_Node", ...], ...]


_Node = _Char | _Repeat | _Choice


@lru_cache(maxsize=1024)
def tails(pattern: str) -> tuple[str, ...]:
    """Texts that may bring a string to a match, the shortest first; none where the pattern cannot be read."""
    try:
        tree = _Reader(pattern).whole()
    except (IndexError, ValueError, RecursionError):
        return ()
    found = {text for text in _tails(tree) if text}
    return tuple(sorted(found, key=lambda text: (len(text), text))[:MOST_TAILS])


def _shortest(node: _Node) -> str:
    if isinstance(node, _Char):
        return node.text
    if isinstance(node, _Repeat):
        return _shortest(node.node) * min(node.least, LONGEST_REPEAT) if node.least else ""
    return min(("".join(map(_shortest, run)) for run in node.runs), key=len)


def _tails(node: _Node) -> list[str]:
    """Of a choice: each of its runs from each of its places on."""
    if isinstance(node, _Char):
        return [node.text]
    if isinstance(node, _Repeat):
        whole = _shortest(node.node)
        counts = {count for count in (0, 1, node.least - 1, node.least) if 0 <= count <= LONGEST_REPEAT}
        return [tail + whole * max(count - 1, 0) for count in counts for tail in _tails(node.node)]
    found = []
    for run in node.runs:
        rest = ""
        for part in reversed(run):
            found += [tail + rest for tail in _tails(part)]
            rest = _shortest(part) + rest
            found.append(rest)
    return found


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._depth = 0

    def whole(self) -> _Choice:
        tree = self._choice()
        if self._at < len(self._text):
            raise ValueError("a bracket too many")
        return tree

    def _choice(self) -> _Choice:
        runs: list[list[_Node]] = [[]]
        while self._at < len(self._text) and self._text[self._at] != ")":
            if self._text[self._at] == "|":
                self._at += 1
                runs.append([])
            else:
                runs[-1].append(self._repeated(self._atom()))
        return _Choice(tuple(map(tuple, runs)))

    def _atom(self) -> _Node:
        char = self._take()
        if char == "(":
            return self._group()
        if char == "[":
            return _Char(self._bracket())
        if char == "\\":
            return _Char(self._escaped())
        return _Char("" if char in "^$" else "a" if char == "." else char)

    def _group(self) -> _Node:
        self._depth += 1
        if self._depth > MOST_NESTED:
            raise ValueError("nested too deeply")
        takes_room = True
        if self._text.startswith("?", self._at):
            head = self._text[self._at : self._at + 3]
            if head.startswith(("?P<", "?<")) and not head.startswith(("?<=", "?<!")):
                self._at = self._text.index(">", self._at) + 1
            elif head.startswith(("?=", "?!", "?<")):
                takes_room = False
                self._at += 3 if head.startswith("?<") else 2
            else:
                while self._take() not in ":)":
                    pass
                if self._text[self._at - 1] == ")":
                    self._depth -= 1
                    return _Char("")
        inner = self._choice()
        if self._take() != ")":
            raise ValueError("a bracket too few")
        self._depth -= 1
        return inner if takes_room else _Char("")

    def _repeated(self, node: _Node) -> _Node:
        while self._at < len(self._text) and self._text[self._at] in "*+?{":
            char = self._take()
            least = 1 if char == "+" else 0
            if char == "{":
                end = self._text.find("}", self._at)
                bounds = self._text[self._at : end].split(",") if end > 0 else []
                if not bounds or not bounds[0].strip().isdigit():
                    self._at -= 1
                    break
                least, self._at = int(bounds[0]), end + 1
            node = _Repeat(node, least)
        return node if self._at >= len(self._text) or self._text[self._at] != "{" else self._literal_brace(node)

    def _literal_brace(self, node: _Node) -> _Node:
        self._at += 1
        return _Choice(((node, _Char("{")),))

    def _escaped(self) -> str:
        char = self._take()
        if char in CLASSES:
            return CLASSES[char][0]
        if char in "DWS":
            return {"D": "a", "W": "-", "S": "a"}[char]
        if char in "bBAZzG":
            return ""
        if char in "ux":
            return self._code(4 if char == "u" else 2)
        return CONTROLS.get(char, char)

    def _code(self, width: int) -> str:
        code = self._text[self._at : self._at + width]
        self._at += width
        return chr(int(code, 16))

    def _bracket(self) -> str:
        """A character of a class."""
        negated = self._text.startswith("^", self._at)
        self._at += negated
        chars: set[str] = set()
        first = True
        while first or self._text[self._at] != "]":
            first = False
            chars |= self._member()
        self._at += 1
        fitting = (char for char in PREFERRED if (char in chars) != negated)
        return next(fitting, min(chars, default="a"))

    def _member(self) -> set[str]:
        char = self._take()
        if char == "\\":
            name = self._text[self._at]
            if name in CLASSES:
                self._at += 1
                return set(CLASSES[name])
            if name in "DWS":
                self._at += 1
                return set(PREFERRED) - set(CLASSES[name.lower()])
            char = self._escaped()
        is_range = self._text.startswith("-", self._at) and self._text[self._at + 1] != "]"
        if not is_range:
            return {char}
        self._at += 1
        last = self._take()
        last = self._escaped() if last == "\\" else last
        return {chr(code) for code in range(ord(char), min(ord(last), ord(char) + WIDEST_RANGE) + 1)}

    def _take(self) -> str:
        char = self._text[self._at]
        self._at += 1
        return char
