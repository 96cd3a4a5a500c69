"""The inner loop: how answers end, what a failure costs, and what the meter counts."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from building import GUIDE, TOKENIZER, ScriptedBackend, alone, engine, finish, limits, request, saying, schema, ticking

from batchrun.backends.fake import END_OF_TEXT, MESSAGE_END, FakeBackend
from batchrun.core import Accepted, Completion, Constraint, Drawn, Feed, FinishReason, Grammar, Request
from batchrun.cost import Cost
from batchrun.engine import FAILURES_TOLERATED, NEAR_TIE_LOGITS, Engine
from batchrun.errors import BackendError
from batchrun.lookup import Prices
from batchrun.stats import Meter
from batchrun.width import Width

PROMPT = "prompt"


def said(answer: bytes, max_tokens: int = 40, stop: tuple[str, ...] = ()) -> Completion:
    """What a job comes to whose model says this answer, and then an end."""
    backend = ScriptedBackend(limits(), saying(PROMPT, [*answer, END_OF_TEXT]))
    running = engine(backend)
    running.submit([request(PROMPT, max_tokens, stop=stop)])
    return finish(running)[0]


def ends_of(running: Engine, requests: Sequence[Request]) -> dict[Request, Completion]:
    running.submit(requests)
    return {completion.request: completion for completion in finish(running)}


# -- how an answer ends


def test_an_end_token_ends_an_answer_and_is_no_part_of_it() -> None:
    completion = said(b"Hello.")
    assert (completion.text, completion.finish_reason) == ("Hello.", FinishReason.STOP)
    assert completion.usage.completion_tokens == 6


def test_every_stop_token_of_the_model_is_an_end() -> None:
    running = engine(ScriptedBackend(limits(), saying(PROMPT, [65, MESSAGE_END])))
    running.submit([request(PROMPT)])
    assert finish(running)[0].text == "A"


def test_an_answer_may_be_empty() -> None:
    completion = said(b"")
    assert (completion.text, completion.finish_reason) == ("", FinishReason.STOP)


def test_an_answer_that_spends_its_budget_ends_for_length() -> None:
    completion = said(b"Hello.", max_tokens=3)
    assert (completion.text, completion.finish_reason) == ("Hel", FinishReason.LENGTH)
    assert completion.usage.completion_tokens == 3


def test_an_end_right_behind_the_last_token_of_the_budget_comes_too_late() -> None:
    assert said(b"Hello.", max_tokens=6).finish_reason is FinishReason.LENGTH
    assert said(b"Hello.", max_tokens=7).finish_reason is FinishReason.STOP


def test_a_stop_string_ends_an_answer_and_is_cut_off() -> None:
    completion = said(b"One. END Two.", stop=("END",))
    assert (completion.text, completion.finish_reason) == ("One. ", FinishReason.STOP)
    assert completion.usage.completion_tokens == len("One. END")


def test_the_stop_string_that_begins_first_cuts_the_answer() -> None:
    assert said(b"xyabz", stop=("b", "ab", "zzz")).text == "xy"


def test_a_stop_string_that_only_begins_is_part_of_the_answer() -> None:
    completion = said(b"the EN", stop=("END",))
    assert completion.text == "the EN"


def test_a_stop_string_that_begins_an_answer_leaves_nothing_of_it() -> None:
    assert said(b"\n\nmore", stop=("\n",)).text == ""


def test_a_stop_string_in_the_prompt_stops_nothing() -> None:
    assert said(b"t, an answer", stop=("prompt",)).text == "t, an answer"


def test_a_stop_string_of_several_bytes_a_character_is_found() -> None:
    assert said("caf\u00e9 \u2192 bar".encode(), stop=("\u2192",)).text == "caf\u00e9 "


def test_a_stop_string_completed_by_the_last_token_of_the_budget_is_a_stop() -> None:
    completion = said(b"abcEND", max_tokens=6, stop=("END",))
    assert (completion.text, completion.finish_reason) == ("abc", FinishReason.STOP)


def test_a_long_answer_is_stopped_far_from_its_beginning() -> None:
    assert said(b"x" * 300 + b"STOP" + b"y", 400, stop=("STOP", "a much longer stop string")).text == "x" * 300


def test_a_guided_answer_is_not_cut_at_a_stop_string() -> None:
    grammar = GUIDE.compile(schema({"enum": ["a stop b", "a stop c"]}))
    running = engine()
    running.submit([request(PROMPT, 20, grammar=grammar, stop=("stop",))])
    completion = finish(running)[0]
    assert completion.text in ('"a stop b"', '"a stop c"')
    assert completion.finish_reason is FinishReason.STOP


# -- text that is cut


@pytest.mark.parametrize("max_tokens", [4, 5, 6])
def test_an_answer_cut_in_the_middle_of_a_character_leaves_it_out(max_tokens: int) -> None:
    completion = said("abc\U0001f600".encode(), max_tokens)
    assert (completion.text, completion.finish_reason) == ("abc", FinishReason.LENGTH)


def test_an_answer_cut_behind_a_whole_character_keeps_it() -> None:
    assert said("abc\U0001f600d".encode(), 7).text == "abc\U0001f600"


def test_a_replacement_character_that_the_model_wrote_stays_at_a_cut_end() -> None:
    assert said("abc\ufffdd".encode(), 6).text == "abc\ufffd"


def test_a_cancelled_answer_has_no_half_character_at_its_end() -> None:
    running = engine(ScriptedBackend(limits(), saying(PROMPT, list("ab\u20ac and more".encode()))))
    wanted = request(PROMPT, 20)
    running.submit([wanted])
    for _ in range(4):
        running.step()
    completion = running.cancel(wanted)
    assert completion
    assert completion.usage.completion_tokens == 4
    assert (completion.text, completion.finish_reason) == ("ab", FinishReason.CANCELLED)


def test_bytes_that_are_no_text_are_shown_as_replaced() -> None:
    assert said(b"a\xffb").text == "a\ufffdb"


# -- cancelling and dropping


def test_cancelling_what_waits_gives_no_completion() -> None:
    first, second = request(), request()
    running = engine(rows=1)
    running.submit([first, second])
    running.step()
    assert running.cancel(second) is None
    assert [completion.request for completion in finish(running)] == [first]


def test_dropping_what_waits_lets_the_rest_finish() -> None:
    requests = [request() for _ in range(4)]
    running = engine(rows=2)
    running.submit(requests)
    running.step()
    assert running.drop_waiting() == requests[2:]
    assert [completion.request for completion in finish(running)] == requests[:2]


def test_a_request_may_come_while_others_run() -> None:
    running = engine(rows=2)
    early, late = request("an early one", 20), request("a late one", 20)
    running.submit([early])
    running.step()
    assert running.running == 1
    running.submit([late])
    texts = {completion.request: completion.text for completion in finish(running)}
    assert texts == {early: alone(early).text, late: alone(late).text}


# -- grammars that give up


@dataclass
class Stubborn:
    """A grammar that takes a few tokens and then gives up, and the state of its rows."""

    tokens: int
    opening: tuple[int, ...] = ()

    def start(self) -> Constraint:
        return Stubborn(self.tokens)

    def accept(self, token: int, left: int) -> Accepted:
        self.tokens -= 1
        return Accepted(error="no way on") if self.tokens < 0 else Accepted()


class Broken:
    """A grammar whose rows are in error before their first mask is made."""

    opening: tuple[int, ...] = ()

    def __init__(self, grammar: Grammar) -> None:
        self._grammar = grammar

    def start(self) -> Constraint:
        row = self._grammar.start()
        row.accept(ord("\n"), 9)
        return row


def test_a_grammar_error_ends_only_its_row() -> None:
    good, bad, other = request("good", 12), request("bad", 12, grammar=Stubborn(1)), request("other", 12)
    ended = ends_of(engine(rows=3), [good, bad, other])
    assert ended[bad].finish_reason is FinishReason.ERROR
    assert ended[bad].error == "no way on"
    for wanted in (good, other):
        assert (ended[wanted].text, ended[wanted].error) == (alone(wanted).text, None)


def test_a_grammar_error_at_the_last_token_of_the_budget_is_still_an_error() -> None:
    bad = request("bad", 2, grammar=Stubborn(1))
    completion = ends_of(engine(), [bad])[bad]
    assert (completion.finish_reason, completion.error) == (FinishReason.ERROR, "no way on")


def test_a_grammar_that_gave_up_while_its_mask_was_made_is_an_error_and_no_finished_answer() -> None:
    broken = request("broken", 12, grammar=Broken(GUIDE.compile(schema({"type": "string"}))))
    completion = ends_of(engine(), [broken])[broken]
    assert completion.finish_reason is FinishReason.ERROR
    assert completion.error


# -- backends that fail


class FailingBackend(FakeBackend):
    """Fails in the steps it is told, from 1: in `forward`, or when the tokens are asked for."""

    def __init__(self, *steps: int, in_sample: bool = False, slots: int = 4) -> None:
        super().__init__(limits(slots=slots))
        self._fails = steps
        self._in_sample = in_sample
        self._number = 0

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> list[Feed]:
        self._number += 1
        pending = super().forward(feeds, chain)
        if self._number in self._fails and not self._in_sample:
            super().sample(pending, None)
            raise BackendError("the device is gone")
        return pending

    def sample(self, pending: list[Feed], masks: Any) -> list[Drawn]:
        drawn = super().sample(pending, masks)
        if self._number in self._fails:
            raise BackendError("the device is gone")
        return drawn


@pytest.mark.parametrize("in_sample", [False, True])
def test_a_failing_step_ends_its_rows_as_errors_and_the_queue_goes_on(in_sample: bool) -> None:
    requests = [request(f"question {number}", 10) for number in range(6)]
    ended = ends_of(engine(FailingBackend(3, in_sample=in_sample), rows=2), requests)
    failed = [wanted for wanted in requests if ended[wanted].finish_reason is FinishReason.ERROR]
    assert failed == requests[:2]
    assert {ended[wanted].error for wanted in failed} == {"the device is gone"}
    for wanted in requests[2:]:
        assert ended[wanted].text == alone(wanted).text


def test_what_a_row_had_said_before_its_backend_failed_is_kept() -> None:
    wanted = request("question", 10)
    completion = ends_of(engine(FailingBackend(4)), [wanted])[wanted]
    assert completion.usage.completion_tokens == 3
    assert completion.text == alone(wanted).text[:3]


def test_shared_prefixes_are_computed_again_after_a_failure() -> None:
    requests = [request("A beginning that all of these share. " + tail, 6) for tail in "abcdef"]
    ended = ends_of(engine(FailingBackend(3, slots=5), rows=2), requests)
    assert [ended[wanted].finish_reason is FinishReason.ERROR for wanted in requests] == [True] * 2 + [False] * 4
    for wanted in requests[2:]:
        assert ended[wanted].text == alone(wanted).text
        assert ended[wanted].usage.cached_tokens > 30


def test_a_backend_that_fails_time_and_again_is_given_up() -> None:
    running = engine(FailingBackend(*range(1, 100)), rows=1)
    running.submit([request() for _ in range(FAILURES_TOLERATED + 1)])
    for _ in range(FAILURES_TOLERATED):
        assert [completion.finish_reason for completion in running.step()] == [FinishReason.ERROR]
    with pytest.raises(BackendError, match="the device is gone"):
        running.step()


def test_a_step_that_works_makes_up_for_failures_before_it() -> None:
    running = engine(FailingBackend(1, 2, 4, 5, 7, 8), rows=1)
    requests = [request(max_tokens=1) for _ in range(9)]
    ended = ends_of(running, requests)
    failed = [ended[wanted].finish_reason is FinishReason.ERROR for wanted in requests]
    assert failed == [True, True, False] * 3


# -- what is counted


def test_the_meter_adds_up() -> None:
    grammar = GUIDE.compile(schema({"enum": ["a long constant, part one", "a long constant, part two"]}))
    requests = [request(f"question {number}", 30, grammar=grammar if number % 2 else None) for number in range(7)]
    running = engine(rows=3)
    usages = [completion.usage for completion in ends_of(running, requests).values()]
    meter = running.take_meter()
    drawn = sum(usage.completion_tokens - usage.forced_tokens for usage in usages)
    ends = sum(
        1
        for wanted in requests
        if not wanted.grammar and alone(wanted).finish_reason is FinishReason.STOP  # an end token is drawn, not said
    )
    assert meter.drawn_tokens == drawn + ends
    opened = sum(len(wanted.opening) for wanted in requests)
    assert meter.computed_tokens == sum(usage.prompt_tokens - usage.cached_tokens for usage in usages) + opened
    assert meter.rows_peak == 3
    assert meter.steps <= meter.rows <= 3 * meter.steps


def test_a_shared_prefix_is_metered_once() -> None:
    requests = [request("A beginning that all of these share. " + tail, 4) for tail in "abcd"]
    running = engine(FakeBackend(limits(slots=5)), rows=4)
    usages = [completion.usage for completion in ends_of(running, requests).values()]
    assert running.take_meter().computed_tokens == 37 + 4
    assert [usage.cached_tokens for usage in usages] == [37] * 4


def test_without_sharing_every_prompt_is_computed_whole() -> None:
    requests = [request("A beginning that all of these share. " + tail, 4) for tail in "abcd"]
    running = engine(FakeBackend(limits(slots=5)), rows=4, share_prefixes=False)
    ends_of(running, requests)
    assert running.take_meter().computed_tokens == 4 * 38


def test_a_meter_that_was_taken_starts_again_from_nothing() -> None:
    running = engine()
    ends_of(running, [request()])
    assert running.take_meter().steps > 0
    assert running.take_meter().steps == 0


def test_the_seconds_of_a_meter_are_those_between_the_first_and_last_look_at_the_clock() -> None:
    clock = ticking()
    running = engine(clock=clock)
    running.submit([request("question", 5)])
    while not running.idle:
        before = clock()
        running.step()
        passed = clock() - before
        meter = running.take_meter()
        assert meter.model_s + meter.masks_s + meter.guide_s + meter.host_s == passed - 2


def test_the_cells_of_rows_that_end_in_their_first_step_count_for_the_peak() -> None:
    running = engine()
    wanted = request("question", 1)
    ends_of(running, [wanted])
    assert running.take_meter().cells_peak == wanted.need_tokens


def test_a_step_that_only_frees_slots_is_not_counted() -> None:
    running = engine()
    ends_of(running, [request("question", 1)])
    meter = running.take_meter()
    assert (meter.steps, meter.rows) == (1, 1)


def test_the_times_of_a_job_follow_each_other() -> None:
    first, second = request("first", 6), request("second", 6)
    ended = ends_of(engine(rows=1), [first, second])
    for completion in ended.values():
        timing = completion.timing
        assert timing.ttft_s is not None
        assert timing.queued_s < timing.ttft_s <= timing.ttft_s + timing.decode_s < timing.total_s
    assert ended[first].timing.total_s < ended[second].timing.queued_s + 3


def test_a_row_that_never_spoke_has_no_time_to_its_first_token() -> None:
    wanted = request("x" * 200, 6)
    running = engine()
    running.submit([wanted])
    running.step()
    completion = running.cancel(wanted)
    assert completion
    assert (completion.timing.ttft_s, completion.timing.decode_s, completion.text) == (None, 0.0, "")


@pytest.mark.parametrize(("margin", "ties"), [(NEAR_TIE_LOGITS / 2, 3), (NEAR_TIE_LOGITS, 0)])
def test_draws_that_were_nearly_a_tie_are_counted(margin: float, ties: int) -> None:
    running = engine(ScriptedBackend(limits(), lambda feed: 65, margin))
    running.submit([request(max_tokens=3)])
    assert len(finish(running)[0].near_ties) == ties
    assert running.take_meter().near_ties == ties


# -- width and lookahead


def with_width(width: Width, requests: Sequence[Request]) -> Engine:
    running = Engine(FakeBackend(limits(slots=6)), TOKENIZER, GUIDE, Cost(), ticking(), width=width)
    ends_of(running, requests)
    return running


def test_no_more_rows_run_than_the_width_says() -> None:
    requests = [request(f"question {number}", 5) for number in range(6)]
    assert with_width(Width(4, 2, fixed=False), requests).take_meter().rows_peak == 2
    assert with_width(Width(4, 2, fixed=True), requests).take_meter().rows_peak == 4


def test_a_width_learns_from_steps_that_only_decode() -> None:
    seen: list[tuple[int, int, bool]] = []

    class Noting(Width):
        def saw(self, rows: int, tokens: int, seconds: float, *, waiting: bool) -> None:
            assert seconds > 0
            seen.append((rows, tokens, waiting))

    backend = ScriptedBackend(limits(), lambda feed: 65)
    running = Engine(backend, TOKENIZER, GUIDE, Cost(), ticking(), width=Noting(2, 2, fixed=False), look_ahead=False)
    ends_of(running, [request(PROMPT, 4) for _ in range(3)])
    assert [step for step in seen if step[0]] == [(2, 2, True)] * 3 + [(1, 1, False)] * 3


class Dear(Cost):
    """A machine on which only passes cost: what is found in the prompt is always worth trying; or never."""

    def __init__(self, *, always: bool) -> None:
        super().__init__()
        self._prices = Prices(1.0, 0.0, 0.0) if always else Prices(0.0, 1.0, 1.0)

    def prices(self, depth: int) -> Prices:
        return self._prices


COPIED = "Copy this: the quick brown fox jumps over the lazy dog. "
COPY = b"the quick brown fox jumps over the lazy dog. And more."


def copied(cost: Cost, *, look_ahead: bool = True) -> tuple[Completion, Meter]:
    """A job that says again what stands in its prompt, and what became of its proposals."""
    backend = ScriptedBackend(limits(), saying(COPIED, [*COPY, END_OF_TEXT]))
    running = engine(backend, cost=cost, look_ahead=look_ahead)
    running.submit([request(COPIED, 80)])
    return finish(running)[0], running.take_meter()


def test_an_answer_that_copies_from_its_prompt_takes_fewer_steps_where_lookahead_pays() -> None:
    completion, meter = copied(Dear(always=True))
    plainly, plain = copied(Dear(always=True), look_ahead=False)
    assert completion.text == plainly.text == COPY.decode()
    assert completion.usage == plainly.usage
    assert meter.accepted_tokens > 20
    assert plain.proposed_tokens == 0
    assert meter.steps + meter.accepted_tokens == plain.steps
    assert meter.drawn_tokens == plain.drawn_tokens


def test_nothing_is_proposed_where_that_never_pays() -> None:
    completion, meter = copied(Dear(always=False))
    assert (completion.text, meter.proposed_tokens) == (COPY.decode(), 0)


def test_a_stop_string_inside_of_what_was_proposed_ends_the_answer_there() -> None:
    backend = ScriptedBackend(limits(), saying(COPIED, [*COPY, END_OF_TEXT]))
    running = engine(backend, cost=Dear(always=True))
    running.submit([request(COPIED, 80, stop=("fox ju",))])
    (completion,) = finish(running)
    assert (completion.text, completion.finish_reason) == ("the quick brown ", FinishReason.STOP)
    assert completion.usage.completion_tokens == len("the quick brown fox ju")
    assert running.take_meter().accepted_tokens > 0


def test_an_answer_cancelled_between_proposals_has_said_the_beginning_of_what_it_says() -> None:
    backend = ScriptedBackend(limits(), saying(COPIED, [*COPY, END_OF_TEXT]))
    running = engine(backend, cost=Dear(always=True))
    wanted = request(COPIED, 80)
    running.submit([wanted])
    while not running.meter.accepted_tokens:
        running.step()
    completion = running.cancel(wanted)
    assert completion
    assert completion.text
    assert COPY.decode().startswith(completion.text)


# -- usage


def test_usage_tells_forced_tokens_from_drawn_ones() -> None:
    grammar = GUIDE.compile(schema({"enum": ["common a", "common b"]}))
    wanted = request("question", 20, grammar=grammar)
    usage = ends_of(engine(), [wanted])[wanted].usage
    assert (usage.completion_tokens, usage.forced_tokens) == (len('"common a"'), len('"common "'))
