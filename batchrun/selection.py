"""Which jobs of the input a run takes: by id, by number, by share, or by what became of them before.

Jobs that are not taken are passed over without a result; a job's share (`--shard 3/8`) depends on its id alone, so it
stays with the same process of a job array while the file grows.
"""

import hashlib
import random
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchrun.core import GROUP_WON, Result, Status
from batchrun.errors import UsageError
from batchrun.result_lines import codes_of

RESULT_KEYS = frozenset({"code", *Result.__dataclass_fields__})
_CONDITION = re.compile(r"([\w.-]+)\s*(!?=)\s*(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Condition:
    """`status=invalid`: a key of the result line (dots lead inside) and the values that it may have; `!=`: that it may
    not.  `code` stands for the codes of all its errors.
    """

    key: str
    values: frozenset[str]
    negated: bool

    def holds(self, record: Mapping[str, Any]) -> bool:
        found = set(codes_of(dict(record))) if self.key == "code" else {_text(_inside(record, self.key))}
        return bool(found & self.values) != self.negated


@dataclass(frozen=True, slots=True)
class Shard:
    """One of `count` parts of the jobs; `number` from 1."""

    number: int
    count: int

    def holds(self, job_id: str) -> bool:
        digest = hashlib.blake2b(job_id.encode(errors="surrogatepass"), digest_size=8).digest()
        return int.from_bytes(digest, "big") % self.count == self.number - 1


@dataclass(frozen=True, slots=True)
class Selection:
    """What was asked for.  `limit`, `sample`: so many of the jobs that all else lets through."""

    only: frozenset[str] = frozenset()
    where: tuple[Condition, ...] = ()
    shard: Shard | None = None
    limit: int | None = None
    sample: int | None = None
    seed: int = 0
    retry_failed: bool = False

    @property
    def takes_all(self) -> bool:
        return not (self.only or self.where or self.shard or self.limit is not None or self.sample is not None)

    def expected(self, total: int | None) -> int | None:
        """How many of so many jobs are taken, done ones among them; None where only a run can tell."""
        if total is None or self.where or self.shard:
            return None
        bounds = (self.limit, self.sample, len(self.only) or None)
        return min(total, *(bound for bound in bounds if bound is not None), total)

    @property
    def looks_back(self) -> bool:
        """Whether results of earlier runs have a say."""
        return bool(self.where) or self.retry_failed

    def takes_id(self, job_id: str) -> bool:
        return (not self.only or job_id in self.only) and (not self.shard or self.shard.holds(job_id))

    def takes_past(self, record: Mapping[str, Any] | None) -> bool:
        """Whether a job with this earlier result (or None) is taken."""
        return not self.where or (record is not None and all(condition.holds(record) for condition in self.where))

    def runs_again(self, record: Mapping[str, Any] | None) -> bool:
        """Whether a job that was taken runs again although it has this result."""
        if record is None:
            return False
        failed = record["status"] != Status.OK and GROUP_WON not in codes_of(dict(record))
        return bool(self.where) or (self.retry_failed and failed)

    def chosen(self, total: int | None) -> frozenset[int] | None:
        """The places (from 0) of a sample among so many lines, or None for all of them.  Raises UsageError for a
        stream."""
        if self.sample is None:
            return None
        if total is None:
            raise UsageError("--sample needs to know how many jobs there are; expected a file, not a stream")
        return frozenset(random.Random(self.seed).sample(range(total), min(self.sample, total)))


def condition(text: str) -> Condition:
    """`KEY=VALUE[,VALUE...]` or `KEY!=...`.  Raises UsageError."""
    found = _CONDITION.fullmatch(text.strip())
    if not found:
        raise UsageError(f"--where is {text!r}; expected KEY=VALUE, such as status=invalid or meta.page!=3")
    values = frozenset(part.strip() for part in found[3].split(","))
    if found[1] == "status" and not values <= {status.value for status in Status}:
        raise UsageError(f"--where {text}: expected of status one of {', '.join(Status)}")
    if found[1].partition(".")[0] not in RESULT_KEYS:
        raise UsageError(f"--where {text}: results have no {found[1]}; expected status, code, attempt, meta.KEY ...")
    return Condition(found[1], values, found[2] == "!=")


def shard(text: str) -> Shard:
    """`3/8`.  Raises UsageError."""
    number, slash, count = text.partition("/")
    if not (slash and number.isascii() and number.isdigit() and count.isascii() and count.isdigit()):
        raise UsageError(f"--shard is {text!r}; expected a part of a whole such as 3/8")
    part = Shard(int(number), int(count))
    if not 1 <= part.number <= part.count:
        raise UsageError(f"--shard is {text!r}; expected a part from 1 to {part.count}")
    return part


@dataclass(frozen=True, slots=True)
class FailureLimit:
    """`--max-failures`: so many results that are not ok, or so many of a hundred."""

    count: int | None = None
    share: float | None = None

    def reached(self, failed: int, finished: int) -> bool:
        """A share is looked at once enough jobs have finished for one failure to be within it."""
        if self.count is not None:
            return failed > self.count
        return self.share is not None and finished * self.share >= 1 and failed > finished * self.share


def failure_limit(text: str | None) -> FailureLimit:
    """`20` or `5%`.  Raises UsageError."""
    if text is None:
        return FailureLimit()
    number, percent = text.removesuffix("%"), text.endswith("%")
    if re.fullmatch(r"\d{1,9}", number) and not percent:
        return FailureLimit(count=int(number))
    if percent and re.fullmatch(r"\d{1,3}(\.\d+)?", number) and 0 < float(number) <= 100:
        return FailureLimit(share=float(number) / 100)
    raise UsageError(f"--max-failures is {text!r}; expected a number of results such as 20, or a share such as 5%")


def _inside(record: Mapping[str, Any], key: str) -> Any:
    value: Any = record
    for name in key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def _text(value: Any) -> str:
    return "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
