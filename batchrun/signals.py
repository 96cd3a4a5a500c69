"""SIGINT, SIGTERM and SIGHUP: the first asks the run to stop, the second ends the process.

A thread of its own reads them through the wakeup descriptor, so both work at any moment, also while the main thread is
inside a model library.  Results are written line by line, so an end without ceremony costs at most a torn last line,
which the next start cuts off.
"""

import contextlib
import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType, TracebackType

TALK_S = 0.5
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Watches for signals while it is entered.  `say` is called with one line when the first comes.

    `at_once`: what the second has to do before the process ends; it gives what is to be said of resuming.  It is called
    on another thread, at any moment.
    """

    timed_out = False

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._stopped = threading.Event()
        self._stopped_at_s = 0.0
        self.number: int | None = None
        self.at_once: Callable[[], str] = lambda: ""

    @property
    def stopped(self) -> bool:
        return self._stopped.is_set()

    def overdue(self, grace_s: float) -> bool:
        """Whether the first signal came longer ago than that."""
        return self.stopped and time.monotonic() - self._stopped_at_s > grace_s

    def wait(self, seconds: float) -> bool:
        """Sleeps, but not past a signal.  Whether one came."""
        return self._stopped.wait(seconds)

    def __enter__(self) -> "StopSignals":
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._writing, False)
        heard = [number for number in SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]  # nohup stays nohup
        self._before = {number: signal.signal(number, self._nothing) for number in heard}
        signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
        threading.Thread(target=self._watch, name="stop-signals", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.set_wakeup_fd(-1)
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._writing)  # the watcher reads an end of file and leaves

    def _nothing(self, number: int, frame: FrameType | None) -> None:
        """A handler has to exist for the wakeup descriptor to be written."""

    def _watch(self) -> None:
        while received := os.read(self._reading, 1):
            if received[0] not in SIGNALS:
                continue
            if self.stopped:
                self._tell("stopped at once; results written so far are kept" + self._farewell())
                os._exit(128 + received[0])
            self.number = received[0]
            self._stopped_at_s = time.monotonic()
            name = signal.Signals(self.number).name
            self._tell(f"{name}: finishing the rows that run; again to stop at once")
            self._stopped.set()
        os.close(self._reading)

    def _farewell(self) -> str:
        """The process ends now whatever comes of it."""
        try:
            return self.at_once()
        except Exception:  # noqa: BLE001
            return ""

    def _tell(self, text: str) -> None:
        """Says it, but waits for a moment only: a standard error that is closed or stuck must not cost a signal."""

        def tell() -> None:
            with contextlib.suppress(OSError, ValueError):
                self._say(text)

        thread = threading.Thread(target=tell, name="stop-talk", daemon=True)
        thread.start()
        thread.join(TALK_S)
