"""A hostile pattern cannot hold the run up."""

import re
import threading

import pytest

from batchrun import schemas
from batchrun.time_limit import time_limit

BACKTRACKING = "^((a|a)*b|a{34}c)$"


def test_a_pattern_that_backtracks_for_years_ends_as_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "CHECK_S", 0.05)
    schema = schemas.checked("x", f'{{"type":"string","pattern":"{BACKTRACKING}"}}')
    problems = schemas.validate(schema, "a" * 34 + "c")
    assert ["within 0.05 s" in problem.message for problem in problems] == [True]
    assert schemas.validate(schema, "b") == []


def test_the_limit_ends_with_its_block() -> None:
    with pytest.raises(TimeoutError), time_limit(0.01):
        re.search(BACKTRACKING, "a" * 40)
    with time_limit(60):
        pass
    assert re.search("a", "a")


def test_another_thread_is_left_alone() -> None:
    seen = []

    def work() -> None:
        with time_limit(0.0001):
            seen.append(True)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
