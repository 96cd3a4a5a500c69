"""Asks a sensor without ever waiting for it: a question runs in a thread of its own, and an answer may be late.

Drivers hang, and they raise whatever they like.  Here a sensor that hangs costs one thread and one short wait; what one
said before counts while it is fresh, whatever became of later questions, and after that there is no reading.
"""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

Answer = TypeVar("Answer")


class Asked(Generic[Answer]):
    """One question, asked again at most every `every_s` seconds; an answer counts for `fresh_s`.  None is no answer."""

    def __init__(
        self,
        read: Callable[[], Answer | None],
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

    def now(self) -> Answer | None:
        """The answer to a question that is asked now; None where it does not come in time, or the last one still has
        none.  For counters, of which an older reading would be a wrong one."""
        if not self._ended.is_set():
            return None
        asked_s = self._clock()
        self._ask(asked_s)
        answer = self._answer if self._ended.wait(self._patience_s) else None
        return answer[1] if answer and answer[0] >= asked_s else None

    def _ask(self, now_s: float) -> None:
        self._asked_s = now_s
        self._ended = ended = threading.Event()

        def ask() -> None:
            try:
                began_s, found = self._clock(), self._read()
                self.error = "" if found is not None else "no answer"
                self._answer = self._answer if found is None else (began_s, found)
            except Exception as error:  # noqa: BLE001  whatever a driver raises is a reading that could not be had
                self.error = f"{type(error).__name__}: {error}"
            ended.set()

        try:
            threading.Thread(target=ask, name="sensor", daemon=True).start()
        except RuntimeError as error:  # the system has no thread left for us
            self.error = f"{type(error).__name__}: {error}"
            ended.set()
