"""Files that a line of the input names: they must lie below a root, whatever links or `..` say, and be plain files.

A job file may come from strangers; what it names must not lead to the rest of the disk.
"""

import os
import stat
from pathlib import Path

from batchrun.core import Problem
from batchrun.errors import JobError


class Outside(Exception):
    """A path that leads out of its root."""


def resolved_below(path: Path, *roots: Path) -> Path:
    """The place that a path leads to.  Raises Outside where it is below none of `roots`, OSError and ValueError."""
    place = os.path.realpath(path)
    if any(_is_below(place, os.path.realpath(root)) for root in roots):
        return Path(place)
    raise Outside


def _is_below(place: str, root: str) -> bool:
    return place == root or place.startswith(root.rstrip("/") + "/")


def read_below(name: str, base: Path, root: Path, most_bytes: int, code: str, what: str) -> bytes:
    """The content of a regular file.  Raises JobError with this code; `what` names the key in its message."""
    shown = f"{what} {_named(name)}"
    try:
        place = resolved_below(Path(base, name), root)
        # a device or a pipe could be read for ever; a link put there just now is not followed
        handle = os.open(place, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(handle).st_mode):
                raise JobError(Problem(code, f"{shown} is not a regular file"))
            with open(handle, "rb", closefd=False) as file:
                data = file.read(most_bytes + 1)
        finally:
            os.close(handle)
    except Outside:
        message = f"{shown} lies outside of {_named(str(root))}; expected a file below it (see --root)"
        raise JobError(Problem(code, message)) from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise JobError(Problem(code, f"{shown}: {reason}")) from error
    if len(data) > most_bytes:
        raise JobError(
            Problem(code, f"{shown} is over {most_bytes} bytes; expected at most so many (see --line-bytes)")
        )
    return data


def _named(text: str) -> str:
    return repr(text if len(text) <= 80 else text[:77] + "...")
