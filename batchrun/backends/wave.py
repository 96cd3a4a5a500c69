"""When to slice rows that ended out of a batch: rent or buy.

A row that ended costs its share of every step until it is sliced out, and slicing copies the KV cache of all others.
The rule is the classic one for such a choice (ski rental; Karlin et al., "Competitive snoopy caching", 1988): wait
until what was wasted comes to the price, then pay it.  That costs at most twice what knowing the future would.  Rows
that end one after the other then leave in one wave.
"""

WEIGHT = 0.25  # of a new price in the moving average


class Wave:
    """Seconds wasted on rows that ended, and the price of slicing them out, as measured."""

    def __init__(self) -> None:
        self.price_s: float | None = None
        self.wasted_s = 0.0

    @property
    def due(self) -> bool:
        """Whether slicing now is right; where the price is not known, it is paid to know it."""
        return self.price_s is None or self.wasted_s >= self.price_s

    def saw_step(self, seconds: float, rows: int, ended: int) -> None:
        """One step of `rows` rows, `ended` of them for nothing."""
        self.wasted_s += seconds * ended / rows

    def saw_slicing(self, seconds: float) -> None:
        old = self.price_s
        self.price_s = seconds if old is None else old + WEIGHT * (seconds - old)
        self.wasted_s = 0.0
