"""What a person hears and sees of a run: lines of talk, and beside them a bar or, where it was asked for, a live view.

While a view has the terminal, all talk goes through it.
"""

import os
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from batchrun.awake import SleepWatch
from batchrun.outcomes import Watch
from batchrun.progress import Progress, say

if TYPE_CHECKING:
    from batchrun.live.view import LiveView


class Talk:
    """Of one command.  `live`: a live view is wanted."""

    def __init__(self, *, live: bool = False) -> None:
        self._live = live
        self._view: LiveView | None = None
        self._sleep = SleepWatch(time.monotonic, time.time)

    def say(self, text: str) -> None:
        (self._view.say if self._view else say)(text)

    def tell_of_sleep(self) -> None:
        """Says that the machine slept, when it did since the last call."""
        if slept_s := self._sleep.slept_s():
            self.say(f"the machine slept for {slept_s / 60:.1f} minutes, or its clock was set")

    @contextmanager
    def watch(self, total: int | None, title: str, *, to_stdout: bool) -> Iterator[Watch]:
        """Somebody to look on while a run goes on.  `total`: its jobs, where the number is known; `to_stdout`: results
        go there.
        """
        if self._live and (reason := _unfit()):
            say(f"--live needs {reason}; showing the usual progress")
            self._live = False
        if not self._live:
            bar = Progress(total, time.monotonic)
            try:
                yield bar
            finally:
                bar.close()
            return
        from batchrun.live.view import LiveView

        self._view = LiveView(title, total, time.monotonic, beside=to_stdout and _may_end_here())
        try:
            yield self._view
        finally:
            self._view.close()

    def abandon(self) -> None:
        """The process is about to end at once."""
        if self._view:
            self._view.abandon()


def _unfit() -> str:
    """What is lacking for a live view."""
    if sys.stderr is None or not sys.stderr.isatty():
        return "a terminal on standard error"
    if os.environ.get("TERM", "").lower() in ("", "dumb", "unknown"):
        return "a terminal that can place text, and TERM names none"
    return ""


def _may_end_here() -> bool:
    """Whether what goes to standard output may be seen on this terminal: all but what goes to a file."""
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return sys.stdout.isatty() or stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
