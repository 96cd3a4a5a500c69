"""Where results go: the seam, and the way to everything that is not simply the journal.

A relay hands results on in another order or another dialect.  Behind it stands a journal where there is one: then every
result is on disk before it is handed on, and what an earlier run found is handed on too.
"""

import json
from collections import OrderedDict, deque
from typing import Any, Protocol

from batchrun.core import Result, Status
from batchrun.journal import Journal
from batchrun.journal_index import REUSABLE
from batchrun.outlet import Outlet
from batchrun.results import as_line

MOST_HELD = 4096
MOST_HELD_BYTES = 64 << 20
"""Results that wait for one before them: with more, no new job is taken until that one is there."""

RECENT = 4096
RECENT_BYTES = 16 << 20
"""Answers remembered for equal jobs where there is no journal to find them in."""


class Sink(Protocol):
    """Where results go."""

    @property
    def full(self) -> bool:
        """Whether no further line should begin now."""
        ...

    def begin(self, index: int) -> None:
        """A line of the input is to come to a result, sooner or later."""
        ...

    def claim(self, job_id: str, digest: str, index: int = 0) -> Status | None:
        """The status of a final result of this very job, if one is here.  Each is found once: twins need two.

        `index`: of the line in this run, which counts for the order.
        """
        ...

    def latest(self, job_id: str) -> dict[str, Any] | None:
        """The last result of an id, final or not, as a record."""
        ...

    def answer(self, digest: str) -> dict[str, Any] | None:
        """A result that an equal job of another id may share, as a record."""
        ...

    def append(self, result: Result) -> object: ...

    def sync(self) -> None: ...


class NoPast:
    """The part of a sink that finds no earlier results, for those that hand results on and keep none."""

    full = False

    def begin(self, index: int) -> None:
        pass

    def claim(self, job_id: str, digest: str, index: int = 0) -> Status | None:
        return None

    def latest(self, job_id: str) -> dict[str, Any] | None:
        return None

    def answer(self, digest: str) -> dict[str, Any] | None:
        return None

    def sync(self) -> None:
        pass


class Relay:
    """Results for an outlet.  `ordered`: in the order of the input."""

    def __init__(self, journal: Journal | None, outlet: Outlet, *, ordered: bool) -> None:
        self.complete = False
        self._journal = journal
        self._outlet = outlet
        self._order = _Order() if ordered else None
        self._recent = _Recent()

    @property
    def full(self) -> bool:
        return self._order is not None and self._order.full

    def begin(self, index: int) -> None:
        if self._order:
            self._order.begin(index)

    def claim(self, job_id: str, digest: str, index: int = 0) -> Status | None:
        found = self._journal.claimed(job_id, digest) if self._journal else None
        if found is None:
            return None
        self._hand_on(index, found[1])
        return found[0]

    def latest(self, job_id: str) -> dict[str, Any] | None:
        return self._journal.latest(job_id) if self._journal else None

    def answer(self, digest: str) -> dict[str, Any] | None:
        return self._journal.answer(digest) if self._journal else self._recent.get(digest)

    def append(self, result: Result) -> None:
        line = self._journal.append(result) if self._journal else as_line(result)
        if not self._journal and result.status in REUSABLE:
            self._recent.put(result.digest, line)
        self._hand_on(result.index, line)

    def sync(self) -> None:
        if self._journal:
            self._journal.sync()

    def close(self) -> None:
        """Hands on what waits for results that do not come, and ends the output."""
        try:
            for line in self._order.rest() if self._order else ():
                self._outlet.write(line)
        finally:
            self._outlet.close(self.complete)

    def _hand_on(self, index: int, line: bytes) -> None:
        for ready in self._order.put(index, line) if self._order else (line,):
            self._outlet.write(ready)


class _Order:
    """Lines that came before their turn."""

    def __init__(self) -> None:
        self._due: deque[int] = deque()
        self._lines: dict[int, bytes] = {}
        self._bytes = 0

    @property
    def full(self) -> bool:
        return len(self._due) >= MOST_HELD or self._bytes > MOST_HELD_BYTES

    def begin(self, index: int) -> None:
        self._due.append(index)

    def put(self, index: int, line: bytes) -> list[bytes]:
        """Takes a line.  Gives those whose turn it is."""
        self._lines[index] = line
        self._bytes += len(line)
        ready = []
        while self._due and self._due[0] in self._lines:
            ready.append(self._lines.pop(self._due.popleft()))
        self._bytes -= sum(map(len, ready))
        return ready

    def rest(self) -> list[bytes]:
        return [self._lines[index] for index in self._due if index in self._lines]


class _Recent:
    """The last answers, by digest."""

    def __init__(self) -> None:
        self._lines: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0

    def get(self, digest: str) -> dict[str, Any] | None:
        line = self._lines.get(digest)
        record: dict[str, Any] | None = json.loads(line) if line else None
        return record

    def put(self, digest: str, line: bytes) -> None:
        self._bytes += len(line) - len(self._lines.get(digest, b""))
        self._lines[digest] = line
        while len(self._lines) > RECENT or self._bytes > RECENT_BYTES:
            self._bytes -= len(self._lines.popitem(last=False)[1])
