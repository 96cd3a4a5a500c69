"""From an MLX folder to a backend: limits, weights, number format, and a look whether rows may share a pass."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from batchrun.backends.base import Interrupted, LoadPlan
from batchrun.backends.gguf_config import DTYPE
from batchrun.backends.mlx import MlxBackend
from batchrun.backends.mlx_batch import Batch, Newcomer, never_batched
from batchrun.backends.mlx_device import MlxOptions, mx, on_a_processor, set_limits
from batchrun.backends.mlx_library import dequantize_model, load_model, make_prompt_cache
from batchrun.errors import ModelError

ONE_BY_ONE = "this model's rows run one at a time: {}"
PROBE_LENGTHS = (2, 13)
LIKE = 0.05  # of the logits' standard deviation, the most that rounding moves them on the mean
# what mlx-lm and MLX let out where they cannot read or compute a model; each becomes a ModelError or a notice
FAILURES = (RuntimeError, ValueError, TypeError, AttributeError, IndexError, KeyError, NotImplementedError)


def load_backend(
    folder: Path, plan: LoadPlan, vocab: int, options: MlxOptions, stopped: Callable[[], bool]
) -> MlxBackend:
    """Raises ModelError where MLX cannot start, Interrupted if it is told to stop."""
    model = load_weights(folder, plan.threads, options, stopped)
    why = why_one_by_one(model, vocab)
    notices = (ONE_BY_ONE.format(why),) if why else ()
    return MlxBackend(model, plan, vocab, chain=options.chain, batched=why is None, notices=notices)


def load_weights(folder: Path, threads: int, options: MlxOptions, stopped: Callable[[], bool]) -> Any:
    """The model, ready to be called.  Raises ModelError where mlx-lm cannot load it, Interrupted if told to stop."""
    set_limits(options, threads)
    try:
        model, config = load_model(folder, lazy=True)
        _set_format(model, config)
        for layer in model.layers:
            if stopped():
                raise Interrupted
            mx.eval(layer.parameters())
        mx.eval(model.parameters())
    except (*FAILURES, OSError) as error:
        raise ModelError(f"MLX cannot load {folder.name}: {' '.join(str(error).split())[:200]}") from error
    return model


def _set_format(model: Any, config: dict[str, Any]) -> None:
    """32-bit floats on a processor, where MLX has no fast kernels for others; elsewhere what the folder was made
    for."""
    if on_a_processor():
        model.set_dtype(mx.float32)
        dequantize_model(model)
    elif DTYPE in config:
        model.set_dtype(getattr(mx, config[DTYPE]))


def why_one_by_one(model: Any, vocab: int) -> str | None:
    """Why rows must not share a pass; None where a row says among others what it says alone.

    mlx-lm knows many kinds of models and not all of them mask padding, so this one is tried: two short sequences, alone
    and side by side.
    """
    kind = never_batched(make_prompt_cache(model))
    if kind:
        return f"mlx-lm has no batch of {kind}"
    sequences = [[(7 * place + length) % vocab for place in range(length)] for length in PROBE_LENGTHS]
    try:
        alone = [_logits(model, mx.array([tokens]), make_prompt_cache(model)) for tokens in sequences]
        batch = Batch(model)
        for slot, tokens in enumerate(sequences):
            batch.join([Newcomer(slot, make_prompt_cache(model), tokens[:-1])])
        together = _logits(model, mx.array([[tokens[-1]] for tokens in sequences]), batch.cache)
        apart = mx.mean(mx.abs(together - mx.concatenate(alone))) / mx.std(together)
        return None if apart.item() < LIKE else "side by side, mlx-lm computes something else for them"
    except FAILURES as error:
        return f"mlx-lm fails to compute them side by side ({' '.join(str(error).split())[:100]})"


def _logits(model: Any, tokens: Any, cache: Any) -> Any:
    return model(tokens, cache=cache)[:, -1, :].astype(mx.float32)
