"""Watches a run and shows it: takes what goes on a few times a second, and draws it on a thread of its own.

The run never waits for the terminal: it hands over frozen values, and the clock of a long step runs on without it.
"""

import contextlib
import sys
import threading
from collections.abc import Callable

from rich.console import Console, RenderableType

from batchrun.core import Result
from batchrun.glance import Glance
from batchrun.live.frame import Seen, frame
from batchrun.live.screens import LowerHalf, OtherScreen, Screen
from batchrun.live.tempo import Tempo
from batchrun.progress import say

REFRESH_S = 0.25
LEAVE_S = 1.0  # a terminal that takes no more must not hold up the end for longer


class LiveView:
    """A watch for a terminal.  `title`: what runs; `total`: jobs, where known; `clock`: monotonic seconds.

    `beside`: whether others may write to the terminal meanwhile.
    """

    def __init__(self, title: str, total: int | None, clock: Callable[[], float], *, beside: bool) -> None:
        self._title = title
        self._clock = clock
        self._looked_s = clock()
        self._tempo = Tempo(total, self._looked_s)
        self._glance: Glance | None = None
        self._notes: list[str] = []  # said on the other screen: said again when it goes
        self._beside = beside
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._abandoned = False
        self._seen = self._now(self._looked_s)
        console = Console(file=sys.stderr, force_terminal=True, highlight=False)
        self._screen: Screen = (LowerHalf if beside else OtherScreen)(console, self._picture)
        self._thread = threading.Thread(target=self._draw, name="live-view", daemon=True)
        self._thread.start()

    # -- what the run says

    def say(self, text: str) -> None:
        """A line of talk.  On the other screen it is shown, and said when that screen has gone."""
        if self._abandoned:
            self.close()
        with self._lock:
            kept = not self._beside and not self._ended.is_set()
            if kept:
                self._notes.append(text)
        if not kept:
            say(text)

    def saw(self, result: Result | None) -> None:
        self._tempo.saw(result)
        now_s = self._clock()
        if now_s - self._looked_s >= REFRESH_S:
            self._seen = self._now(now_s)

    def tick(self, look: Callable[[], Glance | None]) -> None:
        now_s = self._clock()
        if now_s - self._looked_s >= REFRESH_S or self._glance is None:
            self._glance = look()
            self._seen = self._now(now_s)

    def abandon(self) -> None:
        """The process ends at once: what is said from now on is said on a screen that was given back.

        Waits for nothing, since a terminal may be stuck.
        """
        self._abandoned = True

    def close(self) -> None:
        """Gives the terminal back, and says there what was said meanwhile."""
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
        self._thread.join(LEAVE_S)
        for text in self._notes:
            say(text)

    # -- what is seen of it

    def _now(self, now_s: float) -> Seen:
        self._looked_s = now_s
        return Seen(now_s, self._title, self._tempo.counts(now_s), self._glance, tuple(self._notes[-4:]))

    def _picture(self, console: Console) -> RenderableType:
        return frame(self._seen, self._clock(), console)

    def _draw(self) -> None:
        """Until the end, or until the terminal is gone; the run goes on without it."""
        with contextlib.suppress(OSError, ValueError):
            self._screen.open()
            try:
                while not self._ended.wait(REFRESH_S):
                    self._screen.paint()
            finally:
                self._screen.close()
