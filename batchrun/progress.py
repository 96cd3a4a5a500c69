"""What a person sees while a run goes on: a bar on a terminal, else one plain line every 30 seconds.

All of it goes to standard error; standard output is for data.
"""

import contextlib
import sys
from collections.abc import Callable

from tqdm import tqdm

from batchrun.core import Result, Status
from batchrun.glance import Glance
from batchrun.printable import printable

PLAIN_EVERY_S = 30.0


def say(text: str) -> None:
    """One line of talk.  If nobody can hear it, the run goes on: results matter more than what is said of them."""
    if sys.stderr is None:
        return
    with contextlib.suppress(OSError, ValueError):
        tqdm.write(f"batchrun: {printable(text)}", file=sys.stderr)
        sys.stderr.flush()


class Progress:
    """Follows a run.  `total`: jobs, where the number is known."""

    def __init__(self, total: int | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = self._said_s = clock()
        self._total = total
        self._done = self._not_ok = self._new = 0
        watched = sys.stderr is not None and sys.stderr.isatty()
        self._bar = tqdm(total=total, unit="job", dynamic_ncols=True, smoothing=0.1) if watched else None

    def say(self, text: str) -> None:
        say(text)

    def saw(self, result: Result | None) -> None:
        self._done += 1
        if result:
            self._new += 1
            self._not_ok += result.status is not Status.OK
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                if self._not_ok:
                    self._bar.set_postfix_str(f"{self._not_ok} not ok", refresh=False)
                self._bar.update()

    def tick(self, look: Callable[[], Glance | None]) -> None:
        now_s = self._clock()
        if self._bar is None and now_s - self._said_s >= PLAIN_EVERY_S:
            self._said_s = now_s
            of_total = f" of {self._total}" if self._total else ""
            rate = 60 * self._new / (now_s - self._began_s)
            say(f"{self._done}{of_total} jobs, {self._not_ok} not ok, {rate:.0f} results/min")

    def close(self) -> None:
        if self._bar is not None:
            with contextlib.suppress(OSError, ValueError):
                self._bar.close()
