"""Keeps the machine awake while a burst runs, with what the system has for it: systemd-inhibit, or caffeinate on a Mac.

The helper ends with us whatever happens: it waits for the end of a pipe that only this process holds open (or, on a
Mac, for this process itself).  Where there is none, or it is not allowed, the machine sleeps as it likes; that it did
is seen by `SleepWatch`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable

GAP_S = 10.0  # by which the wall clock must run ahead to be taken for sleep
TERMINATION_S = 1.0


def command() -> list[str] | None:
    """What keeps this machine awake for as long as it runs."""
    if sys.platform == "darwin" and shutil.which("caffeinate"):
        return ["caffeinate", "-i", "-w", str(os.getpid())]
    if shutil.which("systemd-inhibit"):
        why = ["--what=idle:sleep", "--who=batchrun", "--why=a burst of jobs runs", "--mode=block"]
        return ["systemd-inhibit", *why, "cat"]
    return None


class KeepAwake:
    """Held while a burst runs.  `argv`: the helper, or None where there is none."""

    def __init__(self, argv: list[str] | None) -> None:
        self._argv = argv
        self._process: subprocess.Popen[bytes] | None = None

    def hold(self) -> None:
        if self._argv is None or self._process:
            return
        try:
            self._process = subprocess.Popen(
                self._argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C is for us
            )
        except OSError:
            self._argv = None

    def release(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if process.poll() is not None:  # it could not, and will not be able to in the next burst
            self._argv = None
        assert process.stdin is not None, "asked for a pipe"
        process.stdin.close()
        process.terminate()
        try:
            process.wait(TERMINATION_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


class SleepWatch:
    """Sees that the machine slept: its wall clock ran ahead of the one that stops in sleep."""

    def __init__(self, clock: Callable[[], float], wall: Callable[[], float]) -> None:
        self._clock, self._wall = clock, wall
        self._ahead_s = wall() - clock()

    def slept_s(self) -> float:
        """Seconds slept since the last call, or by which somebody set the clock; 0 where it was neither."""
        ahead_s = self._wall() - self._clock()
        gap_s, self._ahead_s = ahead_s - self._ahead_s, ahead_s
        return gap_s if gap_s >= GAP_S else 0.0
