"""One quick pass over an input, to size the slots: how many lines, the weightiest of them, the largest budget.

A million lines are to cost a fraction of a second, so plain lines are looked at many at a time: by their lengths, and
by one search over all of them.
"""

import heapq
import itertools
import re
from collections.abc import Callable, Sequence

from batchrun.line import Line
from batchrun.lines import LongLine

LONGEST_KEPT = 64
NO_LIMIT = 1 << 62
NAMES_A_FILE = b'"document_file"'
BUDGET, OTHER_BUDGET = b'"max_tokens"', b'"max_completion_tokens"'
_BUDGET = re.compile(rb'"max_(?:completion_)?tokens"\s*:\s*(\d{1,9})')


class Survey:
    """What a pass found: `longest`, the weightiest lines, worth tokenizing to size the slots, and the largest budget.

    `weigh`: bytes that a line stands for that names a file; `most_bytes`: of a line that is worth keeping.
    """

    def __init__(self, weigh: Callable[[Line], int] = lambda line: len(line.data), most_bytes: int = NO_LIMIT) -> None:
        self.lines = 0
        self.all_state_budgets = True
        self.max_tokens = 0
        self.oversized = 0  # lines so heavy that no model's context could hold them: they are not kept
        self._weigh = weigh
        self._most_bytes = most_bytes
        self._heap: list[tuple[int, int, Line]] = []
        self._tickets = itertools.count()  # so that no two lines are compared

    @property
    def longest(self) -> list[Line]:
        return [line for _, _, line in self._heap]

    def take(self, batch: Sequence[Line]) -> None:
        """Takes in lines one by one."""
        self.lines += len(batch)
        for line in batch:
            self._take_budgets([line.data])
            self._keep(line, self._weigh(line))

    def take_plain(self, raw: Sequence[bytes | LongLine], as_line: Callable[[int], Line | None]) -> None:
        """Takes in many lines at once.  `as_line`: the line at a place among them, None if it is blank."""
        data = [line if isinstance(line, bytes) else line.data for line in raw]
        self.lines += sum(map(bool, map(bytes.strip, data)))
        self._take_budgets(data)
        least = self._heap[0][0] if len(self._heap) == LONGEST_KEPT else -1
        names_files = NAMES_A_FILE in b"\n".join(data)
        for place, size in enumerate(map(len, data)):
            if size > least or (names_files and NAMES_A_FILE in data[place]):
                line = as_line(place)
                if line:
                    self._keep(line, self._weigh(line) if names_files else size)
                    least = self._heap[0][0] if len(self._heap) == LONGEST_KEPT else -1

    def _keep(self, line: Line, weight: int) -> None:
        if weight > self._most_bytes:
            self.oversized += 1
        elif len(self._heap) < LONGEST_KEPT:
            heapq.heappush(self._heap, (weight, next(self._tickets), line))
        elif weight > self._heap[0][0]:
            heapq.heapreplace(self._heap, (weight, next(self._tickets), line))

    def _take_budgets(self, data: Sequence[bytes]) -> None:
        found = _BUDGET.findall(b"\n".join(data))
        self.max_tokens = max(self.max_tokens, *map(int, set(found)), 0)
        if self.all_state_budgets:
            lacking = [line for line in data if BUDGET not in line]
            self.all_state_budgets = not any(line.strip() and OTHER_BUDGET not in line for line in lacking)
