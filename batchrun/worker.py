"""One device at work: a backend, its engine, and the figures of the burst that runs.

A worker takes requests, steps, and gives completions; it never reads input and never writes output, so the same worker
serves one machine or many.
"""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from batchrun.backends.base import Backend, LoadPlan, Tokenizer
from batchrun.bursts import Burst
from batchrun.capacity import DEFAULT_ROWS
from batchrun.core import Completion, Request, Result
from batchrun.cost import Cost
from batchrun.engine import Engine
from batchrun.governor import Allowance
from batchrun.guide import Guide
from batchrun.prefix import Planned
from batchrun.stats import BurstStats, Tally, answer_share, burst_stats
from batchrun.width import Width


class Worker:
    """Runs bursts on one backend.  `clock`: monotonic seconds."""

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        guide: Guide,
        load: LoadPlan,
        clock: Callable[[], float],
        *,
        share_prefixes: bool,
        look_ahead: bool,
        fixed_width: bool,
    ) -> None:
        self._backend = backend
        self._clock = clock
        self._load = load
        self._cost = Cost()
        self._width = Width(load.rows, DEFAULT_ROWS, fixed=fixed_width)
        self._engine = Engine(
            backend,
            tokenizer,
            guide,
            self._cost,
            clock,
            width=self._width,
            share_prefixes=share_prefixes,
            look_ahead=look_ahead,
        )
        self._tally = Tally()
        self._began_s = 0.0
        self._began_at = ""
        self.burst: Burst | None = None

    @property
    def idle(self) -> bool:
        return self._engine.idle

    @property
    def waiting(self) -> int:
        return self._engine.waiting

    @property
    def context(self) -> int:
        """Tokens that a slot holds."""
        return self._backend.limits.context

    def fits(self, request: Request) -> bool:
        return self._engine.fits(request)

    def begin(self, number: int, allowance: Allowance) -> Burst:
        """Opens a burst: from now on all figures are its own."""
        self.burst = Burst(number, allowance, self._cost, self._width.rows)
        self._tally = Tally()
        self._began_s = self._clock()
        self._began_at = datetime.now(UTC).isoformat(timespec="milliseconds")
        return self.burst

    def plan(self, requests: Sequence[Request], *, long_first: bool) -> list[Planned]:
        return self._engine.plan(requests, long_first=long_first)

    def take(self, planned: Sequence[Planned]) -> None:
        self._engine.take(planned)

    def step(self) -> list[Completion]:
        """One token boundary.  Gives the requests that ended in it."""
        completions = self._engine.step()
        for completion in completions:
            self._cost.saw_answer(answer_share(completion))
        return completions

    def count(self, completion: Completion, result: Result, *, stands: bool = True) -> None:
        """Counts a judged result into the burst; one that does not stand is tried again."""
        spared = completion.request.job.max_tokens - completion.usage.completion_tokens
        self._tally.add(result, max(0, spared), stands=stands)

    def cancel(self, request: Request) -> Completion | None:
        """Takes a request out at this token boundary; gives what it had said, if it had a slot."""
        return self._engine.cancel(request)

    def running_since(self) -> list[tuple[Request, float]]:
        """Requests that have a slot, and the moment at which they got it."""
        return self._engine.running_since()

    def drop_waiting(self) -> list[Request]:
        return self._engine.drop_waiting()

    def end(self, rest_s: float) -> BurstStats:
        """Closes the burst, after which `rest_s` of rest are meant to come.

        Rows may still run on into the next burst, where no rest parts the two.
        """
        burst = self.burst
        assert burst is not None, "only an open burst can end"
        self.burst = None
        return burst_stats(
            burst.number,
            self._began_at,
            self._engine.take_meter(),
            self._tally,
            wall_s=self._clock() - self._began_s,
            rest_s=rest_s,
            predicted_s=burst.predicted_s,
            slots={"rows": self._load.rows, "slots": self._load.slots, "context": self._load.context},
            width={"rows": self._width.rows, "reason": self._width.reason},
        )

    def close(self) -> None:
        self._backend.close()
