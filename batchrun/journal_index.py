"""What a results file holds, by keys: which jobs have a result, which results the present run claimed or wrote again.

Tables of digests and no lines, so that a file of millions of results costs some 90 bytes a line.  Pure bookkeeping:
`journal.py` reads and writes the file.
"""

from collections import Counter
from typing import Any

from batchrun.core import Status
from batchrun.key_table import KeyTable, key_of
from batchrun.result_lines import is_final

STATUSES = tuple(Status)
_NUMBERS = {status: number for number, status in enumerate(STATUSES)}
_BY_TEXT = frozenset(status.value for status in Status)
REUSABLE = frozenset({Status.OK, Status.INVALID, Status.TRUNCATED})
"""What an equal job of another name would come to as well."""

_STATUS_BITS = 3
_UNCLAIMED = 1 << _STATUS_BITS
_PLACE_SHIFT = _STATUS_BITS + 1
_RENEWED = 1 << _STATUS_BITS


class JournalIndex:
    """The lines of a results file.  `place`: the byte at which a line begins."""

    def __init__(self) -> None:
        self._results = KeyTable()  # id and digest of a final result: place, whether it is unclaimed, status
        self._more: Counter[bytes] = Counter()  # unclaimed results beyond the first of the same id and digest
        self._ids = KeyTable()  # id: place of its last line, whether this run renewed it, status
        self._answers = KeyTable()  # digest: place of a result that an equal job may share
        self.unclaimed = 0  # final results that were there and that this run has not claimed
        self.unfinished = 0  # results that are not final: their jobs run again
        self.renewed = 0  # ids that stand on old lines and have a claimed or a new one
        self._repeated = False  # some id stands on several lines

    def add(self, record: dict[str, Any], place: int) -> None:
        """Takes in a line that was there when the file was opened."""
        job_id, digest = record["id"], record["digest"]
        status = _status(record["status"])
        is_new = self._ids.put(key_of(job_id), place << _PLACE_SHIFT | _NUMBERS[status])
        self._repeated = self._repeated or not is_new
        if not is_final(record):
            self.unfinished += 1
            return
        key = key_of(job_id, digest)
        if not self._results.put(key, place << _PLACE_SHIFT | _UNCLAIMED | _NUMBERS[status]):
            self._more[key] += 1
        self.unclaimed += 1
        if status in REUSABLE:
            self._answers.put(key_of(digest), place)

    def wrote(self, job_id: str, digest: str, status: Status, place: int) -> None:
        """Takes in a line that this run wrote."""
        id_key = key_of(job_id)
        if id_key in self._ids:  # else nothing old has this id, and nobody will ask
            self._ids.put(id_key, place << _PLACE_SHIFT | _RENEWED | _NUMBERS[status])
            self.renewed += 1
        if status in REUSABLE:
            self._answers.put(key_of(digest), place)

    def claim(self, job_id: str, digest: str) -> tuple[Status, int] | None:
        """Takes one of the unclaimed final results of a job: its status and place."""
        found = self.take(job_id, digest)
        if found and self._repeated:  # else this is the only line of its id
            id_key = key_of(job_id)
            self._ids.put(id_key, (self._ids.get(id_key) or 0) | _RENEWED)
            self.renewed += 1
        return found

    def take(self, job_id: str, digest: str) -> tuple[Status, int] | None:
        """As `claim`, but its id does not count as renewed."""
        key = key_of(job_id, digest)
        value = self._results.get(key)
        if value is None or not value & _UNCLAIMED:
            return None
        if self._more[key]:
            self._more[key] -= 1
        else:
            self._results.put(key, value & ~_UNCLAIMED)
        status = STATUSES[value & (_UNCLAIMED - 1)]
        self.unclaimed -= 1
        return status, value >> _PLACE_SHIFT

    def is_renewed(self, job_id: str) -> bool:
        """Whether this run found or wrote a result of this id."""
        return bool((self._ids.get(key_of(job_id)) or 0) & _RENEWED)

    def latest(self, job_id: str) -> tuple[Status, int] | None:
        """Status and place of the last line of an id."""
        value = self._ids.get(key_of(job_id))
        return None if value is None else (STATUSES[value & (_RENEWED - 1)], value >> _PLACE_SHIFT)

    def answer(self, digest: str) -> int | None:
        """Where a result lies that an equal job may share."""
        return self._answers.get(key_of(digest))


def _status(text: str) -> Status:
    """A status; one that this version does not know is as good as a failure."""
    return Status(text) if text in _BY_TEXT else Status.ERROR


class MovedIndex:
    """The results that earlier runs moved to the file of replaced ones, each of which can be brought back once."""

    def __init__(self) -> None:
        self._places = KeyTable()  # place, and whether it was brought back

    def add(self, record: dict[str, Any], place: int) -> None:
        self._places.put(key_of(record["id"], record["digest"]), place << 1)

    def take(self, job_id: str, digest: str) -> int | None:
        """The place of a moved result that was not brought back yet."""
        key = key_of(job_id, digest)
        value = self._places.get(key)
        if value is None or value & 1:
            return None
        self._places.put(key, value | 1)
        return value >> 1

    def place_of(self, record: dict[str, Any]) -> int | None:
        """Where a line of that id and digest lies."""
        value = self._places.get(key_of(record["id"], record["digest"]))
        return None if value is None else value >> 1
