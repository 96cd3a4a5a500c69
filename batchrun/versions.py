"""Versions of batchrun and of what it stands on, as installed.  Loads none of it."""

import platform
from importlib.metadata import PackageNotFoundError, version

from batchrun import __version__

PACKAGES = ("llama-cpp-python", "mlx-lm", "mlx", "llguidance")


def installed(package: str) -> str | None:
    """The version of a package, or None where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def lines() -> list[str]:
    """batchrun first, then each package, Python and the platform, one a line."""
    found = [(package, installed(package) or "not installed") for package in PACKAGES]
    return [
        f"batchrun {__version__}",
        *(f"{name} {number}" for name, number in found),
        f"Python {platform.python_version()}",
        platform.platform(),
    ]
