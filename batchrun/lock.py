"""One writer a file: a lock file that the kernel frees when its holder dies, with the holder's name in it."""

import fcntl
import os
from pathlib import Path

from batchrun.errors import InputError, OutputError


class Lock:
    """Held from its making to `release`.  Raises InputError, with the holder's name, where another process holds it."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(f".{path.name}.lock")
        try:
            while not self._take(path):
                pass
            os.ftruncate(self._handle, 0)
            os.pwrite(self._handle, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)
        except OSError as error:
            raise OutputError(f"{path} cannot be written: {error.strerror}") from error

    def _take(self, path: Path) -> bool:
        """Locks the file; False if its last holder took the file away in between."""
        self._handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            holder = os.pread(self._handle, 200, 0).decode(errors="replace").strip() or "another process"
            os.close(self._handle)
            raise InputError(f"{path} is being written by {holder}; wait for it, or choose another -o") from error
        try:
            if os.path.samestat(os.stat(self._path), os.fstat(self._handle)):
                return True
        except FileNotFoundError:
            pass
        os.close(self._handle)
        return False

    def release(self) -> None:
        self._path.unlink(missing_ok=True)
        os.close(self._handle)
