"""A fast BLAS for MLX on Linux processors, loaded before MLX is.

MLX's Linux wheels carry the reference BLAS.  Symbols of a library that was loaded globally before go first, so loading
the system's OpenBLAS first makes MLX multiply matrices with it; nothing of MLX is changed.  Without it a model runs at
a tenth of the speed, and batching gains nothing.
"""

import ctypes
import platform
import sys
import sysconfig
from functools import cache

MISSING = (
    "no OpenBLAS on this system: MLX multiplies matrices with its reference BLAS, about ten times slower; "
    "on Debian and Ubuntu, apt install libopenblas0-pthread"
)


class OpenBlas:
    """The library, loaded."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library

    def set_threads(self, threads: int) -> None:
        self._library.openblas_set_num_threads(ctypes.c_int(threads))


@cache
def openblas() -> OpenBlas | None:
    """The system's OpenBLAS, loaded for all libraries that come after it; None where there is none, or no need."""
    if sys.platform != "linux":
        return None
    for name in _names():
        try:
            library = ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL)
        except OSError:
            continue
        if hasattr(library, "cblas_sgemm") and hasattr(library, "openblas_set_num_threads"):
            return OpenBlas(library)
    return None


def _names() -> tuple[str, ...]:
    """Where the threaded OpenBLAS lies on Debian and its kin, on Fedora and its kin, and anywhere else."""
    triplet = sysconfig.get_config_var("MULTIARCH") or f"{platform.machine()}-linux-gnu"
    return (f"/usr/lib/{triplet}/openblas-pthread/libblas.so.3", "libopenblasp.so.0", "libopenblas.so.0")
