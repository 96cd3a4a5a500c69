"""Ends a computation that takes too long: a regular expression from a schema can backtrack for years.

Works through an alarm signal, which Python's regular expressions look for while they run; so it guards the main thread
only, on systems that have alarms, and does nothing elsewhere.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises TimeoutError in its block after so many seconds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGALRM, _alarmed)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _alarmed(number: int, frame: FrameType | None) -> NoReturn:
    raise TimeoutError
