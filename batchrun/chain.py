"""How many tokens the rows of a step draw before anyone looks at them.

A backend that builds several decoding steps as one waits for its device once for all of them (`Limits.chain`).  That is
right only for rows whose next token follows from their last one alone: a grammar must see every token, and a random
draw is made on the host.  A row that ends inside a chain has its last tokens dropped; nobody can join before it is
over.
"""

from collections.abc import Sequence as Seq

from batchrun.core import Request
from batchrun.sequence import Sequence


def chain_tokens(fed: Seq[Sequence], most: int) -> int:
    """Tokens that every row of a step draws.  `fed`: its rows, none of them in prefill.

    Never more than the nearest budget, so that a chain fills no cell that was not reserved, and a row that ends for its
    budget leaves its slot at once.
    """
    requests = [row.request for row in fed if row.request and row.fed == len(row.tokens) - 1]
    if most == 1 or not requests or len(requests) < len(fed) or not all(map(_runs_on, requests)):
        return 1
    return min(most, *(row.left_tokens for row in fed if row.request))


def _runs_on(request: Request) -> bool:
    """Whether nothing guides its draws and nothing about them is random."""
    return request.grammar is None and request.job.sampling.temperature <= 0
