"""Which jobs are tried again, and how."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
from building import schema
from test_prompts import FREE, JOB, MODEL, PREPARER

from batchrun.core import Closed, Completion, FinishReason, Job, Request, Result, Status, Timing, Usage
from batchrun.errands import Errand
from batchrun.outcomes import Outcomes
from batchrun.results import judge
from batchrun.retries import LONGEST_REMARK, Retries, remark

ROOM = 2000
OK_TEXT, BAD_TEXT = '{"name":"Ada"}', '{"name":7}'


def request(job: Job = JOB, **changes: int) -> Request:
    return replace(PREPARER.prepare(job, "digest", 0.0), **changes)


def ended(
    asked: Request, text: str, finish: FinishReason = FinishReason.STOP, closed: frozenset[Closed] = frozenset()
) -> tuple[Completion, Result]:
    completion = Completion(asked, text, finish, Usage(), Timing(0, None, 0, 0), closed=closed)
    return completion, judge(completion, "model", 1)


def again(most: int, grows: bool, found: tuple[Completion, Result], room: int = ROOM) -> Request | None:
    return Retries(PREPARER, most, grows).next_try(*found, room)


def text_of(asked: Request) -> str:
    return MODEL.tokenizer.decode(asked.tokens).decode()


def test_a_good_answer_stands() -> None:
    assert again(5, True, ended(request(), OK_TEXT)) is None


def test_an_invalid_answer_is_asked_for_again_with_what_was_wrong_and_another_seed() -> None:
    first = request()
    found = ended(first, BAD_TEXT)
    assert found[1].status is Status.INVALID
    second = again(1, False, found)
    assert second is not None
    assert (second.attempt, second.refusals, second.digest) == (2, 1, "digest")
    assert second.job.sampling.seed == first.job.sampling.seed + 1
    assert "7 is not of type 'string'" in text_of(second)
    assert "/name" in text_of(second)


def test_what_another_try_is_told_comes_last_so_that_it_shares_all_else() -> None:
    first = request()
    second = again(1, False, ended(first, BAD_TEXT))
    assert second is not None
    shared = next(
        place for place, pair in enumerate(zip(first.tokens, second.tokens, strict=False)) if len({*pair}) > 1
    )
    assert MODEL.tokenizer.decode(first.tokens[:shared]).endswith(b"page")


@pytest.mark.parametrize("refusals", [2, 3])
def test_tries_have_an_end(refusals: int) -> None:
    assert again(2, False, ended(request(refusals=refusals), BAD_TEXT)) is None
    assert again(0, False, ended(request(), BAD_TEXT)) is None


def test_a_try_that_fits_into_no_slot_is_not_made() -> None:
    first = request()
    assert again(1, False, ended(first, BAD_TEXT), room=first.need_tokens) is None


def test_a_closed_answer_gets_twice_the_budget_where_asked_and_nothing_else_changes() -> None:
    first = request()
    found = ended(first, OK_TEXT, closed=frozenset({Closed.BUDGET}))
    assert again(1, False, found) is None
    second = again(1, True, found)
    assert second is not None
    assert second.job.max_tokens == 2 * first.job.max_tokens
    assert (second.tokens, second.attempt, second.refusals) == (first.tokens, 2, 0)


def test_budgets_grow_up_to_the_slot_and_no_further() -> None:
    first = request()
    found = ended(first, OK_TEXT, closed=frozenset({Closed.BUDGET}))
    second = again(1, True, found, room=first.need_tokens + 7)
    assert second is not None
    assert second.job.max_tokens == first.job.max_tokens + 7
    assert again(1, True, found, room=first.need_tokens) is None


def test_free_text_that_was_cut_grows_too() -> None:
    found = ended(request(replace(FREE, max_tokens=3)), "abc", FinishReason.LENGTH)
    assert again(1, False, found) is None
    second = again(1, True, found)
    assert second is not None
    assert second.job.max_tokens == 6


def test_an_answer_that_ran_away_is_not_given_more_room() -> None:
    assert again(1, True, ended(request(), OK_TEXT, closed=frozenset({Closed.RUNAWAY}))) is None


@pytest.mark.parametrize("finish", [FinishReason.CANCELLED, FinishReason.EXPIRED, FinishReason.ERROR])
def test_an_answer_that_was_ended_is_not_asked_for_again(finish: FinishReason) -> None:
    assert again(1, True, ended(request(), OK_TEXT, finish, frozenset({Closed.BUDGET}))) is None


def test_where_a_budget_cannot_grow_an_invalid_answer_is_told_what_was_wrong() -> None:
    first = request(replace(JOB, max_tokens=500))
    found = ended(first, BAD_TEXT, closed=frozenset({Closed.BUDGET}))
    second = again(1, True, found, room=first.need_tokens)
    assert second is not None
    assert (second.attempt, second.refusals) == (2, 1)
    assert second.need_tokens == first.need_tokens
    assert "7 is not of type 'string'" in text_of(second)
    assert again(1, True, found, room=len(first.tokens) + 20) is None


def test_a_job_whose_group_has_its_answer_is_not_tried_again() -> None:
    written: list[Result] = []
    sink = SimpleNamespace(append=written.append)
    watch = SimpleNamespace(saw=lambda _: None)
    outcomes = Outcomes(sink, None, watch, "model", request, Retries(PREPARER, 1, True))
    bad, good = (request(replace(JOB, id=name, index=index, group="g")) for index, name in enumerate("ab"))
    for asked in (bad, good):
        outcomes.add(Errand(asked))
    outcomes.settle(ended(good, OK_TEXT)[0], 1, ROOM)
    settled = outcomes.settle(ended(bad, BAD_TEXT)[0], 1, ROOM)
    assert settled is not None
    assert settled.stands
    assert [result.id for result in written] == ["b", "a"]


def test_a_remark_is_short_whatever_was_wrong() -> None:
    name = "x" * 5000
    content = {"type": "object", "properties": {"a": {"const": name}}, "additionalProperties": {"const": name}}
    answer = {"a": 1} | {f"{place}{name[:1000]}": 2 for place in range(9)}
    _, result = ended(request(replace(JOB, schema=schema(content))), json.dumps(answer))
    assert result.status is Status.INVALID
    said = "; ".join(f"at {error.path}: {error.message}" for error in result.errors)
    assert len(said) > LONGEST_REMARK
    told = remark(result.errors)
    assert len(told) <= LONGEST_REMARK
    assert told.startswith(f"at {result.errors[0].path}: ")
