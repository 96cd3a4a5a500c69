"""The live view: a grid of cards that fill as tokens come, on the terminal's other screen, so that resizing and
stopping leave nothing behind.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from batchrun.core import Result
from batchrun.printable import printable, printable_lines
from batchrun.swarm.roles import Role

CARD_COLUMNS = 38  # narrower cards hold too little
MOST_ACROSS = 4
CARD_LINES = 3  # a frame and one line
REFRESH_PER_S = 8
SHOWN_CHARACTERS = 4000  # of an answer's end: more fits on no card
STYLES = {"ok": "green", "cancelled": "dim"}


@dataclass(slots=True)
class Card:
    """One agent's card.  `status`: how it ended, or None while it runs."""

    role: Role
    text: str = ""
    status: str | None = None

    def panel(self, width: int, height: int) -> Panel:
        """The end of what was said, as much as the card holds."""
        inner = max(1, width - 4)
        wrapped = Text(printable_lines(self.text[-SHOWN_CHARACTERS:])).wrap(Console(width=inner), inner)
        shown = Text("\n").join(list(wrapped)[-max(1, height - 2) :])
        style = STYLES.get(self.status, "yellow") if self.status else "cyan" if self.text else "dim"
        word = self.status or ("…" if self.text else "reading")
        return Panel(
            shown,
            title=Text(printable(self.role.name)),
            subtitle=Text(word),
            border_style=style,
            width=width,
            height=height,
            box=box.ROUNDED,
        )


class CardGrid:
    """A view for a terminal.  Use as a context: inside it, the screen is the grid's."""

    def __init__(self, roles: Sequence[Role], console: Console) -> None:
        self._cards = [Card(role) for role in roles]
        self._console = console
        self._live = Live(console=console, screen=True, auto_refresh=False, get_renderable=self._grid)
        self._refreshed_s = -math.inf

    def __enter__(self) -> "CardGrid":
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def said(self, place: int, text: str) -> None:
        self._cards[place].text += text
        self._refresh()

    def ended(self, place: int, result: Result) -> None:
        self._cards[place].status = result.status.value
        self._refresh(now=True)

    def _refresh(self, *, now: bool = False) -> None:
        at_s = time.monotonic()
        if now or at_s - self._refreshed_s >= 1 / REFRESH_PER_S:
            self._refreshed_s = at_s
            self._live.refresh()

    def _grid(self) -> RenderableType:
        """Cards side by side, as many as are readable in the height that there is; a line counts those left."""
        width, height = self._console.size
        across = max(1, min(MOST_ACROSS, width // CARD_COLUMNS, len(self._cards)))
        down = math.ceil(len(self._cards) / across)
        if down * CARD_LINES > height:
            height = max(2, height - 1)
            down = max(1, height // CARD_LINES)
        shown = self._cards[: across * down]
        grid = Table.grid(expand=False)
        for start in range(0, len(shown), across):
            row = shown[start : start + across]
            grid.add_row(*(card.panel(width // across, height // down) for card in row))
        more = len(self._cards) - len(shown)
        return Group(grid, Text(f"and {more} more", no_wrap=True, overflow="ellipsis")) if more else grid
