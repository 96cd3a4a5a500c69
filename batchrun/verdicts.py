"""Compares what a job said in its batch with what it says alone, and counts what came of it.  Pure.

Greedy answers of a row must not depend on its batch mates.  They may part where two tokens were nearly as likely,
because kernels for other widths sum in another order; anything else is a fault, such as rows that were mixed up.
"""

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import blake2b
from typing import Any

from batchrun.core import Completion, NearTie, Status
from batchrun.printable import printable

COMPARED = frozenset({Status.OK, Status.INVALID, Status.TRUNCATED})
ROWS_KEPT = 1000
ROWS_SAID = 10
SHOWN, SHOWN_BEFORE = 48, 16  # characters of an answer, and of those before the place where two part

Decode = Callable[[Sequence[int]], bytes]


class Verdict(StrEnum):
    """What a job that ran alone says of its result."""

    IDENTICAL = "identical"
    NEAR_TIE = "near-tie"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class Row:
    """A job whose two answers are not identical."""

    id: str
    index: int
    verdict: Verdict
    in_batch: Any
    alone: str


@dataclass(slots=True)
class Audit:
    """All that was compared, and what could not be, by reason."""

    counts: Counter[Verdict] = field(default_factory=Counter)
    passed_over: Counter[str] = field(default_factory=Counter)
    rows: list[Row] = field(default_factory=list)  # at most ROWS_KEPT, differing ones first

    @property
    def different(self) -> int:
        return self.counts[Verdict.DIFFERENT]

    def count(self, verdict: Verdict, job_id: str, index: int, output: Any, alone: Completion) -> None:
        """Counts a result in."""
        self.counts[verdict] += 1
        if verdict is not Verdict.IDENTICAL:
            place = 0 if verdict is Verdict.DIFFERENT else len(self.rows)
            self.rows.insert(place, Row(job_id, index, verdict, output, alone.text))
            del self.rows[ROWS_KEPT:]


def drawn(job_id: str, digest: str, seed: int) -> float:
    """A job's draw, from 0 to 1: the same for a seed, whatever the order of the file."""
    hashed = blake2b(f"{seed}\0{job_id}\0{digest}".encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(hashed) / 2**64


def in_sample(job_id: str, digest: str, share: float, seed: int) -> bool:
    """Whether a job is among the share that is looked at."""
    return drawn(job_id, digest, seed) < share


def same_way(batch: Completion, alone: Completion) -> Verdict:
    """Compares two completions of one job by their tokens.

    They part at a near-tie where one nearly drew the token of the other, or where both hardly knew: then a third token
    was as near.
    """
    if batch.text == alone.text:
        return Verdict.IDENTICAL
    pairs = enumerate(zip(batch.tokens, alone.tokens, strict=False))
    place = next((at for at, (one, other) in pairs if one != other), min(len(batch.tokens), len(alone.tokens)))
    ties = [[tie for tie in each.near_ties if tie.place == place] for each in (batch, alone)]
    crossed = any(
        tie.second is None or tie.second in other.tokens[place : place + 1] or place == len(other.tokens)
        for own, other in zip(ties, (alone, batch), strict=True)
        for tie in own
    )
    return Verdict.NEAR_TIE if crossed or all(ties) else Verdict.DIFFERENT


def judged(output: Any, alone: Completion, decode: Decode) -> Verdict:
    """Compares a result's output with the same job's completion when it ran alone."""
    said = said_of(output, alone)
    if said == alone.text:
        return Verdict.IDENTICAL
    place = _token_at(alone.tokens, _common_characters(said, alone.text), decode)
    near = any(tie.place in (place - 1, place) and _parts_there(said, alone, tie, decode) for tie in alone.near_ties)
    return Verdict.NEAR_TIE if near else Verdict.DIFFERENT


def said_of(output: Any, alone: Completion) -> str:
    """A result's output as it was decoded; the text of `alone` where that is the same value."""
    is_value = alone.request.job.schema is not None and alone.request.job.schema.is_json
    if is_value and _sorted(_parsed(alone.text)) == _sorted(output):
        return alone.text
    return output if isinstance(output, str) and not (is_value and alone.text.startswith('"')) else _spelled(output)


def other_spellings(output: Any, alone: Completion, decode: Decode) -> list[NearTie]:
    """Near-ties between two ways to spell the same text, before the place where the answers part; the last ones first.

    What follows on the other spelling can be another answer, and only a run tells.
    """
    said, found = said_of(output, alone), []
    for tie in alone.near_ties:
        if tie.second is not None:
            other = decode([*alone.tokens[: tie.place], tie.second]).decode(errors="ignore")
            if said.startswith(other) and alone.text.startswith(other):
                found.append(tie)
    return found[::-1]


def parting(output: Any, alone: Completion, decode: Decode) -> tuple[int, str]:
    """The token of `alone` at which a result's output parts from it, and how the output goes on from there."""
    said = said_of(output, alone)
    place = _token_at(alone.tokens, _common_characters(said, alone.text), decode)
    return place, said[len(decode(alone.tokens[:place]).decode(errors="ignore")) :]


def _parts_there(said: str, alone: Completion, tie: NearTie, decode: Decode) -> bool:
    """Whether an answer goes on with the token that was nearly drawn, or ends where it would have ended.

    A token that says the same in other pieces does not tell.
    """
    before = list(alone.tokens[: tie.place])
    if tie.second is None or said == decode(before).decode(errors="ignore"):
        return True
    other = decode([*before, tie.second]).decode(errors="ignore")
    return said.startswith(other) and not alone.text.startswith(other)


def as_json(found: Audit) -> dict[str, Any]:
    """Counts, and the rows that are not identical."""
    return {
        "audited": found.counts.total(),
        **{verdict.value: found.counts[verdict] for verdict in Verdict},
        "passed_over": dict(found.passed_over),
        "rows": [{name: getattr(row, name) for name in Row.__dataclass_fields__} for row in found.rows],
    }


def lines(found: Audit) -> list[str]:
    """The same for a person."""
    counts = ", ".join(f"{found.counts[verdict]} {verdict}" for verdict in Verdict)
    total = found.counts.total()
    said = [f"audit: {total} {'job' if total == 1 else 'jobs'} run again alone: {counts}"]
    said += [f"audit: {count} passed over: {reason}" for reason, count in found.passed_over.most_common()]
    said += [f"audit: {row.verdict}: {_parting(row)}" for row in found.rows[:ROWS_SAID]]
    if len(found.rows) > ROWS_SAID:
        said.append(f"audit: and {len(found.rows) - ROWS_SAID} more rows: see batchrun audit --json")
    return said


def _parting(row: Row) -> str:
    """A job, and its two answers from a little before the place where they part."""
    said = row.in_batch if isinstance(row.in_batch, str) else _spelled(row.in_batch)
    start = max(0, _common_characters(said, row.alone) - SHOWN_BEFORE)
    pieces = [printable(text[start : start + SHOWN]) for text in (said, row.alone)]
    return f"job {printable(row.id)} (line {row.index}): …{pieces[0]}… in the batch, …{pieces[1]}… alone"


def _spelled(value: Any) -> str:
    """A value as it was decoded: compact, its keys in their order."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _sorted(value: Any) -> str:
    """Values are the same where this is: `true` is not 1."""
    return json.dumps(value, sort_keys=True)


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _common_characters(one: str, other: str) -> int:
    pairs = enumerate(zip(one, other, strict=False))
    return next((place for place, (a, b) in pairs if a != b), min(len(one), len(other)))


def _token_at(tokens: Sequence[int], character: int, decode: Decode) -> int:
    """The token that holds a character of the answer; the number of tokens where it lies behind them."""
    low, high = 0, len(tokens)
    while low < high:  # the text grows with the tokens, so halving finds the place
        middle = (low + high) // 2
        if len(decode(tokens[: middle + 1]).decode(errors="ignore")) > character:
            high = middle
        else:
            low = middle + 1
    return low
