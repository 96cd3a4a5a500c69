"""The scheduler against its rules: what stands in a step, who is admitted when, what is reserved and what is shared."""

from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from building import MOST_STEPS, Walk, limits, request
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from batchrun.core import Cut, FinishReason, Limits, Outcome, Pace, Request
from batchrun.prefix import Planned, Prefix, Share, plan
from batchrun.scheduler import Scheduler
from batchrun.sequence import Sequence

PIECES = [(1,) * 33, (2,) * 40, (3,) * 70, (4,) * 5, (5,) * 20]
"""What prompts begin with: long enough to be worth sharing, or not."""


# -- properties


@dataclass
class Work:
    """Requests that come in portions, what their rows will say, and who is cancelled when."""

    limits: Limits
    rows: int
    portions: list[list[Request]]
    gaps: list[int]  # steps between two portions
    paces: list[Pace]  # of the steps, over and over
    cancels: dict[int, list[int]] = field(default_factory=dict)  # by step: places among the requests
    proposals: list[int] = field(default_factory=list)  # how many tokens rows guess right, over and over
    noise: int = 0

    @property
    def requests(self) -> list[Request]:
        return [wanted for portion in self.portions for wanted in portion]


prompts = st.builds(
    lambda pieces, tail: (*(token for piece in pieces for token in PIECES[piece]), *tail),
    st.lists(st.integers(0, len(PIECES) - 1), max_size=4),
    st.lists(st.integers(65, 70), min_size=1, max_size=6),
)


def paces(batch: int, rows: int) -> st.SearchStrategy[list[Pace]]:
    """Any pace that the cost of steps may ask for, one for each of a few steps."""
    pace = st.builds(Pace, st.integers(1, batch), st.integers(1, rows), st.integers(2, 10), st.integers(0, 10))
    return st.lists(pace, min_size=1, max_size=4)


@st.composite
def works(draw: st.DrawFn) -> Work:
    shapes = draw(st.lists(st.tuples(prompts, st.integers(1, 12)), min_size=1, max_size=14))
    requests = [request(tokens, budget) for tokens, budget in shapes]
    cuts = sorted(draw(st.lists(st.integers(0, len(requests)), max_size=3)))
    edges = [0, *cuts, len(requests)]
    portions = [requests[begin:end] for begin, end in pairwise(edges)]
    rows = draw(st.integers(1, 8))
    slots = rows + draw(st.integers(0, 4))
    needed = max(wanted.need_tokens for wanted in requests)
    context = needed + draw(st.integers(0, 40))
    cells = draw(st.one_of(st.just(slots * context), st.integers(needed, slots * context)))
    bounds = limits(
        slots,
        context,
        cells=cells,
        batch=slots + draw(st.integers(0, 60)),
        cut=draw(st.booleans()),
    )
    cancels = draw(st.dictionaries(st.integers(0, 30), st.lists(st.integers(0, len(requests) - 1), max_size=3)))
    gaps = draw(st.lists(st.integers(0, 12), min_size=len(portions), max_size=len(portions)))
    proposals = draw(st.lists(st.integers(0, 9), max_size=4)) if bounds.cut else []
    noise = draw(st.integers(0, 1000))
    return Work(bounds, rows, portions, gaps, draw(paces(bounds.batch, rows)), cancels, proposals, noise)


def talkative(noise: int):
    """Rows that end now and then, and that say forced runs of 0 to 13 tokens behind a drawn one."""

    def answer(row: Sequence, slot: int) -> Outcome:
        number = (noise + 7919 * len(row.tokens) + 31 * slot) % 101
        if number < 8:
            return Outcome(slot, (), FinishReason.STOP)
        forced = number % 14 if number % 3 == 0 else 0
        return Outcome(slot, (65,) * (1 + forced), FinishReason.STOP if number > 95 else None)

    return answer


def propose(walk: Walk, work: Work, number: int) -> None:
    """Rows guess some tokens, of which the first are what `talkative` rows say, and the rest are not."""
    if work.proposals:
        for row in walk.scheduler.decoding:
            right = work.proposals[(number + row.slot) % len(work.proposals)]
            row.proposal = (65,) * right + (66,) * ((work.noise + number) % 3)


def walked(work: Work, look) -> Walk:
    """Runs a work to its end; `look` is shown the walk after every plan, before the backend obeys."""
    walk = Walk(work.limits, work.rows, talkative(work.noise))
    portions = list(zip(work.portions, work.gaps, strict=True))
    wait, requests = 0, work.requests
    for number in range(MOST_STEPS):
        while portions and wait <= 0:
            portion, wait = portions.pop(0)
            walk.scheduler.submit(plan(portion, walk.scheduler.resident, cut=work.limits.cut))
        wait -= 1
        for place in work.cancels.get(number, ()):
            walk.scheduler.cancel(requests[place])
        if walk.scheduler.idle and not portions:
            return walk
        decoding = [row for row in walk.admitted if row.decoding and not row.finish]
        propose(walk, work, number)
        step = walk.plan(work.paces[number % len(work.paces)])
        look(walk, step, decoding)
        walk.obey(step)
    raise AssertionError("the scheduler makes no progress")


def nothing(walk, step, decoding) -> None:
    pass


quick = settings(deadline=None, max_examples=200, suppress_health_check=[HealthCheck.too_slow])


@quick
@given(works())
def test_feeds_are_ordered_by_slot_one_a_slot_and_within_the_batch(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        slots = [feed.slot for feed in step.feeds]
        assert slots == sorted(set(slots))
        assert sum(len(feed.tokens) for feed in step.feeds) <= work.limits.batch
        assert all(feed.tokens for feed in step.feeds)

    walked(work, look)


@quick
@given(works())
def test_every_decoding_row_is_in_every_step(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        assert {row.slot for row in decoding} <= {feed.slot for feed in step.feeds}
        assert step.decoding_rows >= len(decoding)

    walked(work, look)


@quick
@given(works())
def test_the_worst_case_reservation_never_exceeds_the_cells(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        filled = sum(walk.backend.tokens_in(slot) for slot in range(work.limits.slots) if slot not in step.frees)
        assert filled <= walk.scheduler.reserved_tokens <= work.limits.cells

    walk = walked(work, look)
    assert walk.scheduler.reserved_tokens == sum(len(prefix.tokens) for prefix in walk.scheduler.resident)


@quick
@given(works())
def test_requests_are_admitted_in_the_order_they_were_planned(work: Work) -> None:
    expected: list[Request] = []
    walk = Walk(work.limits, work.rows, talkative(work.noise), pace=work.paces[0])
    for portion in work.portions:
        planned = plan(portion, walk.scheduler.resident, cut=work.limits.cut)
        expected += [entry.request for entry in planned]
        walk.scheduler.submit(planned)
        walk.step()
    walk.run()
    assert [row.request for row in walk.admitted] == expected


@quick
@given(works())
def test_a_budget_is_never_exceeded_also_with_forced_runs(work: Work) -> None:
    walk = walked(work, nothing)
    for row in walk.ended:
        budget = row.request.job.max_tokens
        assert row.completion_tokens <= budget
        assert row.forced_tokens <= row.completion_tokens
        assert row.finish is FinishReason.STOP or row.completion_tokens == budget


@quick
@given(works())
def test_every_request_ends_or_is_cancelled_and_all_slots_come_back(work: Work) -> None:
    walk = walked(work, nothing)
    cancelled = {place for places in work.cancels.values() for place in places}
    ended = [row.request for row in walk.ended]
    assert len(ended) == len(set(ended))
    assert {wanted for place, wanted in enumerate(work.requests) if place not in cancelled} <= set(ended)
    assert walk.scheduler.running == walk.scheduler.waiting == 0
    walk.step()
    assert not any(walk.backend.tokens_in(slot) for slot in range(work.rows))


@quick
@given(works())
def test_what_a_step_says_of_its_prefill_is_what_its_feeds_hold(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        decoded = sum(len(feed.tokens) for feed in step.feeds if walk.scheduler.at(feed.slot).decoding)
        assert step.prefill_tokens == sum(len(feed.tokens) for feed in step.feeds) - decoded

    walked(work, look)


@quick
@given(works())
def test_a_step_keeps_to_its_pace(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        pace = work.paces[(len(walk.steps) - 1) % len(work.paces)]
        assert step.prefill_tokens <= pace.chunk_tokens
        assert not walk.scheduler.admitted or walk.scheduler.running <= pace.rows

    walked(work, look)


@quick
@given(works())
def test_pieces_too_long_to_join_are_of_one_length(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        pace = work.paces[(len(walk.steps) - 1) % len(work.paces)]
        sequences = [walk.scheduler.at(feed.slot) for feed in step.feeds]
        waits = {row.prefill_tokens - row.fed for row in sequences if not row.decoding}
        assert len([tokens for tokens in waits if tokens > pace.join_tokens]) <= 1

    walked(work, look)


@quick
@given(works())
def test_what_lies_in_a_slot_is_what_its_row_has_said(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        cut = {cut.slot: cut.tokens for cut in step.cuts}
        for row in decoding:
            assert cut.get(row.slot, walk.backend.tokens_in(row.slot)) == row.fed < len(row.tokens)
        assert not cut.keys() & set(step.frees)

    walked(work, look)


@quick
@given(works())
def test_a_proposal_is_no_longer_than_the_rest_of_the_budget(work: Work) -> None:
    def look(walk: Walk, step, decoding) -> None:
        for feed in step.feeds:
            if feed.proposed:
                row = walk.scheduler.at(feed.slot)
                assert row.completion_tokens + feed.draws <= row.request.job.max_tokens

    walked(work, look)


@quick
@given(works())
def test_proposals_change_nothing_of_what_is_said(work: Work) -> None:
    """Each draw is of the same row at the same length, so budgets and stops fall where they fall without."""
    work.cancels.clear()
    walk = Walk(work.limits, 1, talkative(0), work.requests)
    walk.run()
    guessing = Walk(work.limits, 1, talkative(0), work.requests)
    for number in range(MOST_STEPS):
        if guessing.scheduler.idle:
            break
        propose(guessing, work, number)
        guessing.step()
    assert [said(row) for row in guessing.ended] == [said(row) for row in walk.ended]
    assert len(guessing.steps) <= len(walk.steps)


def said(row: Sequence) -> tuple:
    return row.request, row.tokens, row.forced_tokens, row.finish


@quick
@given(works())
def test_sharing_never_computes_more_prompt_tokens_than_not_sharing(work: Work) -> None:
    work.cancels.clear()
    walk = walked(work, nothing)
    if work.limits.cells == work.limits.slots * work.limits.context:
        assert walk.prefill_tokens <= sum(len(wanted.tokens) for wanted in work.requests)


# -- slots and rows


def test_a_slot_is_filled_again_at_the_token_boundary_where_its_row_ended() -> None:
    walk = Walk(limits(), 2, requests=[request("first", 3), request("second", 9), request("third", 9)])
    while not walk.ended:
        walk.step()
    assert walk.scheduler.waiting == 1
    step = walk.plan()
    assert step.frees == (0,)
    assert walk.scheduler.at(0).tokens == list(b"third")
    assert [feed.slot for feed in step.feeds] == [0, 1]


def test_rows_take_the_lowest_free_slot() -> None:
    walk = Walk(limits(slots=5), 4, requests=[request("x", budget) for budget in (9, 2, 2, 9, 9, 9)])
    walk.run()
    assert [row.slot for row in walk.admitted] == [0, 1, 2, 3, 1, 2]


def test_a_cancelled_row_frees_its_slot_at_the_next_boundary() -> None:
    first, second = request("first"), request("second")
    walk = Walk(limits(), 1, requests=[first, second])
    walk.step()
    row = walk.scheduler.cancel(first)
    assert row is walk.row_of(first)
    assert row.finish is FinishReason.CANCELLED
    assert walk.plan().frees == (0,)
    assert walk.scheduler.at(0).request is second


def test_a_cancelled_request_that_waits_is_never_admitted() -> None:
    first, second, third = request("first"), request("second"), request("third")
    walk = Walk(limits(), 1, requests=[first, second, third])
    walk.step()
    assert walk.scheduler.cancel(second) is None
    assert walk.scheduler.waiting == 1
    walk.run()
    assert [row.request for row in walk.ended] == [first, third]


def test_cancelling_what_is_not_there_changes_nothing() -> None:
    done, other = request("done", 1), request("other", 1)
    walk = Walk(limits(), 1, requests=[done])
    walk.run()
    assert walk.scheduler.cancel(done) is None
    assert walk.scheduler.cancel(other) is None
    assert walk.scheduler.idle


def test_dropping_what_waits_leaves_the_running_rows_alone() -> None:
    requests = [request("x") for _ in range(5)]
    walk = Walk(limits(), 2, requests=requests)
    walk.step()
    assert walk.scheduler.drop_waiting() == requests[2:]
    assert [row.request for row in walk.run()] == requests[:2]


def test_abandoning_ends_all_rows_forgets_all_prefixes_and_frees_all_slots() -> None:
    walk = Walk(limits(), 2)
    requests = [request([1] * 40 + [tail]) for tail in (2, 3, 4)]
    walk.scheduler.submit(plan(requests, (), cut=True))
    for _ in range(3):
        walk.step()
    rows = walk.scheduler.abandon()
    assert [row.request for row in rows] == requests[:2]
    assert walk.scheduler.resident == ()
    assert walk.scheduler.reserved_tokens == 0
    assert sorted(walk.plan().frees) == [0, 1, 2]


def test_the_queue_goes_on_after_abandoning_and_shares_again() -> None:
    walk = Walk(limits(), 2)
    requests = [request([1] * 40 + [2] * 40 + [tail]) for tail in (2, 3, 4, 5)] + [request([1] * 40 + [9])]
    walk.scheduler.submit(plan(requests, (), cut=True))
    for _ in range(4):
        walk.step()
    assert len(walk.scheduler.abandon()) == 2
    walk.run()
    assert [row.request for row in walk.ended] == requests[2:]
    assert [walk.row_of(wanted).cached_tokens for wanted in requests[2:]] == [81 - 1, 81 - 1, 40]


def test_what_can_never_fit_is_not_admitted() -> None:
    scheduler = Scheduler(limits(slots=2, context=20, cells=15), 1)
    assert scheduler.fits(request("x" * 10, 5))
    assert not scheduler.fits(request("x" * 10, 6))
    with pytest.raises(AssertionError, match="cannot fit"):
        scheduler.submit([Planned(request("x" * 10, 6), None)])


def test_a_request_waits_for_cells_though_a_slot_is_free() -> None:
    walk = Walk(limits(slots=3, context=50, cells=60), 3, requests=[request("x" * 30, 5), request("x" * 30, 5)])
    walk.step()
    assert (walk.scheduler.running, walk.scheduler.waiting) == (1, 1)
    walk.run()
    assert len(walk.ended) == 2


def test_a_prompt_longer_than_a_batch_is_fed_in_pieces_and_drawn_from_once_it_is_whole() -> None:
    walk = Walk(limits(batch=16), 1, requests=[request("x" * 40, 1)])
    walk.run()
    feeds = [feed for step in walk.steps for feed in step.feeds]
    assert [(feed.start, len(feed.tokens), feed.sampling is not None) for feed in feeds] == [
        (0, 16, False),
        (16, 16, False),
        (32, 8, True),
    ]


def test_decoding_rows_come_before_prompts() -> None:
    walk = Walk(limits(slots=3, batch=4), 3, requests=[request("a", 20), request("b", 20), request("x" * 30, 20)])
    walk.step()
    walk.step()
    assert [(feed.slot, len(feed.tokens)) for feed in walk.steps[-1].feeds] == [(0, 1), (1, 1), (2, 2)]


# -- pace


def pieces(step) -> list[tuple[int, int]]:
    return [(feed.slot, len(feed.tokens)) for feed in step.feeds]


def test_a_prompt_has_a_step_to_itself_where_another_is_of_another_length() -> None:
    walk = Walk(limits(), 3, requests=[request("x" * 20), request("y" * 30)])
    assert pieces(walk.plan()) == [(0, 20)]


def test_prompts_of_one_length_are_computed_together() -> None:
    walk = Walk(limits(), 3, requests=[request("x" * 20), request("y" * 30), request("z" * 20)])
    assert pieces(walk.plan()) == [(0, 20), (2, 20)]


def test_a_piece_too_short_for_a_step_of_its_own_joins() -> None:
    walk = Walk(limits(), 3, requests=[request("x" * 20), request("y" * 5), request("z" * 4)])
    assert pieces(walk.plan(Pace(64, 3, join_tokens=4))) == [(0, 20), (2, 4)]


def test_a_long_prompt_does_not_join_a_short_one_that_came_first() -> None:
    walk = Walk(limits(), 2, requests=[request("x" * 4), request("y" * 20)])
    walk.step()
    assert pieces(walk.steps[-1]) == [(0, 4)]
    assert pieces(walk.plan()) == [(0, 1), (1, 20)]


def test_a_prompt_is_cut_into_pieces_of_a_chunk() -> None:
    walk = Walk(limits(), 1, requests=[request("x" * 40, 1)], pace=Pace(15, 1))
    walk.run()
    assert [step.prefill_tokens for step in walk.steps if step.feeds] == [15, 15, 10]


def test_a_narrower_pace_admits_nobody_until_rows_have_ended() -> None:
    walk = Walk(limits(), 3, requests=[request("x", 4) for _ in range(6)])
    walk.step()
    assert walk.scheduler.running == 3
    for _ in range(4):
        walk.step(Pace(64, 1))
    assert walk.scheduler.running == 1
    walk.run()
    assert len(walk.ended) == 6


# -- proposals


def proposing(proposal: tuple[int, ...], answer=None, budget: int = 20, batch: int = 64) -> tuple[Walk, Sequence]:
    """A walk whose only row proposes these tokens in its first step of decoding, which was planned and obeyed."""
    walk = Walk(limits(batch=batch), 1, answer or (lambda row, slot: Outcome(slot, (65,), None)))
    walk.submit([request("x", budget)])
    walk.step()
    (row,) = walk.scheduler.decoding
    row.proposal = proposal
    walk.step()
    return walk, row


def test_a_proposal_that_was_said_stays_in_its_slot_and_one_more_token_comes_of_it() -> None:
    walk, row = proposing((65, 65, 65))
    assert (row.completion_tokens, walk.backend.tokens_in(0), walk.plan().cuts) == (1 + 4, 5, ())


def test_what_was_not_said_of_a_proposal_is_cut_in_the_next_step() -> None:
    walk, row = proposing((65, 66, 65))
    assert (row.completion_tokens, walk.backend.tokens_in(0)) == (1 + 2, 5)
    assert walk.plan().cuts == (Cut(0, 3),)


def test_a_cut_is_made_once() -> None:
    walk, _ = proposing((66,))
    assert walk.plan().cuts == (Cut(0, 2),)
    walk.obey(walk.steps[-1])
    assert walk.plan().cuts == ()


def test_a_proposal_is_tried_once() -> None:
    walk, row = proposing((66, 66))
    assert row.proposal == ()
    walk.step()
    assert walk.steps[-1].feeds[0].proposed == 0


def test_a_proposal_is_shortened_to_what_the_budget_and_the_batch_leave() -> None:
    _, row = proposing((65,) * 9, budget=5)
    assert (row.completion_tokens, row.finish) == (5, FinishReason.LENGTH)
    walk, row = proposing((65,) * 9, batch=6)
    assert (walk.steps[-1].feeds[0].proposed, row.completion_tokens) == (5, 1 + 6)


def test_a_forced_run_that_a_proposal_foresaw_is_in_the_slot_already() -> None:
    walk, row = proposing((65, 65, 65), forced(2))
    assert (row.fed, row.completion_tokens) == (4 + 3, 3 + 6)
    assert walk.plan().cuts == ()


def test_a_row_that_ended_or_was_cancelled_behind_a_proposal_is_freed_and_not_cut() -> None:
    walk, _ = proposing((66, 66), lambda row, slot: Outcome(slot, (65,), FinishReason.STOP if row.fed else None))
    assert walk.ended
    assert (walk.plan().frees, walk.steps[-1].cuts) == ((0,), ())
    walk, row = proposing((66, 66))
    walk.scheduler.cancel(row.request)
    assert (walk.plan().frees, walk.steps[-1].cuts) == ((0,), ())


# -- forced tokens


def forced(run: int):
    def answer(row: Sequence, slot: int) -> Outcome:
        return Outcome(slot, (65,) * (1 + run), None)

    return answer


def decode_feeds(run: int, rows: int, run_tokens: int) -> list[list[int]]:
    pace = Pace(64, rows, run_tokens=run_tokens)
    requests = [request("x", 9 if run < 9 else 20) for _ in range(rows)]
    walk = Walk(limits(slots=2), rows, forced(run), requests, pace=pace)
    walk.step()
    walk.step()
    return [[len(feed.tokens) for feed in step.feeds] for step in walk.steps[1:]]


def test_a_long_forced_run_is_fed_at_once() -> None:
    assert decode_feeds(run=9, rows=2, run_tokens=8) == [[10, 10]]


def test_a_short_forced_run_goes_one_token_a_step_while_others_decode() -> None:
    assert decode_feeds(run=3, rows=2, run_tokens=8) == [[1, 1]]


def test_a_lone_row_is_fed_any_forced_run_at_once() -> None:
    assert decode_feeds(run=3, rows=1, run_tokens=8) == [[4]]


def test_a_forced_run_is_cut_at_the_budget_and_the_row_ends_for_length() -> None:
    walk = Walk(limits(), 1, forced(5), [request("x", 4)])
    row = walk.run()[0]
    assert (row.completion_tokens, row.forced_tokens, row.finish) == (4, 3, FinishReason.LENGTH)


def test_a_row_that_stops_with_its_last_token_did_not_run_out() -> None:
    walk = Walk(limits(), 1, lambda row, slot: Outcome(slot, (65, 66), FinishReason.STOP), [request("x", 2)])
    assert walk.run()[0].finish is FinishReason.STOP


# -- prefixes


def shared_walk(requests: list[Request], bounds: Limits, rows: int) -> Walk:
    walk = Walk(bounds, rows)
    walk.scheduler.submit(plan(requests, (), cut=bounds.cut))
    walk.run()
    assert len(walk.ended) == len(requests)
    return walk


def nested(outer: int, inner: int, inner_readers: int, outer_readers: int = 1) -> list[Request]:
    """Requests below a prefix of 64 tokens, most of them below a second one of 64 more."""
    shared = [outer] * 64
    requests = [request([*shared, *[inner] * 64, 100 + tail]) for tail in range(inner_readers)]
    return requests + [request([*shared, 90 + tail]) for tail in range(outer_readers)]


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_a_prefix_read_by_many_rows_is_computed_once(rows: int) -> None:
    requests = [request([1] * 100 + [tail, 7, 7]) for tail in range(2, 14)]
    walk = shared_walk(requests, limits(slots=rows + 1), rows)
    assert walk.prefill_tokens == 100 + 3 * len(requests)
    assert all(row.cached_tokens == 100 for row in walk.ended)


def test_identical_prompts_compute_only_their_last_token_each() -> None:
    walk = shared_walk([request([1] * 80) for _ in range(6)], limits(), 3)
    assert walk.prefill_tokens == 79 + 6


def test_nested_prefixes_are_each_computed_once() -> None:
    requests = nested(1, 2, inner_readers=4, outer_readers=4)
    walk = shared_walk(requests, limits(slots=4), 2)
    assert walk.prefill_tokens == 64 + 64 + 8


def test_a_nested_prefix_falls_back_to_the_outer_one_where_there_is_a_single_slot() -> None:
    requests = nested(1, 2, inner_readers=2, outer_readers=2)
    walk = shared_walk(requests, limits(slots=3), 2)
    assert walk.prefill_tokens == 64 + 2 * 65 + 2


def test_without_a_slot_for_prefixes_every_prompt_is_computed_whole() -> None:
    walk = shared_walk([request([1] * 80 + [tail]) for tail in range(2, 5)], limits(slots=2), 2)
    assert walk.prefill_tokens == 3 * 81


@pytest.mark.parametrize("prefix_slots", [1, 2, 3])
def test_more_groups_than_prefix_slots_take_turns(prefix_slots: int) -> None:
    requests = [request([group] * 50 + [100 + tail]) for group in range(1, 8) for tail in range(3)]
    walk = shared_walk(requests, limits(slots=4 + prefix_slots), 4)
    assert walk.prefill_tokens == 7 * 50 + len(requests)


def test_a_prefix_that_is_read_no_more_stays_until_its_slot_is_wanted() -> None:
    walk = Walk(limits(slots=3), 2)
    walk.scheduler.submit(plan([request([1] * 50 + [tail]) for tail in (2, 3)], (), cut=True))
    walk.run()
    (kept,) = walk.scheduler.resident
    assert kept.tokens == (1,) * 50
    walk.scheduler.submit(plan([request([1] * 50 + [9])], walk.scheduler.resident, cut=True))
    walk.run()
    assert walk.ended[-1].cached_tokens == 50
    walk.scheduler.submit(plan([request([4] * 50 + [tail]) for tail in (2, 3)], walk.scheduler.resident, cut=True))
    walk.run()
    assert [prefix.tokens for prefix in walk.scheduler.resident] == [(4,) * 50]


def test_the_beginning_of_a_resident_prefix_is_copied_where_cutting_is_allowed() -> None:
    walk = Walk(limits(slots=3), 2)
    walk.scheduler.submit(plan([request([1] * 90 + [tail]) for tail in (2, 3)], (), cut=True))
    walk.run()
    walk.scheduler.submit(plan([request([1] * 60 + [5] * 10)], walk.scheduler.resident, cut=True))
    walk.run()
    assert walk.ended[-1].cached_tokens == 60


def test_an_unread_prefix_makes_way_where_cells_are_short() -> None:
    walk = Walk(limits(slots=3, context=100, cells=120), 1)
    walk.scheduler.submit(plan([request([1] * 50 + [tail], 4) for tail in (2, 3)], (), cut=True))
    walk.run()
    assert walk.scheduler.resident
    walk.submit([request([7] * 90, 10)])
    walk.run()
    assert len(walk.ended) == 3
    assert walk.scheduler.resident == ()


def test_a_prefix_that_leaves_no_room_for_its_readers_is_done_without() -> None:
    requests = [request([1] * 60 + [tail], 20) for tail in (2, 3, 4)]
    walk = shared_walk(requests, limits(slots=3, context=81, cells=81), 2)
    assert walk.prefill_tokens == 3 * 61


def test_a_long_resident_prefix_makes_way_for_a_reader_that_would_not_fit_beside_it() -> None:
    walk = Walk(limits(slots=3, context=120, cells=125), 1)
    walk.scheduler.submit(plan([request([1] * 100 + [tail], 2) for tail in (2, 3)], (), cut=True))
    walk.run()
    walk.scheduler.submit(plan([request([1] * 40 + [5], 60)], walk.scheduler.resident, cut=True))
    walk.run()
    assert len(walk.ended) == 3


def test_cancelling_all_readers_of_a_prefix_lets_the_next_group_have_its_slot() -> None:
    walk = Walk(limits(slots=2, batch=16), 1)
    first = [request([1] * 60 + [tail]) for tail in (2, 3)]
    second = [request([4] * 60 + [tail]) for tail in (2, 3)]
    walk.scheduler.submit(plan(first + second, (), cut=True))
    walk.step()
    for wanted in first:
        walk.scheduler.cancel(wanted)
    walk.run()
    assert [row.request for row in walk.ended] == second
    assert [row.cached_tokens for row in walk.ended] == [60, 60]


def test_a_prefix_keeps_the_readers_that_it_gets_back_when_all_is_abandoned() -> None:
    """The outer prefix is still to be read at the end, so the group between takes the slot of the inner one."""
    walk = Walk(limits(slots=3), 1)
    walk.scheduler.submit(plan(nested(1, 2, inner_readers=3), (), cut=True))
    while not walk.admitted:
        walk.step()
    walk.scheduler.submit(plan([request([5] * 50 + [tail]) for tail in (6, 7)], (), cut=True))
    walk.scheduler.submit(plan([request([1] * 64 + [99])], walk.scheduler.resident, cut=False))
    walk.scheduler.abandon()
    walk.steps.clear()
    walk.run()
    assert len(walk.ended) == 6
    assert walk.prefill_tokens == 64 + 64 + 3 + 50 + 2 + 1


def test_reading_a_resident_prefix_does_not_hold_the_one_that_it_began_with() -> None:
    walk = Walk(limits(slots=3), 1)
    walk.scheduler.submit(plan(nested(1, 2, inner_readers=2), (), cut=True))
    walk.run()
    walk.scheduler.submit(plan([request([1] * 64 + [2] * 64 + [99])], walk.scheduler.resident, cut=True))
    walk.run()
    assert walk.ended[-1].cached_tokens == 128
    walk.steps.clear()
    walk.scheduler.submit(plan(nested(3, 4, inner_readers=2), (), cut=True))
    walk.run()
    assert walk.prefill_tokens == 64 + 64 + 3


def test_a_prefix_whose_first_reader_was_cancelled_makes_way_for_a_request_that_needs_all_cells() -> None:
    walk = Walk(limits(slots=3, context=100, cells=100, batch=16), 1)
    first, second = (request([1] * 60 + [tail], 4) for tail in (2, 3))
    large = request([9] * 90, 10)
    shared = Share(Prefix((1,) * 60, None), 60)
    walk.scheduler.submit([Planned(first, shared), Planned(large, None), Planned(second, shared)])
    walk.step()
    walk.scheduler.cancel(first)
    walk.run()
    assert [row.request for row in walk.ended] == [large, second]


def test_a_deep_chain_of_prefixes_needs_two_slots_only() -> None:
    requests = [request([1] * (40 * depth) + [2], 2) for depth in range(1, 12)]
    walk = shared_walk(requests, limits(slots=3), 1)
    assert walk.prefill_tokens <= 40 * 11 + 11
    assert walk.ended[-1].cached_tokens == 40 * 10


def test_a_copy_is_never_from_a_prefix_that_is_fed_or_freed_in_the_same_step() -> None:
    requests = [request([1] * 64 + [group] * 64 + [tail]) for group in (2, 3, 4) for tail in (5, 6)]
    walk = shared_walk(requests, limits(slots=4), 2)
    for step in walk.steps:
        sources = {copy.source for copy in step.copies}
        assert not sources & {feed.slot for feed in step.feeds}
    for step, following in pairwise(walk.steps):
        assert not {copy.target for copy in step.copies} & {copy.source for copy in step.copies}
        assert len(set(following.frees)) == len(following.frees)


def test_a_share_of_an_evicted_prefix_is_computed_again_when_it_is_due() -> None:
    prefix = Prefix((1,) * 40, None)
    walk = Walk(limits(slots=2), 1)
    walk.scheduler.submit([Planned(request([1] * 40 + [2]), Share(prefix, 40))])
    walk.run()
    walk.scheduler.submit(plan([request([3] * 40 + [tail]) for tail in (4, 5)], (), cut=True))
    walk.scheduler.submit([Planned(request([1] * 40 + [6]), Share(prefix, 40))])
    walk.run()
    assert len(walk.ended) == 4


def test_a_chain_of_2000_prefixes_is_walked_without_recursion() -> None:
    share = None
    for length in range(1, 2001):
        share = Share(Prefix((1,) * length, share), length)
    walk = Walk(limits(slots=3, context=2010), 1)
    walk.scheduler.submit([Planned(request([1] * 2000 + [tail], 2), share) for tail in (2, 3)])
    walk.run()
    assert walk.prefill_tokens == 2000 + 2
