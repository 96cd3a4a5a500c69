"""Text that a terminal may show: on one line, and without anything that a terminal obeys."""

import re


def printable(text: str) -> str:
    """Characters that are not plain signs are written as Python writes them: `\\x1b`, `\\u202e`, `\\n`."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def without_credentials(text: str) -> str:
    """Addresses in it without the name and password that they may hold."""
    return re.sub(r"(?<=://)[^/\s@]+@", "", text)


def printable_lines(text: str) -> str:
    """The same for text of several lines, whose ends and tabs stay."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))
