"""Bursts are cut by predicted seconds, and the predictions follow what was seen."""

import pytest
from building import request

from batchrun import bursts
from batchrun.bursts import Burst
from batchrun.cost import FIRST_PREFILL_TOKENS_PER_S, FIRST_STEP_S, WEIGHT, Cost
from batchrun.governor import Allowance, FixedGovernor


def measured(prefill_token_s: float = 0.01, step_s: float = 0.1) -> Cost:
    """A machine whose speeds were seen."""
    cost = Cost()
    cost.saw_step(100, 0, 100 * prefill_token_s)
    cost.saw_step(0, 1, step_s)
    return cost


def burst(seconds: float, cost: Cost | None = None, rows: int = 1) -> Burst:
    return Burst(1, Allowance(seconds, 0.0), cost or measured(), rows)


# -- bursts


def test_a_burst_takes_at_least_one_job_however_long_it_is() -> None:
    short = burst(0.001)
    assert short.take(request("x" * 1000, 1000))
    assert not short.full
    assert not short.take(request("x", 1))
    assert short.full


def test_a_burst_is_full_when_its_predicted_seconds_are_spent() -> None:
    ten_seconds = burst(10.0)
    wanted = request("x" * 100, 20)  # 1 s of prompt, 2 s of answer
    taken = [ten_seconds.take(wanted) for _ in range(4)]
    assert taken == [True, True, True, False]
    assert ten_seconds.jobs == 3
    assert ten_seconds.predicted_s == pytest.approx(9.0)
    assert ten_seconds.full


def test_a_job_that_was_refused_is_not_counted() -> None:
    one = burst(1.0)
    one.take(request("x" * 100, 1))
    spent = one.predicted_s
    one.take(request("x" * 100, 1))
    assert (one.jobs, one.predicted_s) == (1, spent)


def test_a_burst_holds_no_more_than_the_most_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bursts, "MOST_JOBS", 5)
    endless = burst(1e9)
    assert [endless.take(request("x", 1)) for _ in range(6)] == [True] * 5 + [False]
    assert endless.full


def test_rows_that_decode_together_share_the_seconds_of_a_step() -> None:
    jobs = {}
    for rows in (1, 4):
        ten_seconds = burst(10.0, rows=rows)
        while ten_seconds.take(request("x", 20)):
            pass
        jobs[rows] = ten_seconds.jobs
    assert jobs == {1: 4, 4: 19}


def test_a_fixed_governor_always_says_the_same() -> None:
    governor = FixedGovernor(30.0, 5.0)
    assert [governor.allowance(), governor.allowance()] == [Allowance(30.0, 5.0)] * 2


# -- cost


def test_nothing_seen_is_predicted_from_first_guesses() -> None:
    assert Cost().seconds(1000, 100, rows=2) == pytest.approx(
        1000 / FIRST_PREFILL_TOKENS_PER_S + 100 * FIRST_STEP_S / 2
    )


def test_the_first_observation_replaces_the_guess_and_later_ones_move_it() -> None:
    cost = measured(prefill_token_s=0.01, step_s=0.1)
    assert (cost.prefill_token_s, cost.step_s) == pytest.approx((0.01, 0.1))
    cost.saw_step(0, 3, 0.2)
    cost.saw_step(10, 0, 0.2)
    assert cost.step_s == pytest.approx(0.1 + WEIGHT * 0.1)
    assert cost.prefill_token_s == pytest.approx(0.01 + WEIGHT * 0.01)


def test_a_mixed_step_is_charged_a_decoding_step_first() -> None:
    cost = Cost()
    cost.saw_step(0, 2, 0.1)
    cost.saw_step(50, 2, 0.6)
    assert cost.step_s == pytest.approx(0.1)
    assert cost.prefill_token_s == pytest.approx(0.01)


def test_a_mixed_step_faster_than_a_decoding_step_teaches_nothing() -> None:
    cost = measured()
    cost.saw_step(50, 2, 0.05)
    assert (cost.prefill_token_s, cost.step_s) == pytest.approx((0.01, 0.1))


def test_answers_that_leave_their_budget_unused_make_jobs_cheaper() -> None:
    cost = measured()
    before = cost.seconds(0, 100, rows=1)
    for _ in range(200):
        cost.saw_answer(100, 0, answer_share=0.25)
    assert cost.seconds(0, 100, rows=1) == pytest.approx(before / 4)


def test_prompts_that_were_copied_make_jobs_cheaper() -> None:
    cost = measured()
    before = cost.seconds(100, 0, rows=1)
    for _ in range(200):
        cost.saw_answer(100, 80, answer_share=1.0)
    assert cost.seconds(100, 0, rows=1) == pytest.approx(before / 5)
