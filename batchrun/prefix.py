"""Finds the beginnings that requests share, so that each is computed once.

Requests of a burst are known in advance, so the prefix tree is planned, not guessed: sorting the token sequences
puts sharers side by side, and the longest common prefix of a sorted range is that of its two ends.  A node is kept
where at least two readers share `MIN_GAIN_TOKENS` more than the node above gives them.  (The idea of a radix tree over
prompts is from SGLang's RadixAttention, arXiv 2312.07104; here it is planned per burst and owns its slots.)

Pure: token ids in, an order and a tree out.  Who computes a prefix, and when it may go, is the scheduler's affair.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from batchrun.core import Request

MIN_GAIN_TOKENS = 32
"""A copy and a slot are paid back many times over by 32 tokens of prefill on any model; far below that they are not."""


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """A shared beginning, compared by identity: it stands for one computation.  `share`: where it begins itself."""

    tokens: tuple[int, ...]
    share: "Share | None"


class Share(NamedTuple):
    """Take the first `tokens` tokens from `prefix`."""

    prefix: Prefix
    tokens: int


class Planned(NamedTuple):
    """A request and where its beginning comes from; `share` leaves at least one token to compute."""

    request: Request
    share: Share | None


class _Range(NamedTuple):
    members: list[Request]  # sorted by tokens
    share: Share | None


def common_length(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the longest common prefix, by bisection over slices (slices compare in C)."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def plan(
    requests: Sequence[Request], resident: Iterable[Prefix], *, cut: bool, long_first: bool = False
) -> list[Planned]:
    """Orders `requests` so that sharers stand together, and says what each shares.

    `resident`: prefixes that still lie in slots.  `cut`: whether the beginning of one may be taken without the rest.
    Within the order, a group stands where its first member stood.  `long_first`: within a group those with the largest
    budgets lead, for the end of the input: an answer that starts last and is long would run on alone.
    """
    kept = tuple(resident)
    arrival = {id(request): place for place, request in enumerate(requests)}
    planned: list[Planned] = []
    stack = [_Range(sorted(requests, key=lambda request: request.tokens), None)]
    while stack:
        members, share = stack.pop()
        shared = min(common_length(members[0].tokens, members[-1].tokens), len(members[0].tokens) - 1) if members else 0
        if len(members) > 1:
            share = _node(members[0].tokens[:shared], share, kept, cut)
        elif members:
            planned.append(Planned(members[0], _best_share(members[0].tokens[:shared], share, kept, cut)))
            continue
        children = _split(members, shared)
        children.sort(key=lambda child: min(arrival[id(member)] for member in child), reverse=True)
        if long_first:
            children.sort(key=lambda child: max(member.job.max_tokens for member in child))
        stack.extend(_Range(child, share) for child in children)
    return planned


def _node(tokens: tuple[int, ...], share: Share | None, resident: tuple[Prefix, ...], cut: bool) -> Share | None:
    """The share that members of a range with these common tokens get: a new node if it gains enough, else the old."""
    share = _best_share(tokens, share, resident, cut)
    gain = len(tokens) - (share.tokens if share else 0)
    return Share(Prefix(tokens, share), len(tokens)) if gain >= MIN_GAIN_TOKENS else share


def _best_share(tokens: tuple[int, ...], share: Share | None, resident: tuple[Prefix, ...], cut: bool) -> Share | None:
    for prefix in resident:
        common = common_length(prefix.tokens, tokens)
        usable = cut or common == len(prefix.tokens)
        if usable and common >= (share.tokens if share else 0) + MIN_GAIN_TOKENS:
            share = Share(prefix, common)
    return share


def _split(members: list[Request], shared: int) -> list[list[Request]]:
    """Parts a range by the token that follows its common part; a member with only one token left stands alone."""
    children: list[list[Request]] = []
    for member in members:
        alone = len(member.tokens) == shared + 1
        if children and not alone:
            last = children[-1][-1].tokens
            if len(last) > shared + 1 and last[shared] == member.tokens[shared]:
                children[-1].append(member)
                continue
        children.append([member])
    return children
