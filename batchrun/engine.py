"""The inner loop: plan, forward, masks, sample, commit.

`Engine.step` walks one token boundary.  It owns nothing but the meter: slots and tokens are the scheduler's, tensors
the backend's, grammar states stand in the sequences.  A failure of one row ends that row; a failure of the backend
ends the rows that were in it, and the rest go on.
"""

import codecs
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import NamedTuple

from batchrun.backends.base import Backend, Tokenizer
from batchrun.core import Accepted, Completion, Drawn, Feed, FinishReason, Outcome, Request, Step, Timing, Usage
from batchrun.cost import Cost, Work, work
from batchrun.errors import BackendError
from batchrun.glance import SlotNow, slots_now
from batchrun.guide import Guide
from batchrun.lookup import Record, Trail, chosen, matching
from batchrun.prefix import Planned
from batchrun.prefix import plan as plan_prefixes
from batchrun.scheduler import Scheduler
from batchrun.sequence import Sequence
from batchrun.stats import Meter
from batchrun.width import Width

NEAR_TIE_LOGITS = 0.5
"""Two tokens whose logits differ by less may change places when the batch around a row changes: kernels for other
widths sum in another order, and 8-bit activations round it up.  Measured on SmolLM2 with AVX-512, in Q4_1 and Q8_0: of
46 answers that parted from the same job run alone, the one nearest to its second best token did so at 0.20 or less."""

FAILURES_TOLERATED = 8
"""Steps in a row that may fail before the backend is given up: a few jobs that it cannot bear may stand together."""


OnTokens = Callable[[Request, tuple[int, ...]], None]


class _Piece(NamedTuple):
    """What one draw adds.  `is_turn`: from here on other masks hold than those that were made for this step."""

    tokens: tuple[int, ...] = ()
    finish: FinishReason | None = None
    is_turn: bool = False

    @property
    def is_last(self) -> bool:
        """Whether no draw behind it counts."""
        return self.is_turn or self.finish is not None


class Engine:
    """Runs requests on a backend.

    `share_prefixes` off computes every prompt whole; `look_ahead` off draws every token in a step of its own.
    `on_tokens` hears the tokens of every answer as they come, forced ones among them, each of them once.
    `spare_slots`: of the backend's last slots, left to others.  `saw_step` is told of every step: its work, and the
    seconds in the backend.
    """

    def __init__(
        self,
        backend: Backend,
        tokenizer: Tokenizer,
        guide: Guide,
        cost: Cost,
        clock: Callable[[], float],
        *,
        width: Width,
        share_prefixes: bool = True,
        look_ahead: bool = True,
        on_tokens: OnTokens | None = None,
        spare_slots: int = 0,
        saw_step: Callable[[Work, float], None] | None = None,
    ) -> None:
        self.meter = Meter()
        self._on_tokens = on_tokens
        self._backend = backend
        self._tokenizer = tokenizer
        self._guide = guide
        self._cost = cost
        self._clock = clock
        self._width = width
        self._saw_step = saw_step
        limits = backend.limits
        self._scheduler = Scheduler(replace(limits, slots=limits.slots - spare_slots), width.most)
        self._share_prefixes = share_prefixes
        self._look_ahead = look_ahead and backend.limits.ahead
        self._trails = Record()
        self._failures = 0
        self._last_step: Step | None = None

    @property
    def idle(self) -> bool:
        return self._scheduler.idle

    @property
    def waiting(self) -> int:
        return self._scheduler.waiting

    @property
    def running(self) -> int:
        return self._scheduler.running

    def fits(self, request: Request) -> bool:
        return self._scheduler.fits(request)

    def plan(self, requests: Seq[Request], *, long_first: bool = False) -> list[Planned]:
        """Orders requests, and says what they share among themselves and with what lies in slots."""
        if self._share_prefixes:
            cut = self._backend.limits.cut
            return plan_prefixes(requests, self._scheduler.resident, cut=cut, long_first=long_first)
        return [Planned(request, None) for request in requests]

    def take(self, planned: Seq[Planned]) -> None:
        """Queues requests in the order of a plan."""
        self._scheduler.submit(planned)

    def submit(self, requests: Seq[Request]) -> None:
        """Plans requests by themselves, and queues them."""
        self.take(self.plan(requests))

    def cancel(self, request: Request) -> Completion | None:
        """Ends a request at this token boundary; gives what it had said, if it was running."""
        sequence = self._scheduler.cancel(request)
        return self._completion(sequence) if sequence else None

    def running_since(self) -> list[tuple[Request, float]]:
        """Requests that have a slot, and the moment at which they got it."""
        rows = self._scheduler.running_rows
        return [(sequence.request, sequence.admitted_s) for sequence in rows if sequence.request]

    def slots_now(self) -> tuple[SlotNow, ...]:
        """What each slot that is taken is doing."""
        return slots_now(self._scheduler.sequences, self._last_step)

    def drop_waiting(self) -> list[Request]:
        """Forgets what has no slot yet."""
        return self._scheduler.drop_waiting()

    def take_meter(self) -> Meter:
        """The counters since the last call."""
        meter, self.meter = self.meter, Meter()
        meter.upkeep = self._backend.take_upkeep()
        return meter

    def step(self) -> list[Completion]:
        """One step for every running row.  Gives the requests that ended in it."""
        started_s = self._clock()
        if self._look_ahead:
            self._propose()
        step = self._scheduler.plan(self._cost.pace(self._backend.limits.batch, self._width.rows))
        self._last_step = step
        for sequence in self._scheduler.admitted:
            sequence.admitted_s = started_s
        try:
            drawn, model_s, masks_s = self._run(step)
        except BackendError as error:
            return self._fail(error)
        now_s = self._clock()
        if step.feeds:
            self._count(step, model_s)
        self._time_forced(step, model_s)
        said = list(self._outcomes(step, drawn, now_s))
        guide_s = self._clock() - now_s
        if not step.prefill_tokens:
            tokens = sum(len(outcome.tokens) for outcome in said)
            self._width.saw(step.decoding_rows, tokens, model_s, waiting=self.waiting > 0)
        spoke = [self._scheduler.at(outcome.slot) for outcome in said]
        ended = self._scheduler.commit(step, said)
        self._tell(spoke)
        completions = [self._completion(sequence) for sequence in ended]
        self._failures = 0 if step.feeds else self._failures
        self.meter.model_s += model_s
        self.meter.masks_s += masks_s
        self.meter.guide_s += guide_s
        self.meter.host_s += self._clock() - started_s - model_s - masks_s - guide_s
        return completions

    def _run(self, step: Step) -> tuple[list[Drawn], float, float]:
        """Has the backend obey a step.  Gives the drawn tokens, seconds in the backend, and seconds in masks."""
        started_s = self._clock()
        for slot in step.frees:
            self._backend.free(slot)
        for cut in step.cuts:
            self._backend.cut(cut)
        for copy in step.copies:
            self._backend.copy(copy)
        if not step.feeds:
            return [], self._clock() - started_s, 0.0
        pending = self._backend.forward(step.feeds, step.chain)
        forwarded_s = self._clock()
        draws = [feed for feed in step.feeds if feed.draws]
        masks = self._guide.masks([(self._scheduler.at(feed.slot).constraint, feed.proposal) for feed in draws])
        masked_s = self._clock()
        drawn = self._backend.sample(pending, masks)
        return drawn, self._clock() - masked_s + forwarded_s - started_s, masked_s - forwarded_s

    def _propose(self) -> None:
        """Gives rows on a trail a proposal, where trying it is expected to pay."""
        decoding = self._scheduler.decoding
        on_trail = {}
        for sequence in decoding:
            if sequence.trail is None:
                sequence.trail = Trail(sequence.tokens)
            sequence.trail.follow()
            if sequence.trail.found:
                on_trail[sequence.slot] = sequence
        if not on_trail:
            return
        depth = max(len(sequence.tokens) for sequence in on_trail.values())
        runs = [(slot, sequence.trail.run) for slot, sequence in on_trail.items() if sequence.trail]
        slots, length = chosen(runs, len(decoding), self._cost.prices(depth), self._trails)
        for slot in slots:
            sequence = on_trail[slot]
            proposal = self._up_to_an_end(sequence.trail.ahead(length) if sequence.trail else ())
            if sequence.constraint:
                proposal = proposal[: sequence.constraint.allows(proposal)]
            sequence.proposal = proposal

    def _up_to_an_end(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        """Nothing is said behind an end, so nothing is proposed there."""
        ends = (place for place, token in enumerate(tokens) if token in self._tokenizer.stop_tokens)
        return tokens[: next(ends, len(tokens))]

    def _outcomes(self, step: Step, drawn: Seq[Drawn], now_s: float) -> Iterator[Outcome]:
        """What each feed's draws come to."""
        place = 0
        for feed in step.feeds:
            if feed.draws:
                draws = max(feed.draws, step.chain)
                yield self._outcome(feed, drawn[place : place + draws], now_s, chained=step.chain > 1)
                place += draws

    def _outcome(self, feed: Feed, drawn: Seq[Drawn], now_s: float, *, chained: bool) -> Outcome:
        """Tokens to append, or an end.

        A draw counts as long as all that was said before it lay in the slot: because it had been proposed, or because
        the backend chained its own draws.  What comes behind an end is dropped.
        """
        sequence = self._scheduler.at(feed.slot)
        if sequence.first_token_s is None:
            sequence.first_token_s = now_s
        sequence.last_token_s = now_s
        said: list[int] = []
        count, piece = 0, _Piece()
        while not piece.is_last and len(said) < len(drawn) and (chained or matching(feed.proposal, said) == len(said)):
            piece = self._said(sequence, said, drawn[len(said)])
            count += bool(piece.tokens)
            said += piece.tokens
        self.meter.proposed_tokens += feed.proposed
        self.meter.accepted_tokens += matching(feed.proposal, said)
        return Outcome(feed.slot, tuple(said), piece.finish, count)

    def _said(self, sequence: Sequence, said: list[int], drawn: Drawn) -> "_Piece":
        """The tokens that a draw adds behind what was said in this step: itself, and those it forces."""
        token = drawn.token
        if drawn.margin < NEAR_TIE_LOGITS:
            sequence.near_ties.append((sequence.completion_tokens + len(said), drawn.margin))
            self.meter.near_ties += 1
        self.meter.drawn_tokens += 1
        if sequence.trail and sequence.trail.found and not said:
            self._trails.saw(sequence.trail.run, sequence.trail.says(token))
        own = () if token in self._tokenizer.stop_tokens else (token,)
        if sequence.constraint:  # it is asked about an end too: one that gave up allows nothing but an end
            accepted = sequence.constraint.accept(token, sequence.left_tokens - len(said))
            return self._guided(sequence, len(said), own, accepted)
        if not own:
            return _Piece(finish=FinishReason.STOP)
        stop = sequence.request.job.stop if sequence.request else ()
        return _Piece(own, FinishReason.STOP if stop and self._stopped(sequence, [*said, token], stop) else None)

    def _guided(self, sequence: Sequence, said_tokens: int, own: tuple[int, ...], accepted: Accepted) -> "_Piece":
        """What a grammar made of a drawn token."""
        sequence.error = accepted.error
        sequence.closed |= accepted.closed
        tokens = (*(() if accepted.dropped else own), *accepted.forced)
        if accepted.thought:
            sequence.starts_answer(said_tokens + len(tokens), accepted.thought.constraint)
            tokens += accepted.thought.opening
        ends = accepted.ended or not tokens
        finish = FinishReason.ERROR if accepted.error else FinishReason.STOP if ends else None
        return _Piece(tokens, finish, is_turn=bool(accepted.closed or accepted.thought))

    def _stopped(self, sequence: Sequence, said: list[int], stop: tuple[str, ...]) -> bool:
        """Whether the last token said completes a stop string.  Looks at the end of the answer only."""
        longest = 4 * max(len(text.encode()) for text in stop) + 16
        tail = self._tokenizer.decode([*sequence.last_said(longest), *said])
        return any(text.encode() in tail for text in stop)

    def _tell(self, spoke: Iterable[Sequence]) -> None:
        if self._on_tokens:
            for sequence in [each for each in spoke if not each.thinks]:
                new = tuple(sequence.completion[sequence.told_tokens :])
                sequence.told_tokens += len(new)
                assert sequence.request is not None, "a prefix says nothing"
                if new:
                    self._on_tokens(sequence.request, new)

    def _completion(self, sequence: Sequence) -> Completion:
        request, now_s = sequence.request, self._clock()
        assert request is not None, "a prefix has no completion"
        assert sequence.finish is not None, "only a row that ended has a completion"
        first_s = sequence.first_token_s
        return Completion(
            request=request,
            text=self._text(sequence, request),
            finish_reason=sequence.finish,
            usage=Usage(
                prompt_tokens=sequence.prompt_tokens,
                cached_tokens=sequence.cached_tokens,
                completion_tokens=sequence.completion_tokens,
                forced_tokens=sequence.forced_tokens,
            ),
            timing=Timing(
                queued_s=sequence.admitted_s - request.taken_s,
                ttft_s=None if first_s is None else first_s - request.taken_s,
                decode_s=0.0 if first_s is None else sequence.last_token_s - first_s,
                total_s=now_s - request.taken_s,
                forced_s=sequence.forced_s,
            ),
            tokens=tuple(sequence.completion),
            near_ties=tuple(sequence.near_ties),
            error=sequence.error,
            slot=sequence.slot,
            closed=frozenset(sequence.closed),
        )

    def _text(self, sequence: Sequence, request: Request) -> str:
        """The answer as text: without what follows a stop string, and without half a character at a cut end.

        Who ends in the midst of thoughts has not answered.
        """
        if sequence.thinks:
            return ""
        whole = sequence.finish is FinishReason.STOP
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(self._tokenizer.decode(sequence.completion), final=whole)
        if not sequence.constraint:  # where a grammar rules, nobody looks for stop strings
            places = [text.find(stop) for stop in request.job.stop if stop in text]
            text = text[: min(places)] if places else text
        return text

    def _count(self, step: Step, model_s: float) -> None:
        meter, rows = self.meter, self._scheduler.running
        meter.steps += step.chain
        meter.rows += rows * step.chain
        meter.rows_peak = max(meter.rows_peak, rows)
        meter.computed_tokens += step.prefill_tokens
        meter.cells_peak = max(meter.cells_peak, self._scheduler.reserved_tokens)
        meter.prefill_kcells += step.prefill_cells / 1000
        done, seconds = work(step.feeds), model_s / step.chain
        self._cost.saw_step(done, seconds)
        if self._saw_step:
            self._saw_step(done, seconds)

    def _time_forced(self, step: Step, model_s: float) -> None:
        """Notes the seconds in which rows that had begun to answer were fed what their grammar forced."""
        for feed in step.feeds:
            if len(feed.tokens) - feed.proposed > 1 and self._scheduler.at(feed.slot).first_token_s is not None:
                self._scheduler.at(feed.slot).forced_s += model_s

    def _fail(self, error: BackendError) -> list[Completion]:
        """A step failed: its rows end as errors, its slots are emptied, and the queue goes on."""
        self._failures += 1
        if self._failures > FAILURES_TOLERATED:
            raise error
        return self.lose_rows(error)

    def lose_rows(self, error: BackendError) -> list[Completion]:
        """The backend failed, in a step or in other hands: what its slots hold is not to be trusted."""
        completions = []
        for sequence in self._scheduler.abandon():
            sequence.finish, sequence.error = FinishReason.ERROR, str(error)
            completions.append(replace(self._completion(sequence), engine_failed=True))
        return completions
