"""What is under way: every request that has no result yet, and all that waits for its answer.

Equal jobs wait for one request; the pieces of a document belong to one whole; the jobs of a group race, and the first
good answer ends the others.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from batchrun.core import Job, Request
from batchrun.key_table import KeyTable, key_of
from batchrun.wholes import Whole


@dataclass(slots=True, eq=False)
class Errand:
    """A request on its way.

    `twins`: jobs that ask the same and get the same answer.  `whole`, `piece`: the document that it reads a piece of.
    `document`: what its result says of a document that was cut.
    """

    request: Request
    twins: list[Job] = field(default_factory=list)
    attempt: int = 1
    whole: Whole | None = None
    piece: int = 0
    document: Any = None


class Errands:
    """All errands, found by their request, by what they ask, and by their group."""

    def __init__(self, share_answers: bool = True) -> None:
        self._share_answers = share_answers
        self._open: dict[Request, Errand] = {}
        self._shared: dict[str, Errand] = {}  # by digest: those that equal jobs may join
        self._groups: dict[str, list[Errand]] = {}
        self._won = KeyTable()  # groups that have their answer: the line of the job that gave it
        self.timed = 0  # open errands that have a time limit

    def __len__(self) -> int:
        return len(self._open)

    def __iter__(self) -> Iterator[Request]:
        return iter(tuple(self._open))

    def __contains__(self, request: Request) -> bool:
        return request in self._open

    def add(self, errand: Errand) -> None:
        request, job = errand.request, errand.request.job
        self._open[request] = errand
        self.timed += job.timeout_s is not None
        if job.group is not None:
            self._groups.setdefault(job.group, []).append(errand)
        if self.may_share(job) and not errand.whole:
            self._shared[request.digest] = errand

    def begin(self, request: Request, now_s: float) -> Request:
        """A burst takes the request, whose times count from now: gives it with that moment, by which it is found."""
        errand = self._open.pop(request)
        errand.request = replace(request, taken_s=now_s)
        self._open[errand.request] = errand
        return errand.request

    def renew(self, request: Request, again: Request) -> None:
        """The errand is tried again: it is found by its new request from now on."""
        errand = self._open.pop(request)
        errand.request = again
        self._open[again] = errand

    def of(self, request: Request) -> Errand:
        return self._open[request]

    def equal_to(self, job: Job, digest: str) -> Errand | None:
        """An errand whose answer is this job's answer too."""
        return self._shared.get(digest) if self.may_share(job) else None

    def may_share(self, job: Job) -> bool:
        """Whether its answer may come from an equal job: one that races or has a time limit runs for itself."""
        return self._share_answers and job.group is None and job.timeout_s is None

    def remove(self, request: Request) -> Errand:
        """The errand has come to its end."""
        errand, job = self._open.pop(request), request.job
        self.timed -= job.timeout_s is not None
        if self._shared.get(request.digest) is errand:
            del self._shared[request.digest]
        if job.group is not None:
            members = self._groups[job.group]
            members.remove(errand)
            if not members:
                del self._groups[job.group]
        return errand

    def win(self, group: str, index: int) -> Iterable[Errand]:
        """A job of the group has a good answer.  Gives the errands that this ends."""
        self._won.put(key_of(group), index)
        return tuple(self._groups.get(group, ()))

    def winner(self, group: str | None) -> int | None:
        """The line of the job that a group has its answer from."""
        return None if group is None else self._won.get(key_of(group))
