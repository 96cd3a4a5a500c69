"""The connection to a Ray cluster, and what Ray does to the process that makes one.

It prints on standard output, which is for results; takes SIGTERM; sends the working folder to workers as a place to
import from; waits for minutes where nobody listens; and reports how it is used.  None of that here.
"""

import contextlib
import io
import logging
import os
import signal
import socket
import tempfile
from dataclasses import dataclass
from typing import Any

from batchrun.errors import ModelError, UsageError

CONNECT_S = 10.0
NOT_INSTALLED = "--ray needs Ray, which is not installed; run: pip install 'batchrun-llm[ray]'"


@dataclass(frozen=True, slots=True)
class Connection:
    """An open connection.  `ray`: the library, which has one connection a process."""

    ray: Any
    quiet: contextlib.ExitStack

    def close(self) -> None:
        with self.quiet:
            self.ray.shutdown()


def connected(address: str) -> Connection:
    """Raises UsageError where Ray is missing, ModelError where no cluster is there."""
    try:
        import ray
        import ray.util.scheduling_strategies
    except ImportError as error:
        raise UsageError(NOT_INSTALLED) from error
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    before = signal.getsignal(signal.SIGTERM)
    with contextlib.ExitStack() as quiet:
        quiet.enter_context(contextlib.redirect_stdout(_Unheard()))
        try:
            _reach(address)
            with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
                ray.init(address=address, namespace="batchrun", log_to_driver=False, logging_level=logging.CRITICAL)
        except (ConnectionError, ValueError, RuntimeError, OSError) as error:
            reason = " ".join(str(error).split())[:200]
            raise ModelError(
                f"--ray {address}: no cluster could be reached ({reason}); start one with: ray start --head"
            ) from error
        finally:
            signal.signal(signal.SIGTERM, before)
        return Connection(ray, quiet.pop_all())


class _Unheard(io.StringIO):
    """Takes what a library prints, and keeps none of it."""

    def write(self, text: str) -> int:
        return len(text)


def _reach(address: str) -> None:
    """Raises OSError where nobody listens."""
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if host and port.isdecimal():
        socket.create_connection((host, int(port)), CONNECT_S).close()
