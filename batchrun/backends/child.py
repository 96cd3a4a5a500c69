"""The process in which a backend lives, when it has one of its own: the other end of `isolated.py`.

It takes a recipe, makes the backend of it, and obeys steps until the pipe ends.  Signals are the parent's affair; where
the parent dies without a word, so does it.
"""

import contextlib
import ctypes
import os
import signal
import sys
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from batchrun.errors import BackendError, ModelError

PR_SET_PDEATHSIG = 1
OOM_SCORE = "500"  # where memory runs out, this process is to go and not the one that writes results


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _die_with_parent()
    with contextlib.suppress(EOFError, ConnectionError, BrokenPipeError):
        _serve(Connection(int(sys.argv[1])))
    os._exit(0)  # nothing is left to be tidied up, and libraries take their time


def _serve(pipe: "Connection[Any, Any]") -> None:
    recipe = pipe.recv()
    try:
        backend = recipe(lambda: False)  # one that is to stop while it loads is killed
    except (ModelError, MemoryError) as error:
        pipe.send(("failed", str(error) or "out of memory"))
        return
    pipe.send(("ready", (backend.limits, backend.notices)))
    obey = {"free": backend.free, "cut": backend.cut, "copy": backend.copy}
    while True:
        moves, feeds, chain = pipe.recv()
        try:
            for move, argument in moves:
                obey[move](argument)
            pending = backend.forward(feeds, chain)
            pipe.send(("done", None))
            drawn = backend.sample(pending, pipe.recv())
            pipe.send(("drawn", (drawn, backend.take_upkeep())))
        except (BackendError, MemoryError) as error:
            pipe.send(("failed", str(error) or "out of memory"))


def _die_with_parent() -> None:
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
