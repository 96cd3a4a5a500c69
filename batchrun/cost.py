"""Predicts seconds from tokens, by the speeds measured so far in this run.

Two numbers describe a machine and a model well enough to cut bursts: prompt tokens a second, and seconds a decoding
step.  Both are moving averages over steps, so they follow a machine that warms up or is shared.  Two more describe the
jobs: the share of prompt tokens that prefixes left to compute, and the share of their budgets that answers used.
"""

WEIGHT = 0.1
"""Of a new observation in a moving average: the last ten count for two thirds."""

FIRST_PREFILL_TOKENS_PER_S = 500.0
FIRST_STEP_S = 0.05
"""Used until something was measured; they shape the first burst only."""


class Cost:
    """What was seen of this machine so far.  Seconds and tokens."""

    def __init__(self) -> None:
        self._prefill_token_s: float | None = None
        self._step_s: float | None = None
        self._computed_share = 1.0
        self._answer_share = 1.0

    @property
    def prefill_token_s(self) -> float:
        return self._prefill_token_s or 1 / FIRST_PREFILL_TOKENS_PER_S

    @property
    def step_s(self) -> float:
        return self._step_s or FIRST_STEP_S

    def saw_step(self, prefill_tokens: int, decoding_rows: int, seconds: float) -> None:
        """Learns from one step.  A mixed step is charged a decoding step first; the rest is its prompt's."""
        if prefill_tokens == 0:
            self._step_s = _moved(self._step_s, seconds)
            return
        left = seconds - (self.step_s if decoding_rows and self._step_s else 0.0)
        if left > 0:
            self._prefill_token_s = _moved(self._prefill_token_s, left / prefill_tokens)

    def saw_answer(self, prompt_tokens: int, cached_tokens: int, answer_share: float) -> None:
        self._answer_share = _moved(self._answer_share, answer_share)
        self._computed_share = _moved(self._computed_share, 1 - cached_tokens / max(prompt_tokens, 1))

    def seconds(self, prompt_tokens: int, max_tokens: int, rows: int) -> float:
        """Predicted seconds of silicon for one job among `rows` that decode together."""
        prefill_s = prompt_tokens * self._computed_share * self.prefill_token_s
        return prefill_s + max_tokens * self._answer_share * self.step_s / rows


def _moved(old: float | None, new: float) -> float:
    return new if old is None else old + WEIGHT * (new - old)
