"""How many rows are worth running together, found by trying while the run goes on.

More rows share one reading of the weights, but each costs its own arithmetic and cache: how many still pay depends on
machine, model and depth, and not smoothly.  So the next power of two is tried while work waits, and kept only if it
brings clearly more tokens a second; else half as many are tried, and taken if the wider batch was hardly faster.

Pure: decoding steps in, a number of rows and the reason for it out.
"""

from dataclasses import dataclass

STEPS_A_TRIAL = 24
"""Decoding steps, without prefill, at the full width, before it is judged."""

GAIN = 1.05
"""What doubling the rows must win in tokens a second: a wider batch costs memory, and every answer takes longer."""

WEIGHT = 0.15


@dataclass(slots=True)
class _Speed:
    steps: int = 0
    tokens_per_s: float = 0.0

    def saw(self, tokens_per_s: float) -> None:
        self.steps += 1
        share = max(WEIGHT, 1 / self.steps)
        self.tokens_per_s += share * (tokens_per_s - self.tokens_per_s)


class Width:
    """Rows to run now: `rows`, and why: `reason`.  `most`: slots for rows; with `fixed` they are all used."""

    def __init__(self, most: int, first: int, *, fixed: bool) -> None:
        self.most = most
        self._speeds: dict[int, _Speed] = {}
        self._settled = fixed
        self.rows = most if fixed else min(first, most)
        self.reason = "as asked" if fixed else "not compared yet"

    def saw(self, rows: int, tokens: int, seconds: float, *, waiting: bool) -> None:
        """Takes one step that only decoded.  `waiting`: there was work to fill more rows with."""
        if self._settled or rows != self.rows or seconds <= 0:
            return
        speed = self._speeds.setdefault(rows, _Speed())
        speed.saw(tokens / seconds)
        if speed.steps >= STEPS_A_TRIAL and waiting:
            self._choose()

    def _choose(self) -> None:
        """From the narrowest width measured, up while doubling pays."""
        measured = sorted(rows for rows, speed in self._speeds.items() if speed.steps >= STEPS_A_TRIAL)
        best = measured[0]
        while 2 * best in measured and self._gain(2 * best) >= GAIN:
            best *= 2
        wider, narrower = min(2 * best, self.most), best // 2
        if wider == 2 * best and wider not in measured:
            self.rows = wider
        elif narrower >= 1 and best == measured[0] and narrower not in measured:
            self.rows = narrower
        else:
            self.rows, self._settled = best, True
        self.reason = self._reason(best)

    def _gain(self, rows: int) -> float:
        return self._speeds[rows].tokens_per_s / self._speeds[rows // 2].tokens_per_s

    def _reason(self, best: int) -> str:
        said = []
        if 2 * best in self._speeds:
            said.append(f"{2 * best} rows gave {self._gain(2 * best):.2f} of the tokens/s of {best}")
        elif 2 * best > self.most:
            said.append(f"there is room for {self.most}")
        if best // 2 in self._speeds:
            said.append(f"{best} gave {self._gain(best):.2f} of the tokens/s of {best // 2}")
        return ", ".join(said) or "not compared yet"
