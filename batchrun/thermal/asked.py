"""Asks a sensor without ever waiting for it: a question runs in a thread of its own, and an answer may be late.

Drivers hang, and they raise whatever they like.  Here a sensor that hangs costs one thread and one short wait; what it
said before counts while it is fresh, and after that there is no reading.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Asked(Generic[Answer]):
    """One question, asked again at most every `every_s` seconds; an answer counts for `fresh_s`."""

    def __init__(
        self,
        read: Callable[[], Answer],
        *,
        every_s: float = 1.0,
        patience_s: float = 0.05,
        fresh_s: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._every_s, self._patience_s, self._fresh_s = every_s, patience_s, fresh_s
        self._clock = clock
        self._answer: tuple[float, Answer] | None = None
        self._asked_s: float | None = None
        self._ended = threading.Event()
        self._ended.set()
        self.error = ""  # why the last question had no answer

    def latest(self, patience_s: float | None = None) -> Answer | None:
        """The newest answer, or None where there is none that is fresh.  Waits `patience_s` at most."""
        now_s = self._clock()
        if self._ended.is_set() and (self._asked_s is None or now_s - self._asked_s >= self._every_s):
            self._ask(now_s)
            if not self._ended.wait(self._patience_s if patience_s is None else patience_s):
                self.error = "no answer in time"
        answer = self._answer
        return answer[1] if answer and self._clock() - answer[0] <= self._fresh_s else None

    def _ask(self, now_s: float) -> None:
        self._asked_s = now_s
        self._ended = ended = threading.Event()

        def ask() -> None:
            try:
                self._answer, self.error = (self._clock(), self._read()), ""
            except Exception as error:  # noqa: BLE001  whatever a driver raises is a reading that could not be had
                self._answer, self.error = None, f"{type(error).__name__}: {error}"
            ended.set()

        threading.Thread(target=ask, name="sensor", daemon=True).start()
