"""Plans how many slots of how many tokens a machine's memory holds.  Pure: numbers in, a plan or a refusal out.

Slots times context is counted once, at the start, and printed; what can never fit is refused before the first token
with the number that was too big.
"""

from dataclasses import dataclass

from batchrun.backends.base import LoadPlan, ModelCard
from batchrun.byte_counts import memory_size
from batchrun.errors import ModelError

DEFAULT_ROWS = 8
MOST_ROWS = 16  # tried where nobody says a width
SHARE_FOR_MORE = 0.25  # of the memory for slots: rows beyond the usual get no more than that
PREFIX_SLOTS = 2  # a shared instruction, and a document or system prompt under or beside it
SHARE_OF_MEMORY = 0.8  # of what is available now; the rest is for everybody else
WORK_BYTES = 400 << 20  # buffers of a forward, the interpreter, the tokenizer
CONTEXT_STEP = 256  # llama.cpp pads a stream to this
UNKNOWN_CONTEXT = 8192  # asked for where the longest job is not known yet


@dataclass(frozen=True, slots=True)
class Machine:
    """What the plan is made from."""

    available_bytes: int
    threads: int


@dataclass(frozen=True, slots=True)
class Wish:
    """What a run asks for; None leaves it to the plan.  `longest_tokens`: prompt and budget of the longest job."""

    rows: int | None
    context: int | None
    longest_tokens: int | None
    batch: int
    threads: int | None
    prefixes: int = PREFIX_SLOTS
    flash: bool = True
    kv: str = "f16"
    probes: int = 0  # slots for probes of speed; the first thing that a machine short of memory goes without


def plan(machine: Machine, card: ModelCard, wish: Wish) -> LoadPlan:
    """Rows first, then context: a machine short of memory runs fewer rows rather than refusing long jobs.

    Raises ModelError where not even one row fits.
    """
    budget = int(machine.available_bytes * SHARE_OF_MEMORY) - card.weights_memory_bytes - WORK_BYTES
    cell_bytes = _cell_bytes(card, wish.kv)
    cells = budget // max(cell_bytes, 1)
    wanted = wish.context or _padded(min(wish.longest_tokens or UNKNOWN_CONTEXT, card.context_train))
    wanted = min(wanted, _padded(card.context_train))
    fitting = cells // wanted
    roomy = wish.longest_tokens is not None and fitting * SHARE_FOR_MORE >= MOST_ROWS
    rows = wish.rows or (MOST_ROWS if roomy else DEFAULT_ROWS)
    probes = wish.probes if fitting >= rows + wish.prefixes + wish.probes else 0
    if fitting >= 1 + wish.prefixes:
        slots = min(rows + wish.prefixes, fitting)
        rows = slots - wish.prefixes
    elif fitting >= 1:
        slots = rows = 1
    else:
        needed, there = needed_bytes(card, wanted, wish.kv), machine.available_bytes
        raise ModelError(
            f"one row of {wanted} tokens needs {needed / 2**30:.1f} GiB with this model, "
            f"{there / 2**30:.1f} GiB are available; expected a smaller --context, a smaller model, or more memory"
        )
    slots += probes
    threads = wish.threads or machine.threads
    return LoadPlan(rows, slots, wanted, max(wish.batch, slots), threads, wish.flash, wish.kv, probes)


def needed_bytes(card: ModelCard, tokens: int, kv: str) -> int:
    """Memory that must be available for one row of so many tokens."""
    return int((card.weights_memory_bytes + WORK_BYTES + tokens * _cell_bytes(card, kv)) / SHARE_OF_MEMORY)


def most_context(machine: Machine, card: ModelCard, kv: str) -> int:
    """The longest single row that a plan finds memory for, in steps of the context; 0 where none fits."""
    budget = int(machine.available_bytes * SHARE_OF_MEMORY) - card.weights_memory_bytes - WORK_BYTES
    cells = max(0, budget) // max(_cell_bytes(card, kv), 1)
    return min(cells // CONTEXT_STEP * CONTEXT_STEP, _padded(card.context_train))


def described(load: LoadPlan, card: ModelCard, *, fixed: bool) -> str:
    """The plan in one line, with what it was made from.  `fixed`: whether somebody asked for that many rows."""
    cache = load.slots * load.context * _cell_bytes(card, load.kv)
    total = cache + card.weights_memory_bytes + WORK_BYTES
    prefixes, rows = load.slots - load.rows - load.probe_slots, "row" if load.rows == 1 else "rows"
    threads = "thread" if load.threads == 1 else "threads"
    return (
        f"{'' if fixed else 'up to '}{load.rows} {rows} and {prefixes} shared-prefix slots of {load.context} tokens "
        f"({memory_size(cache)} cache, {memory_size(card.weights_memory_bytes)} weights, {memory_size(total)} in all), "
        f"{load.threads} {threads}"
    )


def _cell_bytes(card: ModelCard, kv: str) -> int:
    """Of the cache for one token, in the number format of the cache (Q8_0: 34 bytes for 32 numbers)."""
    return card.cell_memory_bytes * 17 // 32 if kv == "q8_0" else card.cell_memory_bytes


def _padded(tokens: int) -> int:
    return -(-tokens // CONTEXT_STEP) * CONTEXT_STEP
