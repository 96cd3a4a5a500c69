"""The look over an input before a run: how many lines, the weightiest of them, the largest budget."""

from collections.abc import Iterable

from batchrun.line import Line
from batchrun.lines import LineReader
from batchrun.survey import LONGEST_KEPT, NO_LIMIT, Survey


def surveyed(lines: Iterable[bytes], most_bytes: int = NO_LIMIT) -> Survey:
    """A survey of many lines at once, and that it is the same as one by one."""
    data = b"\n".join(lines)
    at_once, singly = Survey(most_bytes=most_bytes), Survey(most_bytes=most_bytes)
    reader = LineReader([data])
    for raw in reader.raw_batches():
        first = reader.lines - len(raw) + 1
        at_once.take_plain(raw, lambda place, first=first, raw=raw: reader.line(first + place, raw[place]))
    for batch in LineReader([data]).batches():
        singly.take(batch)
    assert facts(at_once) == facts(singly)
    return at_once


def facts(found: Survey) -> tuple[object, ...]:
    weights = sorted(len(line.data) for line in found.longest)
    return found.lines, found.all_state_budgets, found.max_tokens, found.oversized, weights


def test_a_survey_counts_lines_and_budgets() -> None:
    found = surveyed([b"\xef\xbb\xbf", b'{"max_tokens": 7}', b"", b'{"max_tokens":\t12 }', b"{}"])
    assert (found.lines, found.all_state_budgets, found.max_tokens) == (3, False, 12)
    assert surveyed([b"", b'{"max_tokens": 7}', b" ", b'{"max_tokens":\t12 }']).all_state_budgets


def test_a_survey_knows_the_other_name_of_a_budget() -> None:
    assert surveyed([b'{"custom_id":"a","body":{"max_completion_tokens":9}}']).max_tokens == 9


def test_a_survey_keeps_the_weightiest_lines_with_their_numbers() -> None:
    lines = [b"x" * (1 + number % 100) for number in range(300)]
    found = surveyed(lines)
    assert len(found.longest) == LONGEST_KEPT
    assert min(len(line.data) for line in found.longest) >= 79
    assert all(lines[line.number - 1] == line.data for line in found.longest)


def test_a_survey_weighs_lines_as_it_is_told() -> None:
    batch = [Line(number, b"%d" % number) for number in range(100, 300)]
    found = Survey(weigh=lambda line: 300 - int(line.data))
    found.take(batch)
    assert max(int(line.data) for line in found.longest) == 99 + LONGEST_KEPT


def test_lines_beyond_any_context_are_counted_and_not_kept() -> None:
    found = surveyed([b"x" * 50, b"x" * 51], most_bytes=50)
    assert (found.lines, found.oversized, [line.number for line in found.longest]) == (2, 1, [1])


def test_a_budget_that_only_looks_like_one_does_no_harm() -> None:
    text = b'{"prompt":"say \\"max_tokens\\": 999999"}'
    assert surveyed([text]).max_tokens == 0
    assert surveyed([b'{"max_tokens": 99999999999999999999}', b'{"max_tokens": "many"}']).max_tokens < 10**9
