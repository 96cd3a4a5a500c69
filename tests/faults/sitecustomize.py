"""Faults on demand: Python imports this file into every process whose PYTHONPATH names this folder first.

FAULT_TEXT: a prompt that holds it makes the toy engine fail, in the way that FAULT_HOW says: abort, kill, memory or
error.  FAULT_STALL: where the process stands still when it first comes there: load, prefill, decode, write or sync.  It
then makes the file that FAULT_MARK names, and waits for FAULT_STALL_S seconds.
"""

import os
import signal
import time
from pathlib import Path

from batchrun import journal
from batchrun.backends import fake
from batchrun.errors import BackendError

TEXT, HOW = os.environ.get("FAULT_TEXT", ""), os.environ.get("FAULT_HOW", "")
STALL, MARK = os.environ.get("FAULT_STALL", ""), Path(os.environ.get("FAULT_MARK", os.devnull))


def stall(place: str) -> None:
    if place == STALL and not MARK.exists():
        MARK.touch()
        time.sleep(float(os.environ.get("FAULT_STALL_S", "600")))


def fail() -> None:
    if HOW == "abort":
        os.write(2, b"GGML_ASSERT(n_tokens <= n_batch) failed\n")
        os.abort()
    if HOW == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if HOW == "memory":
        raise MemoryError
    raise BackendError("the device is gone")


class FaultyBackend(fake.FakeBackend):
    def __init__(self, limits):  # type: ignore[no-untyped-def]
        stall("load")
        super().__init__(limits)

    def forward(self, feeds, chain=1):  # type: ignore[no-untyped-def]
        stall("decode" if all(len(feed.tokens) == 1 for feed in feeds) else "prefill")
        if TEXT and any(TEXT.encode() in bytes(token for token in feed.tokens if token < 256) for feed in feeds):
            fail()
        return super().forward(feeds, chain)


def stalling(function, place):  # type: ignore[no-untyped-def]
    def stalled(*arguments):  # type: ignore[no-untyped-def]
        stall(place)
        return function(*arguments)

    return stalled


fake.FakeBackend = FaultyBackend  # type: ignore[misc]
if STALL:
    journal.Journal._write = stalling(journal.Journal._write, "write")  # type: ignore[method-assign]
    journal.Journal.sync = stalling(journal.Journal.sync, "sync")  # type: ignore[method-assign]
