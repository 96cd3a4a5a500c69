"""Prints tables: as wide as the terminal where there is one; elsewhere no line is folded, and none ends in spaces."""

import sys

from rich.console import Console, RenderableType

WIDE = 10_000  # columns of an output that is no terminal: no name is broken there


def print_table(table: RenderableType) -> None:
    """To standard output."""
    console = Console(highlight=False, width=None if sys.stdout.isatty() else WIDE)
    with console.capture() as shown:
        console.print(table)
    for line in shown.get().splitlines():
        print(line.rstrip())
