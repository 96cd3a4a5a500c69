"""Settings that are well-formed, each for itself, and that no run can be made from all the same.

A run refuses the first of them; `doctor` shows them all.  What only the machine, the model or the schemas can tell is
looked at where those are opened.
"""

from collections.abc import Callable, Iterator
from datetime import datetime

from batchrun.config import Settings
from batchrun.errors import UsageError
from batchrun.inputs import check_root
from batchrun.moments import seconds_until
from batchrun.selection import failure_limit


def refused(settings: Settings, now: datetime) -> Iterator[tuple[str, UsageError]]:
    """The settings that a run at this moment would refuse, by name, with the reason."""
    checks: tuple[tuple[str, Callable[[], object]], ...] = (
        ("max_failures", lambda: failure_limit(settings.max_failures)),
        ("workers", lambda: _check_cluster("workers", settings)),
        ("worker_resources", lambda: _check_cluster("worker_resources", settings)),
        ("audit", lambda: _check_audit(settings)),
        ("root", lambda: check_root(settings.root)),
        ("deadline", lambda: settings.deadline and seconds_until(settings.deadline, now, "--deadline")),
    )
    for name, check in checks:
        try:
            check()
        except UsageError as error:
            yield name, error


def _check_cluster(name: str, settings: Settings) -> None:
    if getattr(settings, name) is not None and not settings.ray:
        shown = name.replace("_", "-")
        raise UsageError(f"--{shown} is for runs on a cluster; expected --ray auto, or --ray ADDRESS")


def _check_audit(settings: Settings) -> None:
    if settings.audit and settings.ray:
        raise UsageError("--audit looks at the batch of one machine; after a run on a cluster use batchrun audit")
    if settings.audit and settings.thinking != "off":
        raise UsageError("--audit compares answers, not thoughts; expected --thinking off")
