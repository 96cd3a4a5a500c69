"""The seam between the scheduler and a model.

A `Model` is a model that was opened but holds no weights yet: it can tokenize, render its chat template and say what a
token costs in memory.  `Model.load` gives a `Backend`: the weights and a number of independent slots.  A backend obeys
steps and decides nothing; the rules of a step are written at `Backend` and refereed by `fake.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
from llguidance import LLTokenizer
from numpy.typing import NDArray

from batchrun.core import Copy, Cut, Drawn, Feed, Limits, Message


class Tokenizer(Protocol):
    """Text to token ids and back."""

    @property
    def vocab(self) -> int:
        """Tokens there are: the width of a row of logits."""
        ...

    @property
    def stop_tokens(self) -> frozenset[int]:
        """The union of what file, tokenizer and chat template call an end."""
        ...

    @property
    def control_texts(self) -> tuple[str, ...]:
        """Spellings of control tokens: in a document they are text."""
        ...

    def encode(self, text: str, *, control: bool) -> list[int]:
        """Token ids of `text`.  `control`: whether spellings of control tokens become control tokens."""
        ...

    def decode(self, tokens: Sequence[int]) -> bytes: ...

    def with_bos(self, tokens: list[int]) -> list[int]:
        """The tokens with exactly one beginning-of-text token in front where the model wants one."""
        ...

    def for_guide(self) -> LLTokenizer: ...


class ChatTemplate(Protocol):
    """A model's own way to write a conversation down."""

    @property
    def text(self) -> str:
        """Its source; part of a job's digest.  Empty: there is none."""
        ...

    def render(self, messages: Sequence[Message], *, thinking: bool = False) -> str:
        """The conversation as text, ready for the answer.  Raises JobError where the template refuses it.

        `thinking`: what templates that have a switch for it are told.
        """
        ...


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known of a model without its weights."""

    name: str
    identity: str  # changes whenever the weights or the vocabulary do
    context_train: int  # tokens
    weights_bytes: int
    cell_bytes: int  # of KV cache for one token, in 16-bit floats
    path: Path | None = None  # the file of its weights, where there is one
    notices: tuple[str, ...] = ()  # what a user should be told once
    loaded_weights_bytes: int = 0  # in memory, where an engine widens them; 0: as many as in the file
    loaded_cell_bytes: int = 0
    licence: str = ""  # as the file says it

    @property
    def weights_memory_bytes(self) -> int:
        return self.loaded_weights_bytes or self.weights_bytes

    @property
    def cell_memory_bytes(self) -> int:
        return self.loaded_cell_bytes or self.cell_bytes


@dataclass(frozen=True, slots=True)
class LoadPlan:
    """How much a backend is to set up.  `slots` = `rows` + slots for shared prefixes + `probe_slots`."""

    rows: int
    slots: int
    context: int  # tokens in one slot
    batch: int  # tokens in one forward
    threads: int
    flash: bool = True  # attention that keeps no matrix of scores
    kv: str = "f16"  # number format of the KV cache, one of config.KV_FORMATS
    probe_slots: int = 0  # the last ones, for probes of speed


class Model(Protocol):
    """A model that was opened; no weights are loaded yet."""

    @property
    def card(self) -> ModelCard: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def template(self) -> ChatTemplate: ...

    def recipe(self, plan: LoadPlan) -> "Callable[[Callable[[], bool]], Backend]":
        """Loads the weights when it is called, as `load` does, in this process or, pickled, in another."""
        ...

    def load(self, plan: LoadPlan, stopped: Callable[[], bool]) -> "Backend":
        """Loads the weights.  Gives up with `Interrupted` soon after `stopped()` turns true.

        Raises ModelError where the engine cannot start.
        """
        ...

    def close(self) -> None: ...


class Upkeep(NamedTuple):
    """What a backend did besides computing: rows that joined its batch and left it, the seconds that took, and how
    often it waited for the device."""

    joins: int = 0
    leaves: int = 0
    seconds: float = 0.0
    synchronisations: int = 0


class Interrupted(Exception):
    """Loading was given up because the run was asked to stop."""


class Backend(Protocol):
    """A model and `limits.slots` independent sequences.  Obeys; decides nothing.

    One step is: frees, cuts, copies, then one `forward` and one `sample`.  Feeds come ordered by slot, at most one a
    slot, at most `limits.batch` tokens in all, and each starts where its slot ends.  The target of a copy is empty; its
    source is complete, is not fed in that step and not freed before the next.  After a step that raised, all slots are
    freed before anything else, whatever was copied: what they hold is not to be trusted.

    A step may be a chain (up to `limits.chain`): then every feed draws, greedy and without a mask, and the backend
    feeds each drawn token back itself until every feed has drawn so many.
    """

    @property
    def limits(self) -> Limits: ...

    @property
    def notices(self) -> tuple[str, ...]:
        """What loading found out and a user should be told once."""
        ...

    def forward(self, feeds: Sequence[Feed], chain: int = 1) -> Any:
        """Appends each feed to its slot; may return before it is done.  Raises BackendError."""
        ...

    def sample(self, pending: Any, masks: NDArray[np.int32] | None) -> list[Drawn]:
        """`feed.draws` tokens for each feed, in feed order, or `chain` of them in a row; waits for `forward`.

        `masks`: `int32[draws, ceil(vocab / 32)]`, bit 1 = allowed, or None for no masks.  The last drawn token is
        returned and not appended: it enters its slot with the next feed.  A proposal does lie in its slot then,
        whatever was drawn.
        """
        ...

    def cut(self, cut: Cut) -> None:
        """Keeps the beginning of a slot.  Only where `limits.ahead`."""
        ...

    def copy(self, copy: Copy) -> None: ...

    def free(self, slot: int) -> None:
        """Empties a slot.  Never fails."""
        ...

    def take_upkeep(self) -> Upkeep:
        """What it did besides computing since the last call."""
        ...

    def close(self) -> None: ...
