"""One writer a file: a lock file that the kernel frees when its holder dies, with the holder's name in it.

The results file itself is locked too (`lock_open_file`), for a file can have several names (hard links), and each name
has a lock file of its own.
"""

import contextlib
import fcntl
import os
from pathlib import Path

from batchrun.errors import InputError, OutputError


class Lock:
    """Held from its making to `release`.  Raises InputError, with the holder's name, where another process holds it.

    `flag`: what names another file.
    """

    def __init__(self, path: Path, flag: str = "-o") -> None:
        self._flag = flag
        self._path = path.with_name(f".{path.name}.lock")
        try:
            while not self._take(path):
                pass
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        except OSError as error:
            if getattr(self, "_handle", -1) >= 0:
                self.release()
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error

    def _take(self, path: Path) -> bool:
        """Locks the file; False if its last holder took the file away in between."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._handle)
            raise _held(path, holder, self._flag) from error
        try:
            if os.path.samestat(os.stat(self._path), os.fstat(self._handle)):
                return True
        except FileNotFoundError:
            pass
        os.close(self._handle)
        return False

    def release(self) -> None:
        with contextlib.suppress(OSError):  # its folder may be gone, or be read-only by now
            self._path.unlink(missing_ok=True)
        os.close(self._handle)


def lock_open_file(handle: int, path: Path) -> None:
    """Locks the file behind a descriptor, until that is closed.  Raises InputError where another process holds it."""
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        raise _held(path, f"{_holder(handle)} under another name", "-o") from error


def _held(path: Path, holder: str, flag: str) -> InputError:
    return InputError(f"{path} is being written by {holder}; wait for it, or choose another {flag}")


def _holder(handle: int) -> str:
    """Who holds the lock of a file, where the kernel says so (Linux)."""
    inode = f":{os.fstat(handle).st_ino}"
    try:
        lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    except OSError:
        lines = []
    pids = (fields[4] for fields in lines if len(fields) > 5 and fields[1] == "FLOCK" and fields[5].endswith(inode))
    return f"process {next(pids, '')}".strip() if lines else "another process"
