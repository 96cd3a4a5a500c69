"""Where results go: the seam, and standard output behind it.  Files are `journal.py`'s."""

import os
import sys
from typing import Protocol

from batchrun.core import Result, Status
from batchrun.errors import OutputClosed, OutputError
from batchrun.results import as_line


class Sink(Protocol):
    """Where results go."""

    def claim(self, job_id: str, digest: str) -> Status | None:
        """The status of a final result of this very job, if one is here.  Each is found once: twins need two."""
        ...

    def append(self, result: Result) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...


class StreamSink:
    """Results to standard output: no resume, no lock."""

    def __init__(self) -> None:
        if sys.stdout is None:
            raise OutputError("standard output is closed; expected a place for results, or -o FILE")

    def claim(self, job_id: str, digest: str) -> Status | None:
        return None

    def append(self, result: Result) -> None:
        try:
            sys.stdout.buffer.write(as_line(result))
            sys.stdout.buffer.flush()
        except BrokenPipeError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is still in its buffer
            raise OutputClosed from error
        except OSError as error:
            raise OutputError(f"standard output could not be written: {error.strerror}") from error

    def sync(self) -> None:
        pass

    def close(self) -> None:
        pass
