"""llama.cpp as a backend: many sequences in one context, through the low-level API.

Each slot is a stream of its own (`kv_unified=False`), so a token attends over its own cells only; slots come in
ascending order, because llama.cpp splits a batch whose streams are not.  A copy between streams is queued by llama.cpp
and carried out by the next decode.  One batch is laid out once, over numpy memory; logits are read where they lie.
"""

import ctypes
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from batchrun.backends.base import Interrupted, LoadPlan, Upkeep
from batchrun.core import Copy, Cut, Drawn, Feed, Limits
from batchrun.errors import BackendError, ModelError
from batchrun.sampling import allow, draw

DECODE_ERRORS = {1: "no place in the KV cache", 2: "aborted"}
LOG_LEVEL_ERROR = 4
KV_TYPES = {"f16": llama_cpp.GGML_TYPE_F16, "q8_0": llama_cpp.GGML_TYPE_Q8_0}


class Log:
    """Keeps the last errors of llama.cpp instead of printing them: they are the reason when a call gives nothing.

    Its warnings are none: of a sound model it warns too.
    """

    def __init__(self) -> None:
        self._lines: deque[str] = deque(maxlen=20)
        self._level = 0
        self._callback = llama_cpp.llama_log_callback(self._take)  # kept: llama.cpp calls it as long as it lives
        llama_cpp.llama_log_set(self._callback, ctypes.c_void_p(0))

    def clear(self) -> None:
        self._lines.clear()

    def reason(self) -> str:
        errors = [line for line in self._lines if line]
        return "; ".join(errors[:2]) or "no reason given"

    def _take(self, level: int, text: bytes, _data: ctypes.c_void_p) -> None:
        if level == LOG_LEVEL_ERROR:
            self._lines.append(" ".join(text.decode(errors="replace").split()))


@cache
def quiet_log() -> Log:
    """The process's one log of llama.cpp, made on first use; also starts the library."""
    llama_cpp.llama_backend_init()
    return Log()


class Batch:
    """One `llama_batch` over numpy arrays, reused by every forward."""

    def __init__(self, tokens: int) -> None:
        self.token = np.zeros(tokens, np.int32)
        self.pos = np.zeros(tokens, np.int32)
        self.slot = np.zeros(tokens, np.int32)
        self.logits = np.zeros(tokens, np.int8)
        self._one = np.ones(tokens, np.int32)
        addresses = self.slot.ctypes.data + 4 * np.arange(tokens, dtype=np.uintp)
        self._slot_pointers = addresses.astype(np.uintp)
        self.c = llama_cpp.llama_batch()
        self.c.token = self._pointer(self.token, ctypes.c_int32)
        self.c.pos = self._pointer(self.pos, ctypes.c_int32)
        self.c.n_seq_id = self._pointer(self._one, ctypes.c_int32)
        self.c.seq_id = ctypes.cast(self._slot_pointers.ctypes.data, ctypes.POINTER(ctypes.POINTER(ctypes.c_int32)))
        self.c.logits = self._pointer(self.logits, ctypes.c_int8)

    def fill(self, feeds: Sequence[Feed]) -> None:
        end = 0
        for feed in feeds:
            slot, start, tokens = feed.slot, feed.start, feed.tokens
            begin, end = end, end + len(tokens)
            self.token[begin:end] = tokens
            self.pos[begin:end] = range(start, start + len(tokens))
            self.slot[begin:end] = slot
            self.logits[begin:end] = 0
            self.logits[end - feed.draws : end] = 1
        self.c.n_tokens = end

    @staticmethod
    def _pointer(array: NDArray[np.generic], kind: type) -> object:
        return ctypes.cast(array.ctypes.data, ctypes.POINTER(kind))


class LlamaBackend:
    """A GGUF model with its slots.  Raises ModelError where it cannot start, Interrupted if it is told to stop."""

    notices: tuple[str, ...] = ()

    def __init__(self, path: Path, plan: LoadPlan, vocab: int, stopped: Callable[[], bool]) -> None:
        self.limits = Limits(plan.slots, plan.context, plan.slots * plan.context, plan.batch, vocab)
        self._log = quiet_log()
        self._context = None
        self._waits = 0
        self._model = self._load_weights(path, stopped)
        self._context = self._make_context(plan)
        self._memory = llama_cpp.llama_get_memory(self._context)
        self._batch = Batch(plan.batch)
        keeps_all = not (
            llama_cpp.llama_model_n_swa(self._model)
            or llama_cpp.llama_model_is_recurrent(self._model)
            or llama_cpp.llama_model_is_hybrid(self._model)
        )
        context = min(plan.context, llama_cpp.llama_n_ctx_seq(self._context))
        self.limits = Limits(
            plan.slots, context, plan.slots * context, plan.batch, vocab, cut=keeps_all, ahead=keeps_all
        )

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> Sequence[Feed]:
        assert chain == 1, "llama.cpp draws on the host: one token, one look"
        self._batch.fill(feeds)
        self._log.clear()
        code = llama_cpp.llama_decode(self._context, self._batch.c)
        if code:
            raise BackendError(f"llama_decode: {DECODE_ERRORS.get(code, f'code {code}')} ({self._log.reason()})")
        return feeds

    def sample(self, pending: Sequence[Feed], masks: NDArray[np.int32] | None) -> list[Drawn]:
        self._waits += 1
        draws = [(feed, place) for feed in pending for place in range(feed.draws)]
        if not draws:
            llama_cpp.llama_synchronize(self._context)
            return []
        rows = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), (len(draws), self.limits.vocab))
        drawn = []
        for row, (feed, place) in enumerate(draws):
            assert feed.sampling is not None, "chosen for having one"
            logits = rows[row]
            if masks is not None:
                allow(logits, masks[row])
            position = feed.start + len(feed.tokens) - feed.proposed + place
            drawn.append(Drawn(feed.slot, *draw(logits, feed.sampling, position)))
        return drawn

    def cut(self, cut: Cut) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, cut.slot, cut.tokens, -1)

    def copy(self, copy: Copy) -> None:
        llama_cpp.llama_memory_seq_cp(self._memory, copy.source, copy.target, -1, -1)
        llama_cpp.llama_memory_seq_rm(self._memory, copy.target, copy.tokens, -1)

    def free(self, slot: int) -> None:
        llama_cpp.llama_memory_seq_rm(self._memory, slot, -1, -1)

    def take_upkeep(self) -> Upkeep:
        waits, self._waits = self._waits, 0
        return Upkeep(synchronisations=waits)

    def close(self) -> None:
        if self._context:
            llama_cpp.llama_free(self._context)
            self._context = None
        if self._model:
            llama_cpp.llama_model_free(self._model)
            self._model = None

    def _load_weights(self, path: Path, stopped: Callable[[], bool]) -> llama_cpp.llama_model_p:
        params = llama_cpp.llama_model_default_params()
        going_on = llama_cpp.llama_progress_callback(lambda _progress, _data: not stopped())
        params.progress_callback = going_on
        self._log.clear()
        model = llama_cpp.llama_model_load_from_file(str(path).encode(), params)
        if stopped():
            if model:
                llama_cpp.llama_model_free(model)
            raise Interrupted
        if not model:
            raise ModelError(f"llama.cpp cannot load {path.name}: {self._log.reason()}")
        return model

    def _make_context(self, plan: LoadPlan) -> llama_cpp.llama_context_p:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = plan.context * plan.slots
        params.n_batch = params.n_ubatch = plan.batch
        params.n_seq_max = plan.slots
        params.n_threads = params.n_threads_batch = plan.threads
        params.kv_unified = False
        params.flash_attn_type = int(plan.flash)
        params.type_k = params.type_v = KV_TYPES[plan.kv]
        context = llama_cpp.llama_init_from_model(self._model, params)
        if not context:
            self.close()
            size = f"{plan.slots} slots of {plan.context} tokens"
            raise ModelError(
                f"llama.cpp cannot set up {size}: {self._log.reason()}; try a smaller --context or --parallel"
            )
        return context
