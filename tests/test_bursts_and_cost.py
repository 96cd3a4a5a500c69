"""Bursts are cut by predicted seconds, and the predictions follow what was seen."""

from collections.abc import Sequence

import pytest
from building import request
from hypothesis import given, settings
from hypothesis import strategies as st

from batchrun import bursts
from batchrun.bursts import Burst
from batchrun.core import Feed, Pace, Sampling
from batchrun.cost import (
    FIRST_CELLS_S,
    FIRST_PASS_S,
    FIRST_ROW_S,
    FIRST_TOKEN_S,
    LONGEST_STEP_S,
    PASS_SHARE,
    SOLVE_EVERY,
    Cost,
    Work,
    work,
)
from batchrun.governor import Allowance
from batchrun.prefix import Planned, Prefix, Share

quick = settings(deadline=None, max_examples=60)

Machine = tuple[float, float, float, float, float]
"""Seconds of a pass, a row's token, a token of a piece, and a thousand cells of either."""

LAPTOP: Machine = (0.02, 0.01, 0.005, 0.0, 0.0)

STEPS = [
    Work(1, 4, 0, 2.0, 0),
    Work(1, 0, 64, 0, 2.0),
    Work(2, 3, 40, 0.3, 6.0),
    Work(1, 8, 0, 0.5, 0),
    Work(1, 0, 200, 0, 150.0),
    Work(3, 1, 20, 3.0, 1.0),
    Work(1, 1, 0, 0.1, 0),
]


def seconds(machine: Sequence[float], done: Work) -> float:
    return sum(weight * feature for weight, feature in zip(machine, done, strict=True))


def measured(machine: Machine = LAPTOP, steps: int = 400) -> Cost:
    """A machine whose speeds were seen."""
    cost = Cost()
    for number in range(steps):
        done = STEPS[number % len(STEPS)]
        cost.saw_step(done, seconds(machine, done))
    return cost


def burst(allowed_s: float, cost: Cost | None = None, rows: int = 1) -> Burst:
    return Burst(1, Allowance(allowed_s, 0.0), cost or measured(), rows)


def alone(prompt: str, max_tokens: int) -> Planned:
    return Planned(request(prompt, max_tokens), None)


def feed(slot: int, start: int, tokens: int, proposed: int = 0) -> Feed:
    return Feed(slot, start, [1] * tokens, Sampling(), proposed)


# -- bursts


def test_a_burst_takes_at_least_one_job_however_long_it_is() -> None:
    short = burst(0.001)
    assert short.take(alone("x" * 1000, 1000))
    assert not short.full
    assert not short.take(alone("x", 1))
    assert short.full


def test_a_burst_is_full_when_its_predicted_seconds_are_spent() -> None:
    cost = measured()
    each_s = cost.prefill_seconds(0, 100) + cost.answer_seconds(100, 20, 1)
    three_jobs = burst(3.5 * each_s, cost)
    taken = [three_jobs.take(alone("x" * 100, 20)) for _ in range(4)]
    assert taken == [True, True, True, False]
    assert three_jobs.jobs == 3
    assert three_jobs.predicted_s == pytest.approx(3 * each_s)
    assert three_jobs.full


def test_a_job_costs_its_prompt_and_its_answer() -> None:
    one = burst(100.0)
    one.take(alone("x" * 100, 20))
    pass_s, row_s, token_s, *_ = LAPTOP
    assert one.predicted_s == pytest.approx(pass_s + 100 * token_s + 20 * (pass_s + row_s), rel=0.1)


def test_a_job_that_was_refused_is_not_counted() -> None:
    one = burst(0.1)
    one.take(alone("x" * 100, 1))
    spent = one.predicted_s
    one.take(alone("x" * 100, 1))
    assert (one.jobs, one.predicted_s) == (1, spent)


def test_a_burst_holds_no_more_than_the_most_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "MOST_JOBS", 5)
    endless = burst(1e9)
    assert [endless.take(alone("x", 1)) for _ in range(6)] == [True] * 5 + [False]
    assert endless.full


def test_rows_that_decode_together_share_the_pass_of_a_step() -> None:
    by_itself, among_four = burst(100.0, rows=1), burst(100.0, rows=4)
    for one in (by_itself, among_four):
        one.take(alone("x", 20))
    pass_s, *_ = LAPTOP
    assert by_itself.predicted_s - among_four.predicted_s == pytest.approx(20 * pass_s * 3 / 4, rel=0.1)


def test_a_shared_prefix_is_charged_to_the_first_who_needs_it() -> None:
    outer = Prefix((1,) * 60, None)
    inner = Prefix((1,) * 100, Share(outer, 60))
    cost = measured()
    shared = burst(100.0, cost)
    spent = []
    for share in (Share(inner, 100), Share(inner, 100), Share(outer, 60)):
        before = shared.predicted_s
        shared.take(Planned(request([1] * 110, 5), share))
        spent.append(shared.predicted_s - before)
    answer_s = cost.answer_seconds(110, 5, 1)
    own_s, rest_s = cost.prefill_seconds(100, 10), cost.prefill_seconds(60, 50)
    prefixes_s = cost.prefill_seconds(0, 60) + cost.prefill_seconds(60, 40)
    assert spent == pytest.approx([prefixes_s + own_s + answer_s, own_s + answer_s, rest_s + answer_s])


def test_a_prefix_of_a_job_that_was_refused_is_still_to_be_charged() -> None:
    shared = Share(Prefix((1,) * 400, None), 400)
    small = burst(1.0)
    small.take(alone("x", 1))
    assert not small.take(Planned(request([1] * 401, 1), shared))
    before = small.predicted_s
    small.widen(100.0, 0)
    small.take(Planned(request([1] * 401, 1), shared))
    assert small.predicted_s - before > 300 * LAPTOP[2]


def test_rows_that_run_on_are_filled_whatever_it_costs() -> None:
    filling = Burst(1, Allowance(1.0, 0.0), measured(), 4, least_jobs=3)
    assert [filling.take(alone("x" * 500, 10)) for _ in range(5)] == [True] * 3 + [False] * 2
    full = Burst(2, Allowance(1.0, 0.0), measured(), 4, carried_s=5.0, least_jobs=0)
    assert not full.take(alone("x", 1))
    assert full.predicted_s == 5.0


# -- the work of a step


def test_rows_of_one_token_are_one_pass() -> None:
    assert work([feed(0, 500, 1), feed(1, 1500, 1)]) == Work(1, 2, 0, 2.0, 0)


def test_every_length_of_a_piece_is_a_pass_of_its_own() -> None:
    done = work([feed(0, 0, 1), feed(1, 0, 20), feed(2, 0, 20), feed(3, 0, 7)])
    assert (done.passes, done.rows, done.tokens) == (3, 1, 47)


def test_the_cells_of_a_piece_are_those_before_it_and_half_of_its_own() -> None:
    assert work([feed(0, 1000, 100)]).token_cells == pytest.approx(100 * 1050 / 1000)


def test_a_proposal_is_work_like_any_piece() -> None:
    assert work([feed(0, 10, 5, proposed=4)]) == work([feed(0, 10, 5)])


def test_nothing_is_no_work() -> None:
    assert work([]) == Work(0, 0, 0, 0, 0)


# -- cost


def test_nothing_seen_is_predicted_from_first_guesses() -> None:
    cost = Cost()
    assert cost.step_seconds(Work(1, 2, 3, 4, 5)) == pytest.approx(
        FIRST_PASS_S + 2 * FIRST_ROW_S + 3 * FIRST_TOKEN_S + 9 * FIRST_CELLS_S
    )


@quick
@given(
    st.tuples(
        st.floats(0.001, 0.1),
        st.floats(0.001, 0.1),
        st.floats(0.0001, 0.01),
        st.floats(0, 0.001),
        st.floats(0, 0.001),
    )
)
def test_what_was_seen_is_predicted(machine: Machine) -> None:
    cost = measured(machine)
    for done in STEPS:
        assert cost.step_seconds(done) == pytest.approx(seconds(machine, done), rel=0.15)


@quick
@given(st.floats(0.01, 100))
def test_predictions_scale_with_the_machine(slower: float) -> None:
    machine = (0.02, 0.01, 0.005, 0.001, 0.0001)
    one, other = measured(machine), measured(tuple(slower * weight for weight in machine))
    for done in STEPS:
        assert other.step_seconds(done) == pytest.approx(slower * one.step_seconds(done), rel=0.05)
    assert other.prefill_seconds(50, 200) == pytest.approx(slower * one.prefill_seconds(50, 200), rel=0.1)
    assert other.answer_seconds(100, 50, 4) == pytest.approx(slower * one.answer_seconds(100, 50, 4), rel=0.1)


def test_a_step_that_took_no_time_teaches_nothing() -> None:
    cost = Cost()
    for _ in range(2 * SOLVE_EVERY):
        cost.saw_step(STEPS[0], 0.0)
    assert cost.step_seconds(STEPS[0]) == Cost().step_seconds(STEPS[0])


def test_a_prompt_costs_more_behind_more_tokens() -> None:
    cost = measured((0.02, 0.01, 0.005, 0.001, 0.001))
    assert cost.prefill_seconds(0, 0) == 0.0
    assert 0 < cost.prefill_seconds(0, 100) < cost.prefill_seconds(1000, 100)


def test_an_answer_costs_more_behind_a_longer_prompt() -> None:
    cost = measured((0.02, 0.01, 0.005, 0.01, 0.001))
    assert cost.answer_seconds(100, 50, 4) < cost.answer_seconds(2000, 50, 4)


def test_answers_that_leave_their_budget_unused_make_jobs_cheaper() -> None:
    cost = measured()
    before = cost.answer_seconds(0, 100, rows=1)
    for _ in range(200):
        cost.saw_answer(0.25)
    assert cost.answer_seconds(0, 100, rows=1) == pytest.approx(before / 4)


def test_prices_rise_with_the_depth_of_the_rows() -> None:
    cost = measured((0.02, 0.01, 0.005, 0.002, 0.001))
    near, far = cost.prices(0), cost.prices(10_000)
    assert far.pass_s == near.pass_s
    assert far.row_s > near.row_s
    assert far.token_s > near.token_s


# -- pace


class Known(Cost):
    """A machine whose weights are known and not fitted."""

    def __init__(self, pass_s: float, row_s: float, token_s: float) -> None:
        super().__init__()
        self._fit.weights = [pass_s, row_s, token_s, 0.0, 0.0]


def test_a_chunk_is_a_whole_batch_where_the_machine_is_fast() -> None:
    assert Known(0.001, 0.001, 0.0001).pace(512, 8).chunk_tokens == 512


def test_a_chunk_is_no_longer_than_a_step_may_take() -> None:
    pass_s, token_s = 0.02, 0.01
    chunk = Known(pass_s, 0.02, token_s).pace(512, 8).chunk_tokens
    assert chunk < 512
    assert pass_s + chunk * token_s == pytest.approx(LONGEST_STEP_S, rel=0.01)


def test_a_chunk_is_long_enough_to_pay_for_its_pass_however_slow_the_machine_is() -> None:
    pass_s, token_s = 4.0, 0.5
    chunk = Known(pass_s, 1.0, token_s).pace(512, 8).chunk_tokens
    assert chunk * token_s > LONGEST_STEP_S
    assert pass_s / (chunk * token_s) == pytest.approx(PASS_SHARE, rel=0.01)


def test_a_run_is_fed_at_once_from_where_that_is_cheaper_than_one_token_a_step() -> None:
    pass_s, row_s, token_s = 0.02, 0.01, 0.005
    run = Known(pass_s, row_s, token_s).pace(512, 8).run_tokens
    assert run * row_s > pass_s + run * token_s
    assert (run - 1) * row_s <= pass_s + (run - 1) * token_s


def test_where_a_token_of_a_run_is_no_cheaper_than_a_row_no_run_is_fed_at_once() -> None:
    assert Known(0.02, 0.005, 0.005).pace(512, 8).run_tokens == 512


def test_a_piece_joins_others_as_long_as_a_pass_costs_more_than_its_tokens() -> None:
    assert Known(0.02, 0.01, 0.005).pace(512, 8).join_tokens == 4
    assert Known(0.0, 0.01, 0.005).pace(512, 8).join_tokens == 0


def test_a_machine_whose_tokens_seem_free_gets_whole_batches() -> None:
    assert Known(0.02, 0.01, 0.0).pace(512, 8) == Pace(512, 8)


weights = st.just(0.0) | st.floats(1e-30, 10)


@quick
@given(weights, weights, weights, st.integers(1, 4096), st.integers(1, 64))
def test_a_pace_is_always_possible(pass_s: float, row_s: float, token_s: float, batch: int, rows: int) -> None:
    pace = Known(pass_s, row_s, token_s).pace(batch, rows)
    assert 1 <= pace.chunk_tokens <= batch
    assert pace.rows == rows
    assert pace.run_tokens >= 2
    assert pace.join_tokens >= 0
