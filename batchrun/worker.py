"""One device at work: a backend, its engine, and the figures of the burst that runs.

A worker takes requests, steps, and gives completions; it never reads input and never writes output, so the same worker
serves one machine or many.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from batchrun.backends.base import Backend, LoadPlan, Tokenizer
from batchrun.bursts import MOST_JOBS, Burst
from batchrun.capacity import DEFAULT_ROWS
from batchrun.conditions import Conditions
from batchrun.core import Completion, Request, Result
from batchrun.cost import Cost, Work
from batchrun.engine import Engine
from batchrun.errors import BackendError
from batchrun.glance import WorkNow
from batchrun.governor import Allowance
from batchrun.guide import Guide
from batchrun.prefix import Planned
from batchrun.probe import Probe, run_probe
from batchrun.stats import BurstStats, Tally, answer_share, burst_stats
from batchrun.width import Width


class Worker:
    """Runs bursts on one backend.  `clock`: monotonic seconds.  `say`: told once where probes of speed fail."""

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
        saw_step: Callable[[Work, float], None] | None = None,
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._backend = backend
        self._tokenizer = tokenizer
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
            spare_slots=load.probe_slots,
            saw_step=saw_step,
        )
        self._say = say
        self._probes = load.probe_slots > 0
        self._lost: list[Completion] = []  # rows that a failed probe took along, for the next step to give
        self._tally = Tally()
        self._began_s = 0.0
        self._began_at = ""
        self._job_s = 0.0  # predicted for a job of the last burst that took any
        self.burst: Burst | None = None

    @property
    def notices(self) -> tuple[str, ...]:
        """What loading found out and a user should be told once."""
        return self._backend.notices

    @property
    def idle(self) -> bool:
        return self._engine.idle and not self._lost

    @property
    def waiting(self) -> int:
        return self._engine.waiting

    @property
    def wanted_jobs(self) -> int:
        """So many more fill all rows, and replace each of them once without a step in which one stands empty."""
        return max(0, 2 * self._width.rows - self._engine.running - self._engine.waiting)

    def jobs_for(self, seconds: float) -> int:
        """So many take that long by what jobs took, and fill all rows twice over beside that."""
        burst_jobs = int(seconds / self._job_s) if self._job_s else 0
        return 2 * self._width.rows + min(MOST_JOBS, burst_jobs)

    @property
    def context(self) -> int:
        """Tokens that a slot holds."""
        return self._backend.limits.context

    def fits(self, request: Request) -> bool:
        return self._engine.fits(request)

    def begin(self, number: int, allowance: Allowance, *, runs_on: bool = False) -> Burst:
        """Opens a burst: from now on all figures are its own.

        `runs_on`: rows go on from burst to burst whatever parts them, so none may stand empty for want of seconds.
        """
        least_jobs = max(0 if self.waiting else 1, self.wanted_jobs) if runs_on else 1
        carried_s = self.waiting * self._job_s
        rows = self._width.rows
        self.burst = Burst(number, allowance, self._cost, rows, carried_s=carried_s, least_jobs=least_jobs)
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
        if self._lost:
            lost, self._lost = self._lost, []
            return lost
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
        lost = next((each for each in self._lost if each.request is request), None)
        if lost:
            self._lost.remove(lost)
            return replace(lost, engine_failed=False)
        return self._engine.cancel(request)

    def running_since(self) -> list[tuple[Request, float]]:
        """Requests that have a slot, and the moment at which they got it."""
        return self._engine.running_since()

    def glance(self) -> WorkNow:
        burst = self.burst.number if self.burst else None
        ended = self._tally.statuses.total()
        return WorkNow(self._engine.slots_now(), self._width.rows, self.waiting, burst, ended)

    def drop_waiting(self) -> list[Request]:
        return self._engine.drop_waiting()

    def probe(self) -> Probe | None:
        """How fast the device is now; None where memory left no slot for it, or a probe failed before.

        One that fails is the last: rows that ran beside it are lost to it, as in a step that fails, and run again.
        """
        if not self._probes:
            return None
        slot = self._load.slots - 1
        try:
            return run_probe(self._backend, self._tokenizer, slot, self._clock)
        except BackendError as error:
            self._probes = False
            self._backend.free(slot)
            self._lost += self._engine.lose_rows(error)
            self._say(f"no more probes of speed: one failed ({error})")
            return None

    def end(self, rest_s: float, conditions: Conditions | None = None) -> BurstStats:
        """Closes the burst, after which `rest_s` of rest are meant to come.  `conditions`: under which it ran.

        Rows may still run on into the next burst, where no rest parts the two.
        """
        burst = self.burst
        assert burst is not None, "only an open burst can end"
        self.burst = None
        self._job_s = burst.job_s or self._job_s
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
            conditions=conditions,
        )

    def close(self) -> None:
        self._backend.close()
