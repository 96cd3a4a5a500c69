"""Which tokens go into which slot next.  Bookkeeping only: no model, no numpy, no clock.

A step is planned (`plan`), obeyed by a backend, and taken down (`commit`).  Three rules keep it simple:

* prefill, decode and forced tokens are one verb: append `tokens[fed:]` to a slot, as much of it as fits;
* the worst case (prompt and whole budget) is reserved when a request is admitted, so nothing is ever evicted from
  under a running row and a full KV cache in mid-run is a bug;
* every decoding row gets its token before any prompt gets a piece, so running rows never starve.

Rows live in slots 0 .. rows-1, lowest free first, and shared prefixes in the slots above, so that the decoding rows
stand side by side: llama.cpp computes neighbouring streams in one pass and splits the batch at every gap.
"""

import heapq
from collections import Counter, deque
from collections.abc import Iterable

from batchrun.chain import chain_tokens
from batchrun.core import Copy, Cut, Feed, FinishReason, Limits, Outcome, Pace, Request, Step
from batchrun.lookup import matching
from batchrun.prefix import Planned, Prefix, Share
from batchrun.sequence import Sequence


class Scheduler:
    """Turns requests and limits into steps.  First come, first served, in the order of submission."""

    def __init__(self, limits: Limits, rows: int) -> None:
        assert 1 <= rows <= limits.slots <= limits.batch, "a slot for each row, a token of the batch for each slot"
        self.limits = limits
        self.rows = rows
        self._queue: deque[Planned] = deque()
        self._running: dict[int, Sequence] = {}  # by slot, prefixes included, in order of admission
        self._prefixes: dict[Prefix, Sequence] = {}
        self._readers: Counter[Prefix] = Counter()  # planned copies that are still to come
        self._row_slots = list(range(rows))
        self._prefix_slots = list(range(rows, limits.slots))
        self._ended: list[int] = []  # slots to free in the next step
        self._cuts: dict[int, Cut] = {}  # by slot: proposals that did not stand, to forget in the next step
        self._reserved_tokens = 0
        self._step = 0
        self.admitted: list[Sequence] = []  # rows that the last plan gave a slot

    # -- what others may ask

    @property
    def waiting(self) -> int:
        """Requests that have no slot yet."""
        return len(self._queue)

    @property
    def running(self) -> int:
        """Rows that have a slot."""
        return self.rows - len(self._row_slots)

    @property
    def idle(self) -> bool:
        return not self._queue and not self.running

    @property
    def decoding(self) -> list[Sequence]:
        """Rows that say an answer."""
        return [sequence for sequence in self._running.values() if sequence.request and sequence.decoding]

    @property
    def reserved_tokens(self) -> int:
        """Cells promised to rows and prefixes: the most that can come to be filled."""
        return self._reserved_tokens

    @property
    def resident(self) -> tuple[Prefix, ...]:
        """Prefixes that lie in slots, computed or on their way."""
        return tuple(self._prefixes)

    @property
    def running_rows(self) -> tuple[Sequence, ...]:
        """Rows that have a slot, in the order in which they got it."""
        return tuple(sequence for sequence in self._running.values() if sequence.request)

    @property
    def sequences(self) -> Iterable[Sequence]:
        """All that lies in slots, prefixes included."""
        return self._running.values()

    def at(self, slot: int) -> Sequence:
        """The sequence that owns a slot."""
        return self._running[slot]

    def fits(self, request: Request) -> bool:
        return request.need_tokens <= min(self.limits.context, self.limits.cells)

    # -- what changes the state

    def submit(self, planned: Iterable[Planned]) -> None:
        """Appends requests to the queue.  Each must fit: what can never fit was refused before."""
        for entry in planned:
            assert self.fits(entry.request), f"job {entry.request.job.id} was admitted but cannot fit"
            self._queue.append(entry)
            self._add_reader(entry.share)

    def cancel(self, request: Request) -> Sequence | None:
        """Takes a request out at this token boundary.  Gives its sequence if it had a slot, else None."""
        for sequence in self._running.values():
            if sequence.request is request:
                sequence.finish = FinishReason.CANCELLED
                self._end(sequence)
                return sequence
        for entry in self._queue:
            if entry.request is request:
                self._queue.remove(entry)
                self._drop_reader(entry.share)
                break
        return None

    def drop_waiting(self) -> list[Request]:
        """Empties the queue: the run is asked to stop, what has no slot stays undone."""
        dropped = [entry.request for entry in self._queue]
        for entry in self._queue:
            self._drop_reader(entry.share)
        self._queue.clear()
        return dropped

    def abandon(self) -> list[Sequence]:
        """Ends every row and forgets every prefix: the backend failed, what the slots hold is not to be trusted."""
        rows = [sequence for sequence in self._running.values() if sequence.request]
        for sequence in list(self._running.values()):
            self._end(sequence)
        return rows

    def plan(self, pace: Pace) -> Step:
        """The next step: slots to free, beginnings to copy, tokens to append."""
        self._step += 1
        self.admitted = []
        frees, self._ended = self._ended, []
        for slot in frees:
            heapq.heappush(self._row_slots if slot < self.rows else self._prefix_slots, slot)
        copies: list[Copy] = []
        while (
            self._queue and self._row_slots and self.running < pace.rows and self._admit(self._queue[0], copies, frees)
        ):
            self._queue.popleft()
        rows, pieces = self._feeds(pace)
        cuts, self._cuts = tuple(self._cuts.values()), {}
        fed = [self._running[feed.slot] for feed in rows] if not pieces else []
        chain = 1 if any(feed.proposed for feed in rows) else chain_tokens(fed, self.limits.chain)
        return Step(
            tuple(frees),
            cuts,
            tuple(copies),
            tuple(sorted(rows + pieces)),
            prefill_tokens=sum(len(piece.tokens) for piece in pieces),
            decoding_rows=len(rows),
            prefill_cells=sum(len(piece.tokens) * (piece.start + len(piece.tokens) / 2) for piece in pieces),
            chain=chain,
        )

    def commit(self, step: Step, outcomes: Iterable[Outcome]) -> list[Sequence]:
        """Takes down what a step did.  Gives the sequences that it ended, their slots free from the next step on."""
        for feed in step.feeds:
            self._running[feed.slot].fed += len(feed.tokens) - feed.proposed + step.chain - 1
        proposals = {feed.slot: feed.proposal for feed in step.feeds if feed.proposed}
        ended = []
        for outcome in outcomes:
            sequence = self._running[outcome.slot]
            assert sequence.request is not None, "a prefix is never drawn from"
            room = sequence.left_tokens
            sequence.tokens.extend(outcome.tokens[:room])
            sequence.forced_tokens += max(0, min(len(outcome.tokens), room) - outcome.drawn)
            sequence.finish = outcome.finish
            if len(outcome.tokens) > room or (len(outcome.tokens) == room and not outcome.finish):
                sequence.finish = FinishReason.LENGTH
            if sequence.finish:
                self._end(sequence)
                ended.append(sequence)
            elif outcome.slot in proposals:
                self._keep(sequence, proposals[outcome.slot], outcome.tokens)
        return ended

    def _keep(self, sequence: Sequence, proposal: Iterable[int], said: tuple[int, ...]) -> None:
        """A proposal lies in the slot: as much of it as was said stays there, up to the token to draw after."""
        proposed = tuple(proposal)
        kept = min(matching(proposed, said), len(said) - 1)
        sequence.fed += kept
        assert sequence.fed < len(sequence.tokens), "the last draw is never in its slot yet"
        if kept < len(proposed):
            self._cuts[sequence.slot] = Cut(sequence.slot, sequence.fed)

    # -- admission

    def _admit(self, entry: Planned, copies: list[Copy], frees: list[int]) -> bool:
        """Gives a request its slot, or says False: it waits for its prefix, or for room."""
        request, share = entry
        while share:
            both_fit = len(share.prefix.tokens) + request.need_tokens <= self.limits.cells
            if both_fit and self._resident(share.prefix, copies, frees):
                break
            if both_fit and (self._prefix_pending(share.prefix) or self._slot_frees_next_step()):
                return False
            share = self._fall_back(share)
            self._queue[0] = Planned(request, share)
        if not self._make_room(request.need_tokens, share, frees):
            return False
        slot = heapq.heappop(self._row_slots)
        tokens = [*request.tokens, *request.opening]
        sequence = Sequence(slot, tokens, len(request.tokens), request=request, forced_tokens=len(request.opening))
        sequence.constraint = request.grammar.start() if request.grammar else None
        self.admitted.append(sequence)
        self._start(sequence, share, request.need_tokens, copies)
        return True

    def _resident(self, prefix: Prefix, copies: list[Copy], frees: list[int]) -> bool:
        """Whether a prefix lies complete in a slot.  If not, starts it, or the first missing one of its beginnings."""
        missing, above = None, prefix
        while above not in self._prefixes:
            missing = above
            if not above.share:
                break
            above = above.share.prefix
        sequence = self._prefixes.get(above)
        if sequence and sequence.fed < len(sequence.tokens):
            return False
        if missing:
            self._start_prefix(missing, copies, frees)
        return missing is None

    def _start_prefix(self, prefix: Prefix, copies: list[Copy], frees: list[int]) -> None:
        """Gives a prefix a slot, if there is one and room for it."""
        if self._free_prefix_slot(prefix, frees) and self._make_room(len(prefix.tokens), prefix.share, frees):
            slot = heapq.heappop(self._prefix_slots)
            self._prefixes[prefix] = Sequence(slot, list(prefix.tokens), len(prefix.tokens), prefix=prefix)
            self._start(self._prefixes[prefix], prefix.share, len(prefix.tokens), copies)

    def _prefix_pending(self, prefix: Prefix | None) -> bool:
        """Whether a prefix, or one that it begins with, is being computed: its readers are right to wait."""
        while prefix:
            sequence = self._prefixes.get(prefix)
            if sequence:
                return sequence.fed < len(sequence.tokens)
            prefix = prefix.share.prefix if prefix.share else None
        return False

    def _slot_frees_next_step(self) -> bool:
        """Whether a prefix has served its last reader in this very step: its slot is free in the next."""
        return any(s.copied_in_step == self._step and not self._readers[p] for p, s in self._prefixes.items())

    def _fall_back(self, share: Share) -> Share | None:
        """There is no slot for a prefix: its reader begins where the prefix itself would have begun."""
        shorter = share.prefix.share
        self._add_reader(shorter)
        self._drop_reader(share)
        return shorter

    def _free_prefix_slot(self, wanted: Prefix, frees: list[int]) -> bool:
        """A free slot for a prefix, taken from one that nobody waits for if need be."""
        if not self._prefix_slots:
            self._evict_one(wanted.share, frees)
        return bool(self._prefix_slots)

    def _make_room(self, tokens: int, keep: Share | None, frees: list[int]) -> bool:
        while self._reserved_tokens + tokens > self.limits.cells:
            if not self._evict_one(keep, frees, needed_too=not self.running):
                return False
        return True

    def _evict_one(self, keep: Share | None, frees: list[int], needed_too: bool = False) -> bool:
        """Frees the slot of one unread prefix that is neither `keep`'s nor copied in this very step.

        `needed_too`: even one that has readers, for when nothing runs and nothing else could make room.
        """
        for prefix, sequence in self._prefixes.items():
            untouched = sequence.copied_in_step < self._step and not (keep and keep.prefix is prefix)
            if untouched and (needed_too or not self._readers[prefix]):
                self._release(sequence)
                frees.append(sequence.slot)
                heapq.heappush(self._prefix_slots, sequence.slot)
                return True
        return False

    def _start(self, sequence: Sequence, share: Share | None, reserve_tokens: int, copies: list[Copy]) -> None:
        self._running[sequence.slot] = sequence
        self._reserved_tokens += reserve_tokens
        if share:
            source = self._prefixes[share.prefix]
            copies.append(Copy(source.slot, sequence.slot, share.tokens))
            source.copied_in_step = self._step
            sequence.fed = sequence.cached_tokens = share.tokens
            self._drop_reader(share)

    def _add_reader(self, share: Share | None) -> None:
        """One more copy to come.  A prefix that is not computed yet will itself read the one that it begins with."""
        while share:
            self._readers[share.prefix] += 1
            if self._readers[share.prefix] > 1 or share.prefix in self._prefixes:
                return
            share = share.prefix.share

    def _drop_reader(self, share: Share | None) -> None:
        while share and self._readers[share.prefix]:
            self._readers[share.prefix] -= 1
            if self._readers[share.prefix]:
                return
            del self._readers[share.prefix]
            if share.prefix in self._prefixes:
                return
            share = share.prefix.share

    def _end(self, sequence: Sequence) -> None:
        self._release(sequence)
        self._ended.append(sequence.slot)

    def _release(self, sequence: Sequence) -> None:
        del self._running[sequence.slot]
        self._cuts.pop(sequence.slot, None)
        if sequence.prefix:
            del self._prefixes[sequence.prefix]
            self._reserved_tokens -= len(sequence.prefix.tokens)
            if self._readers[sequence.prefix]:  # it will be computed again
                self._add_reader(sequence.prefix.share)
        elif sequence.request:
            self._reserved_tokens -= sequence.request.need_tokens

    # -- feeds

    def _feeds(self, pace: Pace) -> tuple[list[Feed], list[Feed]]:
        """The feeds of a step: of rows that decode, and pieces of prompts and prefixes."""
        decoding = self.decoding
        left = self.limits.batch - len(decoding)
        feeds = []
        for sequence in decoding:
            waits = len(sequence.tokens) - sequence.fed
            at_once = waits >= pace.run_tokens or len(decoding) == 1
            tokens = min(waits, left + 1) if at_once else 1
            feeds.append(self._feed(sequence, tokens, left + 1 - tokens))
            left -= len(feeds[-1].tokens) - 1
        return feeds, self._pieces(min(left, pace.chunk_tokens), pace.join_tokens)

    def _pieces(self, left: int, join_tokens: int) -> list[Feed]:
        """Pieces of prompts and prefixes, first come first served.

        Pieces of unequal length are computed apart all the same, and the last few tokens of the longer ones in passes
        that are hardly filled.  So one sequence gets the step to itself, joined only by pieces too short for their own.
        """
        pieces: list[Feed] = []
        for sequence in self._running.values():
            waits = sequence.prefill_tokens - sequence.fed
            if waits > 0 and left > 0 and (not pieces or waits <= join_tokens or waits == len(pieces[0].tokens)):
                tokens = min(waits, left)
                left -= tokens
                pieces.append(self._feed(sequence, tokens))
        return pieces

    def _feed(self, sequence: Sequence, tokens: int, room: int = 0) -> Feed:
        """A feed of the next tokens.  Behind the last of them a proposal of up to `room` tokens may be tried."""
        end = sequence.fed + tokens
        fed = sequence.tokens[sequence.fed : end]
        if sequence.request is None or end < len(sequence.tokens):
            return Feed(sequence.slot, sequence.fed, fed, None)
        job = sequence.request.job
        room = min(room, sequence.left_tokens - 1)
        proposal, sequence.proposal = sequence.proposal[: max(room, 0)], ()
        return Feed(sequence.slot, sequence.fed, [*fed, *proposal], job.sampling, len(proposal))
