"""Opens the fleet that settings ask for, told of what this machine would run itself."""

import contextlib
from dataclasses import asdict, replace
from pathlib import Path

from batchrun import __version__
from batchrun.assembly import Parts, weights_format
from batchrun.config import Settings
from batchrun.fleet.driver import Driver
from batchrun.fleet.orders import Opening
from batchrun.fleet.ray_cluster import RayFleet, Wish
from batchrun.fleet.station import likeness
from batchrun.forms import resources
from batchrun.runner import Ends
from batchrun.summary import Summary
from batchrun.supply import Supplier


def run(parts: Parts, settings: Settings, supplier: Supplier, ends: Ends, longest_tokens: int | None) -> Summary:
    """A run over the cluster that the settings name.  `settings`: as given, before this machine's profile filled them.

    Raises UsageError where Ray is missing, ModelError where no worker can be had, OutputError as any run does.
    """
    for text in parts.notices:
        ends.watch.say(text)
    with contextlib.closing(_fleet(parts, settings, longest_tokens, ends)) as fleet:
        return Driver(parts, supplier, ends, fleet).run()


def _fleet(parts: Parts, settings: Settings, longest_tokens: int | None, ends: Ends) -> RayFleet:
    assert settings.ray, "asked for"
    claims = resources(settings.worker_resources) if settings.worker_resources else {}
    like = likeness(parts)
    threads = settings.threads or (int(claims["num_cpus"]) if claims.get("num_cpus", 0) >= 1 else None)
    told = replace(
        settings,
        model=_found_anywhere(settings.model),
        engine=like.engine,
        weights=weights_format(parts.settings, like.engine),
        layout=parts.settings.layout,
        threads=threads,
        ray=None,
        max_failures=None,
        deadline=None,
    )
    opening = Opening(__version__, asdict(told), longest_tokens)
    wish = Wish(settings.ray, settings.workers, claims)
    return RayFleet(wish, like, opening, ends.watch.say, ends.clock)


def _found_anywhere(model: str) -> str:
    """A name that leads to the same place whatever folder a worker stands in."""
    path = Path(model)
    return str(path.resolve()) if path.exists() and ":" not in model else model
