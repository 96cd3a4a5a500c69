"""The prefix plan: an order and a tree, pure, whatever the prompts are."""

from collections.abc import Iterable, Sequence

from building import request
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun.core import Request
from batchrun.prefix import MIN_GAIN_TOKENS, Planned, Prefix, Share, common_length, plan

PIECES = [(1,) * 33, (2,) * 32, (2,) * 31, (3, 1) * 40, (4,) * 5, ()]

prompts = st.builds(
    lambda pieces, tail: (*(token for piece in pieces for token in PIECES[piece]), *tail),
    st.lists(st.integers(0, len(PIECES) - 1), max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=3),
)
batches = st.lists(prompts, max_size=16).map(lambda batch: [request(tokens) for tokens in batch])
resident_prefixes = st.lists(prompts.map(lambda tokens: Prefix(tokens, None)), max_size=4)
quick = settings(deadline=None, max_examples=300)


def computed_tokens(planned: Iterable[Planned], resident: Sequence[Prefix] = ()) -> int:
    """Tokens that go through the model: each new prefix that is read, once, and what requests do not copy."""
    new: set[Prefix] = set()
    total = 0
    for entry in planned:
        total += len(entry.request.tokens) - (entry.share.tokens if entry.share else 0)
        share = entry.share
        while share and share.prefix not in resident:
            new.add(share.prefix)
            share = share.prefix.share
    return total + sum(len(prefix.tokens) - (prefix.share.tokens if prefix.share else 0) for prefix in new)


def check_share(tokens: tuple[int, ...], share: Share, *, cut: bool, resident: Iterable[Prefix]) -> None:
    """A share is a true beginning of its reader and leaves something to compute; whole, where it may not be cut."""
    assert 0 < share.tokens < len(tokens)
    assert share.tokens <= len(share.prefix.tokens)
    assert tokens[: share.tokens] == share.prefix.tokens[: share.tokens]
    assert cut or share.tokens == len(share.prefix.tokens)
    assert share.prefix in resident or share.tokens == len(share.prefix.tokens)
    if share.prefix.share:
        check_share(share.prefix.tokens, share.prefix.share, cut=cut, resident=resident)


def prefixes_above(share: Share | None) -> list[Prefix]:
    above = []
    while share:
        above.append(share.prefix)
        share = share.prefix.share
    return above


# -- properties


@quick
@given(batches, resident_prefixes, st.booleans())
def test_a_plan_is_a_permutation_of_its_requests(requests: list[Request], resident: list[Prefix], cut: bool) -> None:
    planned = [entry.request for entry in plan(requests, resident, cut=cut)]
    assert len(planned) == len(requests)
    assert set(planned) == set(requests)


@quick
@given(batches, resident_prefixes, st.booleans())
def test_every_share_is_a_true_beginning_that_leaves_a_token(
    requests: list[Request], resident: list[Prefix], cut: bool
) -> None:
    for entry in plan(requests, resident, cut=cut):
        if entry.share:
            check_share(entry.request.tokens, entry.share, cut=cut, resident=resident)
            assert entry.share.tokens >= MIN_GAIN_TOKENS


@quick
@given(batches)
def test_sharers_of_a_prefix_stand_together(requests: list[Request]) -> None:
    planned = plan(requests, (), cut=True)
    above = [prefixes_above(entry.share) for entry in planned]
    for prefix in {prefix for prefixes in above for prefix in prefixes}:
        readers = [place for place, prefixes in enumerate(above) if prefix in prefixes]
        assert readers == list(range(readers[0], readers[-1] + 1))


@quick
@given(batches)
def test_every_prefix_is_read_at_least_twice(requests: list[Request]) -> None:
    """By requests, or by prefixes that go on where it ends."""
    planned = plan(requests, (), cut=True)
    shares = {prefix: prefix.share for entry in planned for prefix in prefixes_above(entry.share)}
    readers = [entry.share.prefix for entry in planned if entry.share]
    readers += [share.prefix for share in shares.values() if share]
    assert all(readers.count(prefix) >= 2 for prefix in shares)


@quick
@given(batches)
def test_a_plan_computes_no_more_than_every_prompt_whole(requests: list[Request]) -> None:
    planned = plan(requests, (), cut=True)
    saved = sum(len(wanted.tokens) for wanted in requests) - computed_tokens(planned)
    assert saved >= MIN_GAIN_TOKENS * any(entry.share for entry in planned)


@quick
@given(batches, resident_prefixes, st.booleans())
def test_resident_prefixes_never_make_a_plan_dearer(requests: list[Request], resident: list[Prefix], cut: bool) -> None:
    with_them = computed_tokens(plan(requests, resident, cut=cut), resident)
    assert with_them <= computed_tokens(plan(requests, (), cut=cut))


@quick
@given(st.permutations(range(12)))
def test_requests_that_share_nothing_keep_their_order(first_tokens: list[int]) -> None:
    requests = [request([first] + [20] * 40) for first in first_tokens]
    assert [entry.request for entry in plan(requests, (), cut=True)] == requests


@quick
@given(prompts, prompts)
def test_common_length_is_that_of_the_naive_count(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    naive = 0
    for one, other in zip(first, second, strict=False):
        if one != other:
            break
        naive += 1
    assert common_length(first, second) == naive


# -- examples


def test_nothing_is_planned_of_nothing() -> None:
    assert plan([], (), cut=True) == []


def test_identical_prompts_share_all_but_their_last_token() -> None:
    planned = plan([request([1] * 50) for _ in range(4)], (), cut=True)
    shares = {entry.share for entry in planned}
    assert [share.tokens for share in shares if share] == [49]


def test_a_beginning_too_short_to_pay_is_not_shared() -> None:
    requests = [request([1] * (MIN_GAIN_TOKENS - 1) + [tail, 9]) for tail in (2, 3)]
    assert all(entry.share is None for entry in plan(requests, (), cut=True))


def test_a_beginning_just_long_enough_is_shared() -> None:
    requests = [request([1] * MIN_GAIN_TOKENS + [tail, 9]) for tail in (2, 3)]
    assert [entry.share.tokens for entry in plan(requests, (), cut=True) if entry.share] == [MIN_GAIN_TOKENS] * 2


def test_a_group_stands_where_its_first_member_stood() -> None:
    loner, other = request([9] * 40), request([8] * 40)
    group = [request([1] * 40 + [tail]) for tail in (3, 2)]
    planned = plan([loner, group[0], other, group[1]], (), cut=True)
    assert [entry.request for entry in planned] == [loner, *group, other]


def test_within_a_group_the_order_of_arrival_is_kept() -> None:
    group = [request([1] * 40 + [tail], budget) for tail, budget in ((2, 5), (3, 50), (4, 20))]
    assert [entry.request for entry in plan(group, (), cut=True)] == group


def test_the_largest_budgets_lead_where_that_is_asked_for() -> None:
    short, long, middle = (request([1] * 40 + [tail], budget) for tail, budget in ((2, 5), (3, 50), (4, 20)))
    planned = plan([short, long, middle], (), cut=True, long_first=True)
    assert [entry.request for entry in planned] == [long, middle, short]
    assert all(entry.share and entry.share.tokens == 40 for entry in planned)


def test_a_prefix_begins_with_the_one_above_it() -> None:
    outer, inner = [1] * 40, [1] * 40 + [2] * 40
    requests = [request([*inner, 5]), request([*inner, 6]), request([*outer, 7])]
    planned = plan(requests, (), cut=True)
    above = planned[0].share
    assert above
    assert above.tokens == 80
    assert above.prefix.share
    assert (above.prefix.share.tokens, above.prefix.share.prefix.tokens) == (40, tuple(outer))
    assert planned[2].share == above.prefix.share


def test_a_resident_prefix_is_used_whole() -> None:
    resident = Prefix((1,) * 64, None)
    (planned,) = plan([request([1] * 64 + [2])], [resident], cut=False)
    assert planned.share == Share(resident, 64)


def test_the_beginning_of_a_resident_prefix_is_used_where_cutting_is_allowed() -> None:
    resident = Prefix((1,) * 40 + (5,) * 40, None)
    (planned,) = plan([request([1] * 40 + [2])], [resident], cut=True)
    assert planned.share == Share(resident, 40)


def test_a_resident_prefix_is_not_cut_where_that_is_not_allowed() -> None:
    resident = Prefix((1,) * 40 + (5,) * 40, None)
    (planned,) = plan([request([1] * 40 + [2])], [resident], cut=False)
    assert planned.share is None


def test_a_resident_prefix_as_long_as_the_prompt_is_cut_by_a_token_or_not_used() -> None:
    resident = Prefix((1,) * 64, None)
    assert plan([request([1] * 64)], [resident], cut=True)[0].share == Share(resident, 63)
    assert plan([request([1] * 64)], [resident], cut=False)[0].share is None


def test_the_longest_resident_prefix_wins() -> None:
    short, long = Prefix((1,) * 40, None), Prefix((1,) * 80, None)
    for resident in ([short, long], [long, short]):
        assert plan([request([1] * 81)], resident, cut=False)[0].share == Share(long, 80)


def test_a_new_prefix_goes_on_from_a_resident_one() -> None:
    resident = Prefix((1,) * 40, None)
    planned = plan([request([1] * 40 + [2] * 40 + [tail]) for tail in (5, 6)], [resident], cut=False)
    assert planned[0].share
    assert planned[0].share.tokens == 80
    assert planned[0].share.prefix.share == Share(resident, 40)


def test_a_chain_of_3000_prompts_each_the_beginning_of_the_next_is_planned_without_recursion() -> None:
    requests = [request("a" * length) for length in range(1, 3001)]
    planned = plan(requests, (), cut=True)
    assert {entry.request for entry in planned} == set(requests)
    assert computed_tokens(planned) <= 3000 + 3000 * (MIN_GAIN_TOKENS + 1)
