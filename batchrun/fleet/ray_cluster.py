"""A fleet on Ray: stations as actors on the nodes of a cluster that runs already.

Ray starts processes, finds nodes, carries messages and notices deaths; what is sent where is decided elsewhere.
"""

import contextlib
import itertools
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from batchrun.errors import ModelError, UsageError
from batchrun.fleet.events import Event, Joined, Left, Reported
from batchrun.fleet.orders import Likeness, Opening, Order, Report
from batchrun.fleet.ray_connection import connected
from batchrun.fleet.station import Station

COLLECT_S = 1.0  # that a worker waits for something to report
LOOK_S = 1.0  # between two looks at the nodes
MOST_STARTS = 3  # of workers in one place that brought no result
THREADS = 4  # of an actor: one waits to report while others take orders
PATIENCE_S = 10.0  # until it is said that no worker is ready


@dataclass(frozen=True, slots=True)
class Wish:
    """`address`: of the cluster; `workers`: how many in all, None for one a node; `resources`: that each one takes."""

    address: str
    workers: int | None
    resources: dict[str, float]


@dataclass(slots=True, eq=False)
class _Place:
    """Where a worker runs or is to run.  `node`: the node's id, None where Ray may choose."""

    name: str
    node: str | None
    starts: int = 0
    actor: Any = None
    pending: Any = None  # what it answers next
    joined: bool = False
    given_up: str = ""


class RayFleet:
    """Workers on a cluster.  `say`: hears of those that cannot take part.

    Raises UsageError where Ray is missing or refuses the wish, ModelError where there is no cluster.
    """

    def __init__(
        self, wish: Wish, like: Likeness, opening: Opening, say: Callable[[str], None], clock: Callable[[], float]
    ) -> None:
        self._connection = connected(wish.address)
        self._ray = ray = self._connection.ray
        self._on_node = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy
        self._wish, self._like, self._opening = wish, like, opening
        self._say, self._clock = say, clock
        self._places: list[_Place] = []
        self._given: dict[Any, _Place] = {}  # orders on their way
        self._stopping = False
        self._looked_s = float("-inf")
        self._began_s: float | None = clock()  # None: there was a worker, or it was said that there is none
        self._actor = ray.remote(Station)
        self._claims = {"max_concurrency": THREADS, "max_restarts": 0} | _claims(wish.resources)
        try:
            self._actor.options(**self._claims)
        except ValueError as error:
            self.close()
            raise UsageError(f"--worker-resources: {error}") from error

    # -- as a fleet

    @property
    def hopeless(self) -> str:
        if not self._places or any(not place.given_up for place in self._places):
            return ""
        last = self._places[-1]
        return f"no worker is left: {last.name}: {last.given_up}"

    def poll(self, wait_s: float) -> Sequence[Event]:
        """Raises ModelError where the cluster is gone."""
        try:
            return self._polled(wait_s)
        except (self._ray.exceptions.RayError, ConnectionError, RuntimeError) as error:
            raise ModelError(f"the cluster is gone: {_first_line(error)}") from error

    def _polled(self, wait_s: float) -> Sequence[Event]:
        if self._clock() - self._looked_s >= LOOK_S and not self._stopping:
            self._looked_s = self._clock()
            self._look_for_places()
            self._tell_of_waiting()
        waited = self._given | {place.pending: place for place in self._places if place.pending is not None}
        if not waited:
            time.sleep(wait_s)
            return []
        ready, others = self._ray.wait(list(waited), num_returns=1, timeout=wait_s)
        if ready and others:
            ready += self._ray.wait(others, num_returns=len(others), timeout=0)[0]
        return [event for answer in ready if (event := self._heard(waited[answer], answer))]

    def give(self, worker: str, orders: tuple[Order, ...], lost: tuple[int, ...]) -> None:
        place = self._place(worker)
        self._given[place.actor.give.remote(orders, lost)] = place

    def refuse(self, worker: str) -> None:
        self._give_up(self._place(worker), "refused: of no use to this run")

    def stop(self, *, timed_out: bool) -> None:
        self._stopping = True
        for place in self._places:
            if place.joined:
                place.actor.stop.remote(timed_out=timed_out)
            elif place.actor is not None:
                self._give_up(place, "stopped")

    def close(self) -> None:
        with contextlib.closing(self._connection), contextlib.suppress(self._ray.exceptions.RayError):
            for place in self._places:
                self._end(place)

    # -- places

    def _place(self, worker: str) -> _Place:
        return next(place for place in self._places if place.name == worker)

    def _look_for_places(self) -> None:
        """A worker for each node, or as many as were wished; nodes may come later, and dead workers have successors."""
        if self._wish.workers is None:
            nodes = {node["NodeID"]: node for node in self._nodes()}
            for place in self._places:
                if place.node not in nodes and place.actor is None and not place.given_up:
                    place.given_up = "its node is gone"
            known = {place.node for place in self._places}
            for name, node in nodes.items():
                if name not in known:
                    self._places.append(_Place(self._named(node["NodeManagerHostname"]), name))
        elif not self._places:
            self._places += [_Place(f"worker-{number}", None) for number in range(1, self._wish.workers + 1)]
        for place in self._places:
            if place.actor is None and not place.given_up:
                self._start(place)

    def _tell_of_waiting(self) -> None:
        if any(place.joined for place in self._places):
            self._began_s = None
        if self._began_s is not None and self._clock() - self._began_s > PATIENCE_S:
            self._began_s = None
            wanted = ", ".join(f"{value:g} {name}" for name, value in self._wanted.items())
            self._say(f"no worker is ready yet; waiting for nodes with {wanted} to spare (Ctrl-C ends the run)")

    def _nodes(self) -> list[dict[str, Any]]:
        """Nodes that live and have what a worker takes."""
        names = {"num_cpus": "CPU", "num_gpus": "GPU"}
        wanted = {names.get(name, name): value for name, value in self._wanted.items()}
        nodes = [node for node in self._all_nodes() if node["Alive"]]
        return [n for n in nodes if all(n["Resources"].get(name, 0) >= value for name, value in wanted.items())]

    @property
    def _wanted(self) -> dict[str, float]:
        return {"num_cpus": 1.0} | self._wish.resources

    def _named(self, host: str) -> str:
        taken = {place.name for place in self._places}
        names = (host if number == 1 else f"{host}-{number}" for number in itertools.count(1))
        return next(name for name in names if name not in taken)

    def _start(self, place: _Place) -> None:
        place.starts += 1
        strategy = self._on_node(place.node, soft=False) if place.node else "SPREAD"
        place.actor = self._actor.options(scheduling_strategy=strategy, **self._claims).remote()
        place.pending = place.actor.open.remote(asdict(self._opening))

    def _end(self, place: _Place) -> None:
        if place.actor is not None:
            self._ray.kill(place.actor)
        place.actor, place.pending, place.joined = None, None, False

    def _give_up(self, place: _Place, why: str) -> None:
        place.given_up = why
        self._end(place)

    # -- answers

    def _heard(self, place: _Place, answer: Any) -> Event | None:
        if self._given.pop(answer, None):
            return self._took(place, answer)
        place.pending = None
        try:
            said = self._ray.get(answer)
        except self._ray.exceptions.RayError as error:
            return self._lost(place, error)
        if isinstance(said, Report):
            return self._reported(place, said)
        return self._opened(place, said)

    def _took(self, place: _Place, answer: Any) -> Event | None:
        """Orders arrived, or the worker choked on them; that it died is heard of by what it was asked."""
        try:
            self._ray.get(answer)
        except self._ray.exceptions.RayActorError:
            pass
        except self._ray.exceptions.RayError as error:
            return self._lost(place, error) if place.joined else None
        return None

    def _reported(self, place: _Place, report: Report) -> Event:
        place.starts = place.starts if not report.results else 0
        if report.ended and report.failure and place.starts < MOST_STARTS:
            self._end(place)
        elif report.ended:
            self._give_up(place, report.failure or report.gave_up or "ended")
        else:
            place.pending = place.actor.collect.remote(COLLECT_S)
        return Reported(place.name, report)

    def _opened(self, place: _Place, found: dict[str, Any]) -> Event | None:
        """A worker says what it would run: taken in if that is what this machine would."""
        why = found.get("failure") or self._difference(found)
        if why:
            self._say(f"{place.name}: refused: {why}")
            self._give_up(place, f"refused: {why}")
            return None
        place.joined = True
        place.pending = place.actor.collect.remote(COLLECT_S)
        return Joined(place.name, found["context"], found["wanted_jobs"])

    def _difference(self, found: dict[str, Any]) -> str:
        if found["batchrun"] != self._like.batchrun:
            return f"batchrun {found['batchrun']} there, {self._like.batchrun} here"
        return self._like.difference(Likeness(**{name: found[name] for name in Likeness.__dataclass_fields__}))

    def _lost(self, place: _Place, error: Exception) -> Event | None:
        """A worker died, or its machine did, or it cannot so much as begin."""
        joined, why = place.joined, _first_line(error)
        node_gone = self._went_with_its_node(place, error)
        self._end(place)
        known = self._ray.exceptions
        final = (known.RayTaskError, known.RuntimeEnvSetupError, known.ActorUnschedulableError)
        if isinstance(error, final) or place.starts >= MOST_STARTS:
            place.given_up = why
        if place.given_up and not joined:
            self._say(f"{place.name}: refused: {place.given_up}")
        gone = "its node is gone" if node_gone else "its process died"
        return Left(place.name, place.given_up or gone, blame=not node_gone) if joined else None

    def _went_with_its_node(self, place: _Place, error: Exception) -> bool:
        """Where this is not known for sure it is not so: what it ran is then tried again alone, which takes longer."""
        lives = any(node["NodeID"] == place.node and node["Alive"] for node in self._all_nodes())
        return (
            (place.node is not None and not lives)
            or isinstance(error, self._ray.exceptions.ActorUnavailableError)
            or "node has died" in str(error)
        )

    def _all_nodes(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._ray.nodes()
        return found


def _claims(resources: dict[str, float]) -> dict[str, Any]:
    """As Ray takes them: what it has no name for is a resource of the user's own."""
    own = {name: value for name, value in resources.items() if name not in ("num_cpus", "num_gpus", "memory")}
    named = {name: value for name, value in resources.items() if name not in own}
    return ({"num_cpus": 1} | named) | ({"resources": own} if own else {})


def _first_line(error: Exception) -> str:
    """What a person needs of an error of Ray's, which may be pages long."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return next((line for line in lines if "Error" in line and ":" in line), lines[0] if lines else "it died")[:200]
