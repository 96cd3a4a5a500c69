"""Ctrl-C while agents speak: the first ends them and keeps what they said, the second is an ordinary one."""

import signal
from types import FrameType, TracebackType


class CtrlC:
    """Use as a context, on the main thread.  `pressed`: whether it was."""

    pressed = False

    def __enter__(self) -> "CtrlC":
        self._before = signal.signal(signal.SIGINT, self._take)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGINT, self._before)

    def _take(self, number: int, frame: FrameType | None) -> None:
        if self.pressed:
            raise KeyboardInterrupt
        self.pressed = True
