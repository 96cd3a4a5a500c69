"""Two ways to put a picture on a terminal without harm to what stands there or is written meanwhile.

Where results go to files, the view has the terminal's other screen (`OtherScreen`).  Where they go through a pipe they
may come out on this very terminal (`batchrun run --live - < jobs | jq`): there the view keeps to the lower half, and
all else scrolls above it (`LowerHalf`) as it would without a view.
"""

import os
from collections.abc import Callable
from typing import Protocol

from rich.console import Console, RenderableType
from rich.live import Live

SAVE, RESTORE, ALL_LINES, CLEAR_BELOW, CLEAR_LINE = "\x1b7", "\x1b8", "\x1b[r", "\x1b[J", "\x1b[2K"
USUAL_SIZE = (80, 24)  # of a terminal that does not say

Picture = Callable[[Console], RenderableType]


class Screen(Protocol):
    """A place for pictures.  Raises OSError and ValueError where the terminal is gone."""

    def open(self) -> None: ...

    def paint(self) -> None: ...

    def close(self) -> None:
        """Leaves the terminal as it was."""
        ...


class OtherScreen:
    """The terminal's other screen, which takes all that was drawn along when it goes."""

    def __init__(self, console: Console, picture: Picture) -> None:
        self._console = console
        self._live = Live(
            console=console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            get_renderable=lambda: picture(console),
        )

    def open(self) -> None:
        self._console.size = terminal_size(self._console)
        self._live.start(refresh=True)

    def paint(self) -> None:
        self._console.size = terminal_size(self._console)
        self._live.refresh()

    def close(self) -> None:
        self._live.stop()


class LowerHalf:
    """The lower half of the window: the terminal scrolls the upper one only, so whoever writes writes there.

    A picture is one write, between saving the cursor and restoring it, so it meets no other's line in the middle.
    """

    def __init__(self, console: Console, picture: Picture) -> None:
        self._console = console
        self._picture = picture
        self._size = (0, 0)
        self._lines = 0

    def open(self) -> None:
        self.paint()

    def paint(self) -> None:
        size = terminal_size(self._console)
        made = self._made_room(size) if size != self._size else ""
        self._console.size = (size[0], self._lines)
        with self._console.capture() as captured:
            self._console.print(self._picture(self._console), end="")
        lines = captured.get().split("\n")[: self._lines]
        lines += [""] * (self._lines - len(lines))
        top = size[1] - self._lines + 1
        drawn = "".join(f"\x1b[{top + place};1H{CLEAR_LINE}{line}" for place, line in enumerate(lines))
        self._write(f"{made}{SAVE}{drawn}{RESTORE}")

    def close(self) -> None:
        if self._lines:
            self._write(f"{SAVE}{ALL_LINES}{RESTORE}{CLEAR_BELOW}")
            self._lines = 0

    def _made_room(self, size: tuple[int, int]) -> str:
        """Clears what lies below the cursor, a picture of another size perhaps, and lets the lines above scroll."""
        self._size, self._lines = size, max(1, size[1] // 2)
        room = "\n" * self._lines + f"\x1b[{self._lines}A"
        upper = max(1, size[1] - self._lines)
        return f"{SAVE}{ALL_LINES}{RESTORE}{CLEAR_BELOW}{room}{SAVE}\x1b[1;{upper}r{RESTORE}"

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()


def terminal_size(console: Console) -> tuple[int, int]:
    """Columns and lines as they are now, whatever the environment says they were."""
    columns, lines = os.get_terminal_size(console.file.fileno())
    return columns or USUAL_SIZE[0], lines or USUAL_SIZE[1]
