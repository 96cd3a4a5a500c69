"""batchrun: many prompts, one local model, in bursts that the machine can cool.

The command line is the product; the names below are the few a script needs.  Importing this package loads no
model library: a backend imports its own when a model is opened.
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("batchrun-llm")
except PackageNotFoundError:  # a checkout that was never installed
    __version__ = "0+unknown"

__all__ = ["__version__"]
