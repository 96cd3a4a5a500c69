"""A backend in a process of its own, so that its death costs a few rows and not the run.

The scheduler, the grammars and the results stay on this side; steps go through a pipe.  A child that dies, by an abort
inside a library or for want of memory, is a `BackendError` like any other, and the next step starts another one.
"""

import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from batchrun.backends.base import Backend, Interrupted, Upkeep
from batchrun.core import Copy, Cut, Drawn, Feed, Limits
from batchrun.errors import BackendError, ModelError
from batchrun.printable import printable

LOOK_S = 0.1  # between two looks at whether the run was stopped, while the child is waited for

DYING_S = 5.0

Recipe = Callable[[Callable[[], bool]], Backend]
"""Makes the backend, in the child: it must survive pickling.  Its argument is asked whether loading is to stop."""


class IsolatedBackend:
    """A backend in a child process.  `overdue`: whether a stopped run has waited for a step long enough.

    Raises ModelError where the backend cannot start, Interrupted where the run is stopped first, or is overdue.
    """

    def __init__(self, recipe: Recipe, stopped: Callable[[], bool], overdue: Callable[[], bool]) -> None:
        self._recipe = pickle.dumps(recipe)
        self._stopped = stopped
        self._overdue = overdue
        self._moves: list[tuple[str, Any]] = []
        self._process: subprocess.Popen[bytes] | None = None
        self._upkeep = Upkeep()
        self.limits, self.notices = self._start()

    def free(self, slot: int) -> None:
        self._moves.append(("free", slot))

    def cut(self, cut: Cut) -> None:
        self._moves.append(("cut", cut))

    def copy(self, copy: Copy) -> None:
        self._moves.append(("copy", copy))

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> Sequence[Feed]:
        if self._process is None:
            self._start()
        moves, self._moves = self._moves, []
        self._send((moves, list(feeds), chain))
        self._receive(self._overdue)
        return feeds

    def sample(self, pending: Sequence[Feed], masks: NDArray[np.int32] | None) -> list[Drawn]:
        self._send(masks)
        drawn: list[Drawn]
        drawn, did = self._receive(self._overdue)
        self._upkeep = Upkeep(*(map(sum, zip(self._upkeep, did, strict=True))))
        return drawn

    def take_upkeep(self) -> Upkeep:
        upkeep, self._upkeep = self._upkeep, Upkeep()
        return upkeep

    def close(self) -> None:
        if self._process:
            self._pipe.close()
            self._process.kill()
            self._process.wait()
            self._talk.close()
            self._process = None

    # -- the child

    def _start(self) -> tuple[Limits, tuple[str, ...]]:
        self._moves.clear()
        self._pipe, theirs = multiprocessing.Pipe()
        self._talk = _scratch_file()  # what it says as it dies
        command = [sys.executable, "-P", "-m", "batchrun.backends.child", str(theirs.fileno())]
        paths = os.pathsep.join(path for path in sys.path if path)
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._talk,
                stderr=self._talk,
                pass_fds=(theirs.fileno(),),
                env=os.environ | {"PYTHONPATH": paths},
                start_new_session=True,  # a terminal's Ctrl-C is for the parent
            )
        except OSError as error:
            raise ModelError(f"the engine's process could not start: {error.strerror}") from error
        finally:
            theirs.close()
        try:
            self._pipe.send_bytes(self._recipe)
            limits, notices = self._receive(self._stopped)
        except BackendError as error:
            self.close()
            raise ModelError(str(error)) from error
        except OSError as error:
            raise ModelError(f"the engine could not start: {self._died()}") from error
        except BaseException:  # such as Ctrl-C, which only we hear
            self.close()
            raise
        return limits, notices

    def _send(self, message: Any) -> None:
        try:
            self._pipe.send(message)
        except OSError as error:
            raise BackendError(self._died()) from error

    def _receive(self, given_up: Callable[[], bool]) -> Any:
        """What the child answers.  Raises BackendError for its failure or its death, Interrupted where that is it."""
        try:
            while not self._pipe.poll(LOOK_S):
                if given_up():
                    self.close()
                    raise Interrupted
            kind, answer = self._pipe.recv()
        except (OSError, EOFError) as error:
            raise BackendError(self._died()) from error
        if kind == "failed":
            raise BackendError(answer)
        return answer

    def _died(self) -> str:
        """How the child ended, and the last that it said."""
        assert self._process is not None, "asked of a child that there was"
        try:
            status = self._process.wait(DYING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._talk.seek(0)
        words = self._talk.read()[-2000:].decode(errors="replace").split("\n")
        said = printable(next((line.strip() for line in reversed(words) if line.strip()), ""))[:200]
        self.close()
        how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
        return f"the engine's process ended {how}" + (f": {said}" if said else "")


def _scratch_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError:  # no place for it: then nothing is known of a death but its signal
        return open(os.devnull, "w+b")
