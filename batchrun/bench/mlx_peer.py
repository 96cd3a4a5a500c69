"""mlx-lm's own `batch_generate` as a peer, on the same weights in the same number format.

It knows no grammars and shares no prefixes: what it is given is the token ids of the prompts and their budgets.
"""

import time
from collections.abc import Sequence
from typing import Any

from batchrun.assembly import Parts, slot_plan
from batchrun.backends.base import Tokenizer
from batchrun.bench.ends import MemorySink
from batchrun.bench.figures import Figures, figures
from batchrun.bench.modes import longest_tokens, requests
from batchrun.bench.workloads import Workload
from batchrun.core import Completion, FinishReason, Request, Timing, Usage
from batchrun.errors import UsageError
from batchrun.results import judge


class Words:
    """As much of a tokenizer as `batch_generate` asks for."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.eos_token_ids = tokenizer.stop_tokens
        self._tokenizer = tokenizer

    def decode(self, tokens: Sequence[int]) -> str:
        return self._tokenizer.decode(tokens).decode(errors="replace")


def batch_generate(parts: Parts, workload: Workload) -> Figures:
    """A mode: all jobs in one call, as many rows at a time as batchrun has.  Raises UsageError on another engine."""
    opened: Any = parts.model
    if not hasattr(opened, "weights_folder"):
        raise UsageError("--peer mlx-lm runs on the weights of the mlx engine; expected --engine mlx")
    from batchrun.backends.mlx_library import batch_generate as generate
    from batchrun.backends.mlx_load import load_weights

    load = slot_plan(parts, longest_tokens(parts, workload))
    model = load_weights(opened.weights_folder(), load.threads, opened.options, lambda: False)
    jobs = requests(parts, workload)
    words = Words(parts.model.tokenizer)
    began_s = time.perf_counter()
    answers = generate(
        model,
        words,
        [list(request.tokens) for request in jobs],
        max_tokens=[request.job.max_tokens for request in jobs],
        completion_batch_size=load.rows,
        prefill_batch_size=load.rows,
        prefill_step_size=load.batch,
        return_token_ids=True,
    )
    wall_s = time.perf_counter() - began_s
    sink = MemorySink()
    for request, tokens in zip(jobs, answers.token_ids, strict=True):
        sink.append(judge(_completion(request, tokens, words, wall_s), "mlx-lm", 1))
    prompt_tokens = sum(len(request.tokens) for request in jobs)
    return figures(sink.results, (), wall_s=wall_s, computed_tokens=prompt_tokens)


def _completion(request: Request, tokens: Sequence[int], words: Words, wall_s: float) -> Completion:
    cut = len(tokens) >= request.job.max_tokens
    return Completion(
        request=request,
        text=words.decode(tokens),
        finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
        usage=Usage(len(request.tokens), 0, len(tokens), 0),
        timing=Timing(0.0, None, 0.0, wall_s),
    )
