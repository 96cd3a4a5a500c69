"""What a step takes on a cool machine: learned from steps, kept as a record, never guessed for a width not seen."""

import json
import random

import pytest

from batchrun.cost import Work
from batchrun.step_fit import STEPS_TO_FIT, StepFit

KINK = 0.8  # of a linear cost: what eight rows and more take


def machine_s(step: Work) -> float:
    """Kernels that are not linear in rows."""
    seconds = 0.01 + 0.003 * step.rows + 0.001 * step.tokens + 0.0005 * step.row_cells + 0.0002 * step.token_cells
    return seconds * (KINK if step.rows >= 8 else 1.0)


def steps(count: int) -> list[Work]:
    dice = random.Random(5)
    made = []
    for _ in range(count):
        rows = dice.choice([1, 2, 4, 8])
        tokens = dice.choice([0, 0, 0, 200])
        made.append(Work(1 + (tokens > 0), rows, tokens, rows * dice.random(), tokens * dice.random()))
    return made


def fitted(count: int = 1500, noise: float = 0.02) -> StepFit:
    dice, fit = random.Random(6), StepFit()
    for step in steps(count):
        fit.saw_step(step, machine_s(step) * dice.lognormvariate(0, noise))
    return fit


def test_steps_that_were_seen_are_predicted_within_a_few_hundredths() -> None:
    fit = fitted()
    for step in steps(200):
        assert fit.step_seconds(step) == pytest.approx(machine_s(step), rel=0.06)


def test_a_width_that_was_not_seen_has_no_prediction_and_a_guess() -> None:
    fit, unseen = fitted(), Work(1, 6, 0, 3.0, 0)
    assert fit.step_seconds(unseen) is None
    assert fit.guess_s(unseen) == pytest.approx(machine_s(unseen), rel=0.35)


def test_a_few_steps_are_no_fit() -> None:
    fit = fitted(STEPS_TO_FIT - 1)
    assert all(fit.step_seconds(step) is None for step in steps(50))
    assert fit.as_record() == {}
    fit.saw_step(Work(1, 1, 0, 0, 0), 0.0)
    assert fit.as_record() == {}


def test_a_record_predicts_what_it_was_made_from() -> None:
    fit = fitted()
    again = StepFit.from_record(json.loads(json.dumps(fit.as_record())))
    for step in steps(50):
        assert again.step_seconds(step) == fit.step_seconds(step)
    assert StepFit.from_record({}).guess_s(Work(1, 1, 0, 0, 0)) is None


def test_a_record_stands_until_as_much_was_seen_again() -> None:
    again, slow = StepFit.from_record(fitted().as_record()), Work(1, 8, 0, 4.0, 0)
    before_s = again.step_seconds(slow)
    assert before_s
    again.saw_step(slow, before_s)
    assert again.step_seconds(slow) == pytest.approx(before_s)


@pytest.mark.parametrize(
    "record", [{"weights": [1]}, {"weights": 3, "widths": []}, {"widths": []}, {"weights": ["x"] * 5}]
)
def test_a_damaged_record_is_refused(record: dict[str, object]) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        StepFit.from_record(record)
