"""What a step costs on this machine, fitted to the steps seen so far, and what follows from it.

A forward is charged for its passes (rows of unequal length are computed apart, and every pass reads all weights), for
each row that appends one token, for each token of a longer piece, and for the cells that each kind attends to.  The
fit knows no machine: its first guesses shape the first steps only.  It answers how much prefill to put into one step,
which run of tokens is worth a pass of its own, and how many seconds jobs will take.

A moving average describes the jobs: the share of their budgets that answers used.
"""

from collections.abc import Sequence
from typing import NamedTuple

from batchrun.core import Feed, Pace
from batchrun.lookup import Prices
from batchrun.regression import Regression

WEIGHT = 0.1
"""Of a new observation in a moving average: the last ten count for two thirds."""

FIRST_PASS_S, FIRST_ROW_S, FIRST_TOKEN_S, FIRST_CELLS_S = 0.01, 0.005, 0.002, 0.001
"""Used until something was measured: a pass, a row's one token, a token of a piece, a thousand cells attended to."""

FIRST_WEIGHTS = (FIRST_PASS_S, FIRST_ROW_S, FIRST_TOKEN_S, FIRST_CELLS_S, FIRST_CELLS_S)

SOLVE_EVERY = 8
LONGEST_STEP_S = 2.0
"""A step of prefill should not take longer where the machine has a choice: signals and arrivals wait for its end."""

PASS_SHARE = 0.05
"""The share of a prefill step that may go to the pass itself; a piece is not cut shorter than that, however slow."""


class Work(NamedTuple):
    """What a forward has to do: the features of its cost.  Cells in thousands, summed over tokens."""

    passes: float
    rows: float  # feeds of one token
    tokens: float  # in longer feeds
    row_cells: float
    token_cells: float


def work(feeds: Sequence[Feed]) -> Work:
    """The work of a step.  Feeds of one length are computed in one pass."""
    lengths = set()
    rows, tokens, row_cells, token_cells = 0, 0, 0, 0.0
    for feed in feeds:
        length = len(feed.tokens)
        lengths.add(length)
        if length == 1:
            rows += 1
            row_cells += feed.start
        else:
            tokens += length
            token_cells += length * (feed.start + length / 2)
    return Work(len(lengths), rows, tokens, row_cells / 1000, token_cells / 1000)


class Cost:
    """What was seen of this machine so far.  Seconds and tokens."""

    def __init__(self) -> None:
        self._fit = Regression(FIRST_WEIGHTS)
        self._seen = 0
        self._answer_share = 1.0

    def saw_step(self, done: Work, seconds: float) -> None:
        """Learns from one step."""
        if seconds <= 0:
            return
        self._fit.saw(done, seconds)
        self._seen += 1
        if self._seen % SOLVE_EVERY == 0 or self._seen < SOLVE_EVERY:
            self._fit.solve()

    def saw_answer(self, answer_share: float) -> None:
        self._answer_share += WEIGHT * (answer_share - self._answer_share)

    def step_seconds(self, planned: Work) -> float:
        """Predicted seconds of a step."""
        return self._fit.predict(planned)

    def prefill_seconds(self, start: int, tokens: int) -> float:
        """Predicted seconds of a piece of prompt behind `start` tokens."""
        return self.step_seconds(Work(1, 0, tokens, 0, tokens * (start + tokens / 2) / 1000)) if tokens else 0.0

    def answer_seconds(self, prompt_tokens: int, max_tokens: int, rows: int) -> float:
        """Predicted seconds of silicon for one answer among `rows` that decode together."""
        cells = rows * (prompt_tokens + max_tokens / 2) / 1000
        return max_tokens * self._answer_share * self.step_seconds(Work(1, rows, 0, cells, 0)) / rows

    def prices(self, depth: int) -> Prices:
        """What passes and tokens cost behind `depth` tokens."""
        pass_s, row_s, token_s, row_cells_s, token_cells_s = self._fit.weights
        return Prices(pass_s, row_s + row_cells_s * depth / 1000, token_s + token_cells_s * depth / 1000)

    def pace(self, batch: int, rows: int) -> Pace:
        """How to fill the next step.  `batch`: the most tokens a forward takes; `rows`: how many are to run."""
        pass_s, row_s, token_s, *_ = self._fit.weights
        if token_s <= 0:
            return Pace(batch, rows)
        break_even = pass_s / token_s
        chunk = max((LONGEST_STEP_S - pass_s) / token_s, break_even / PASS_SHARE)
        run = pass_s / (row_s - token_s) if row_s > token_s else batch
        return Pace(
            rows=rows,
            chunk_tokens=max(1, min(batch, int(chunk))),
            run_tokens=max(2, min(batch, int(run) + 1)),
            join_tokens=min(batch, int(break_even)),
        )
