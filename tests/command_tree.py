"""The command line as a tree: every command with its words, and a way to parse a line without running it."""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from typing import Any

import typer

from batchrun import cli


@cache
def commands() -> dict[tuple[str, ...], Any]:
    """All commands by their words, those of groups included."""
    return dict(_under(typer.main.get_command(cli.app), ()))


def parse(words: list[str]) -> None:
    """Parses a command as the command line does, without what it would do.  Raises what a usage error raises."""
    _idle_tree().main(words, prog_name="batchrun", standalone_mode=False)


@cache
def _idle_tree() -> Any:
    """The command line with nothing behind it."""
    tree = typer.main.get_command(cli.app)
    for _, command in _under(tree, ()):
        command.callback = None
    for option in tree.params:
        if option.name.endswith("_completion"):  # typer's own way would change this very shell
            option.callback = lambda context, _option, wanted: context.exit() if wanted else None
    return tree


def words_of(line: str) -> list[str]:
    """The arguments of a line that begins with `batchrun`, up to a pipe or redirection."""
    lexer = shlex.shlex(re.sub(r"(?<=\s)\d(?=>)", "", line), posix=True, punctuation_chars="|>&;")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if word[0] in "|>&;":
            break
        words.append(word)
    assert words[0] == "batchrun", line
    return words[1:]


def _under(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    below = getattr(command, "commands", None)
    if below is None:
        yield words, command
        return
    for name, each in below.items():
        yield from _under(each, (*words, name))
