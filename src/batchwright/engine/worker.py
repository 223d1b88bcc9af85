"""The worker: claims segments, sends their rows, and makes what happened durable, one checkpoint after another.

One loop, four steps a turn, nothing of which overlaps with the next turn's:

    tidy      what the signals, the clock and the lanes ask for: closings, releases, pauses       (engine.closing)
    propose   reserve the next rows, take what changed, ask for segments and allowances
    land      one transaction in the writer thread, tried until its end is known                  (engine.landing)
    apply     reserved rows become ready, claimed segments open, settled and lost ones go; then every desk pumps

Between the steps, in callbacks, rows end and others are sent (engine.sender). Nothing is sent that is not durably
reserved, and nothing counts as done before its checkpoint has landed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from batchwright.core.errors import NotNow, StoreError, WorkerGone
from batchwright.core.failure_limit import COUNTED_BYTES
from batchwright.core.worker_id import WorkerId
from batchwright.engine import budget
from batchwright.engine.appetite import Appetite
from batchwright.engine.attempt import Attempts
from batchwright.engine.checkpoint import Landed, Proposal
from batchwright.engine.closing import Closing
from batchwright.engine.failover import Failover
from batchwright.engine.floor import FindPrice, Floor
from batchwright.engine.followers import Followers
from batchwright.engine.heart import Heart
from batchwright.engine.landing import Landing
from batchwright.engine.lookout import Lookout
from batchwright.engine.opening import Opening
from batchwright.engine.outages import Outages
from batchwright.engine.sender import Sender
from batchwright.engine.traces import batch_span
from batchwright.engine.worker_settings import LaneLimits, WorkerSettings
from batchwright.engine.writer import Writer
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.observer import LaneView, Trace, WorkerFigures, WorkerView
from batchwright.ports.row_files import NoFiles, RowFiles
from batchwright.ports.store import BatchSignals, Store
from batchwright.ports.vendor import Vendors

if TYPE_CHECKING:
    from batchwright.engine.desk import LaneDesk
    from batchwright.engine.single_calls import SingleCalls

LOOK_EVERY_S = 1.0
"""A worker whose rows all wait still looks at its batches' signals so often."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerParts:
    """What a worker is built from; `assemble` (or a test's world) chooses them."""

    store: Store
    writer: Writer
    beats: Writer
    """Writes heartbeats; it waits for nothing that the writer does."""
    vendors: Vendors
    find_price: FindPrice
    clock: Clock
    chance: Chance
    day_of: Callable[[int], str]
    """Milliseconds since the epoch -> UTC date, `YYYY-MM-DD`."""
    report: Callable[[str], None]
    """Takes a sentence about something that went wrong and was survived."""
    figures: WorkerFigures = field(default_factory=WorkerFigures)
    """Counts what the worker does, for whoever watches the process."""
    trace: Trace | None = None
    """Told of checkpoints and of the work on batches; None: nobody is."""
    outages: Outages = field(default_factory=Outages)
    """What its process tells of them, whoever met them."""
    files: RowFiles = field(default_factory=NoFiles)
    """Reads what rows name of this machine."""
    step: Callable[[str], None] = lambda name: None
    """Told before each named step; a test's world crashes here."""


def _waiting_text(desk: LaneDesk, now_s: float) -> str:
    """What holds up rows of a lane: what it knows itself, then what its vendor does."""
    if desk.quarantine is not None:
        return desk.quarantine.sentence
    if desk.opening:
        return desk.lane.paused_reason or "starting"
    found = desk.lane.paused_reason or desk.lane.waiting(now_s) or (desk.vendor.waiting if desk.vendor else "")
    if not found and any(line.context.waits_at_gate and line.unsent() for line in desk.lines):
        return "its first rows are out; the others follow once one is answered (the gate)"
    return found


class Worker:
    """`run()` once; `stop()` any time. With `only_batch` it claims from that batch alone and ends with it;
    without `claims` it takes no batch on and is there for single calls alone. One that begins by standing by follows
    one that was drained: it holds its place, and takes rows on once a person ends the drain."""

    def __init__(
        self,
        parts: WorkerParts,
        *,
        identity: WorkerId,
        settings: WorkerSettings,
        only_batch: str = "",
        until_idle: bool = False,
        claims: bool = True,
        standing_by: bool = False,
        host: str = "",
        pid: int = 0,
    ) -> None:
        self.identity = identity
        self.parts = parts
        self.settings = settings
        self.only_batch = only_batch
        self._until_idle = until_idle
        self._host = host
        self._pid = pid
        self._clock = parts.clock
        self._loop = asyncio.get_running_loop()
        self._dirty = asyncio.Event()
        self._urgent = False
        self._stirred = asyncio.Event()
        """It became urgent, or a desk starves."""
        self.floor = Floor(
            settings=settings,
            find_price=parts.find_price,
            now_ms=parts.clock.now_ms,
            keeps_prefixes=parts.vendors.keeps_prefixes,
        )
        self.failover = Failover(self.floor)
        self.sender = Sender(
            settings=settings,
            attempts=Attempts(clock=parts.clock, chance=parts.chance, day_of=parts.day_of, failover=self.failover),
            clock=parts.clock,
            call_soon=self._loop.call_soon,
            call_later=self._loop.call_later,
            wake=self._dirty.set,
            hurry=self._stirred.set,
            report=parts.report,
            figures=parts.figures,
            files=parts.files,
        )
        self.calls: SingleCalls | None = None
        """Single calls that go over this worker's desks; set by themselves."""
        self.claims = claims and not standing_by
        self.standing_by = standing_by
        self.begun = False
        """It is registered: from then on it waits by itself for a store that is away."""
        self.ended = False
        self.appetite = Appetite(self)
        self.closing = Closing(self)
        self.followers = Followers(self)
        self.heart = Heart(self)
        self.landing = Landing(self)
        self.lookout = Lookout(self)
        self.opening = Opening(self)
        self._looked_s = 0.0
        self._failure: BaseException | None = None
        self.stopping = False
        self.drained = False
        """It ends, or has ended, because it was asked to from elsewhere."""
        self.stop_until_s = 0.0

    # ------------------------------------------------------------------------------------------------- from outside

    def stop(self, *, grace: bool) -> None:
        """Stop sending; with grace, rows in flight may finish first. Then checkpoint, give back and end."""
        now_s = self._clock.now_s()
        until_s = now_s + self.settings.grace_s if grace else now_s
        self.stop_until_s = min(until_s, self.stop_until_s) if self.stopping else until_s
        self.stopping = True
        self.sender.sending = False
        self.wake_now()

    def drain(self) -> None:
        """Somebody asked for its end from elsewhere: it sends nothing more, lets what is out come back, and ends."""
        if not self.stopping:
            self.drained = True
            self.stop(grace=True)

    def work_again(self) -> None:
        """The drain that it stood by for has ended."""
        self.standing_by, self.claims = False, True
        self.parts.report("The drain of this worker has ended: it works again.")
        self.look_again()

    @property
    def note(self) -> str:
        """What it lacks or waits for as a whole; empty: nothing."""
        if self.standing_by:
            return f"drained; `batchwright workers resume {self.identity.name}` lets it work again"
        return self.opening.note

    def fail(self, failure: Exception) -> None:
        """Ends the worker with this, at its next turn."""
        self._failure = failure
        self.wake_now()

    def _companion_ended(self, companion: asyncio.Task[None]) -> None:
        """One that stops for any other reason than the worker's own end takes the worker with it: without its heart the
        lease would run out in silence, and without its lookout a cancel would be heard late."""
        failure = None if companion.cancelled() else companion.exception()
        if failure is not None:
            self._failure = failure
            self.wake_now()

    def wake(self) -> None:
        """There is something for the next checkpoint, or the next look."""
        self._dirty.set()

    def look_again(self) -> None:
        """This process has committed something that there may be segments of; another's commits are noticed."""
        self.appetite.look_again()
        self.closing.look_for_cleared()
        self.wake_now()

    def look_at_flags(self) -> None:
        """This process has asked for the end or a pause of batches; another's wishes are noticed."""
        self.lookout.look_now()

    def reload(self, vendor_limits: Mapping[str, LaneLimits]) -> None:
        """Vendors have other limits, keys or prices than before. Rows that are out end under those they went with, and
        batches that go to a vendor which is there no more go on under the limits that it had."""
        now_s = self._clock.now_s()
        used = {desk.key.vendor for desk in self.floor.desks.values()}
        gone = {name: limits for name, limits in self.settings.vendor_limits.items() if name in used}
        self.settings = replace(self.settings, vendor_limits={**gone, **vendor_limits})
        self.floor.reload(self.settings, now_s)
        self.heart.beat_early()  # limits are shared
        for desk in self.floor.desks.values():
            desk.probe_at_s = now_s  # what it pauses for may be mended
        self.opening.open_anew()
        self.look_again()

    def wake_now(self) -> None:
        self._urgent = True
        self._dirty.set()
        self._stirred.set()

    def view(self) -> WorkerView:
        """Live figures for a screen; no truth."""
        now_s = self._clock.now_s()
        lanes = tuple(
            LaneView(
                lane=str(desk.key),
                in_flight=desk.lane.in_flight,
                limit=desk.lane.limit,
                waiting=_waiting_text(desk, now_s),
            )
            for desk in self.floor.desks.values()
            if desk.concerns
        )
        return WorkerView(
            in_flight=self.sender.in_flight,
            answered=self.sender.answered,
            retries_waiting=sum(len(segment.waiting) for segment in self.floor.segments.values()),
            lanes=lanes,
            note=self.note,
            drained=self.standing_by,
            idle_looks=0 if self.floor.segments or self.sender.in_flight else self.appetite.idle_looks,
        )

    # ----------------------------------------------------------------------------------------------------- the loop

    async def run(self) -> None:
        """Works until stopped, until its batch has ended or is paused (`only_batch`), or until nothing is left
        (`until_idle`). Raises VendorUnavailable (only_batch) and StoreError; nothing is lost by either. After
        WorkerGone another worker may begin in this one's place."""
        store = self.parts.store
        await self.heart.begin(host=self._host, pid=self._pid)
        self.begun = True
        heart = self._loop.create_task(self.heart.run(), name=f"heartbeat {self.identity}")
        looking = self._loop.create_task(self.lookout.run(), name=f"lookout {self.identity}")
        for companion in (heart, looking):
            companion.add_done_callback(self._companion_ended)
        self._dirty.set()
        try:
            while True:
                await self._turn()
                if isinstance(self._failure, NotNow):
                    self.stop(grace=False)  # what it holds is given back before the reason goes up
                elif self._failure is not None:
                    await self._turn_last()
                    raise self._failure
                if self._finished():
                    break
                await self._until_due()
            heart.cancel()
            if self.calls is not None:
                await self.calls.flush()
            await self.parts.writer.do(lambda: store.end_worker(self.identity))
            if self._failure is not None:
                raise self._failure
        finally:
            self.ended = True
            heart.cancel()
            looking.cancel()
            if self.calls is not None:
                self.calls.stop(late=True)
            self.opening.cancel()
            self.sender.sending = False
            for segment in list(self.floor.segments.values()):
                self.sender.abort(segment)
            for desk in self.floor.desks.values():
                if desk.timer is not None:
                    desk.timer.cancel()

    async def _turn_last(self) -> None:
        """Of a worker that was taken for dead: what came while it learned of that was paid for, and is counted."""
        if isinstance(self._failure, WorkerGone):
            with suppress(StoreError):
                await self._turn()

    async def _until_due(self) -> None:
        """Waits for a reason to checkpoint, then for the checkpoint's moment unless it is urgent. One that only brings
        answers waits for the whole interval, one that rows have to be reserved by for a part of it."""
        if not self._dirty.is_set():
            await self._wait(self._dirty, self._patience_s())
        self._dirty.clear()
        while not self._urgent and self.sender.in_flight and not self.sender.too_many:
            due_s = self.landing.soonest_s if self.sender.starved else self.landing.next_s
            delay_s = due_s - self._clock.now_s()
            if delay_s <= 0:
                break
            self._stirred.clear()
            await self._wait(self._stirred, delay_s)
        self._urgent = False

    async def _wait(self, event: asyncio.Event, at_most_s: float) -> None:
        try:
            async with asyncio.timeout(at_most_s):
                await event.wait()
        except TimeoutError:
            pass

    def _patience_s(self) -> float:
        now_s = self._clock.now_s()
        patience_s = self.settings.idle_poll_s if self.floor.segments or not self.claims else self.settings.wake_poll_s
        return max(0.001, min(patience_s, self.closing.next_due_s(now_s) - now_s))

    async def _turn(self) -> None:
        now_s = self._clock.now_s()
        if self.claims and not self.floor.segments:
            self.appetite.look_out()
        self.lookout.keep()
        self.sender.sending = not self.stopping and now_s < self.sender.send_until_s
        if self.stopping and self.calls is not None:
            self.calls.stop(late=now_s >= self.stop_until_s)
        await self.closing.tidy(now_s)
        if self.sender.sending:
            await self.followers.settle(now_s)
        proposal = self._propose(now_s)
        if proposal.empty:
            return
        self.parts.step("before checkpoint")
        landed = await self.landing.land(proposal)
        self.parts.step("after checkpoint")
        self._apply(proposal, landed)

    # ------------------------------------------------------------------------------------------------------ propose

    def _propose(self, now_s: float) -> Proposal:
        self.sender.starved = False
        self.sender.book_held(now_s)
        for desk in self.floor.desks.values():
            self.sender.count_plain(desk)
        changed = self.sender.changed
        if self.sender.sending:
            for desk in self.floor.desks.values():
                desk.release_due(now_s)
            suspect = self.floor.find_suspect(now_s)
            if suspect is not None:
                changed.update(dict.fromkeys(self.floor.isolate(*suspect)))
            else:
                for desk in self.floor.desks.values():
                    if desk.vendor is not None and not desk.blocked:
                        desk.reserve(now_s, self.landing.interval_s)
        for segment in self.floor.segments.values():
            if segment.becoming_ready:
                changed[segment] = None
        self._look(now_s)
        drafts = [segment.take_changes() for segment in changed]
        changed.clear()
        for draft in drafts:
            self.closing.mark(draft)
        proposal = Proposal(
            worker=self.identity,
            number=self.landing.number + 1,
            now_ms=self._clock.now_ms(),
            drafts=drafts,
            claim=self.appetite.request(now_s),
            allowances=budget.requests(self.floor.contexts.values(), now_s),
            pauses=self.closing.take_pauses(),
            known_batches=frozenset(self.floor.contexts),
        )
        for context in self.floor.contexts.values():
            if context.gate_passed:
                context.gate_passed = False
                proposal.gate_passed.append(context.batch_id)
            if context.spent_picousd:
                proposal.spent[context.batch_id] = context.spent_picousd
                context.spent_picousd = 0
        self.sender.landing_bytes = self.sender.answer_bytes
        self.sender.answer_bytes = 0
        if self.sender.too_many:
            self.sender.book_held(now_s)
            self._dirty.set()  # they are for the next checkpoint, which is due at once
        return proposal

    def _look(self, now_s: float) -> None:
        """Names one segment of each batch now and then, so that its signals come back although nothing changed."""
        if now_s - self._looked_s < LOOK_EVERY_S:
            return
        self._looked_s = now_s
        seen = {segment.key.batch_id for segment in self.sender.changed}
        for segment in self.floor.segments.values():
            if segment.key.batch_id not in seen and not segment.lost:
                seen.add(segment.key.batch_id)
                self.sender.changed[segment] = None

    # -------------------------------------------------------------------------------------------------------- apply

    def _apply(self, proposal: Proposal, landed: Landed) -> None:
        now_s = self._clock.now_s()
        result = landed.result
        floor = self.floor
        self.sender.landing_bytes = 0
        for draft in proposal.drafts:
            segment = draft.segment
            if segment.key in result.lost:
                self.closing.lose(segment)
                continue
            context = segment.context
            context.rows_ended += draft.outcomes
            if context.spec.stop_after is not None and not COUNTED_BYTES.isdisjoint(draft.tally.counts):
                context.failed_anew = True
            self.followers.landed(draft)
            for entry in draft.becoming_ready:
                entry[0].line.ready.append(entry)
            if draft.outcomes:
                segment.window = 0
            if segment.suspects:
                for record in draft.records:
                    segment.suspects.pop(record.row, None)
            if draft.open == 0 or draft.release or draft.closed_as is not None:
                floor.forget(segment)
        for batch in landed.batches.values():
            floor.enter(batch).since_s = now_s
        for claimed in result.claimed:
            self.followers.opened(floor.open(claimed, now_s))
        self.appetite.answered(proposal.claim, result, now_s)
        budget.give_all(floor.contexts, result, stopping=self.stopping)
        self.closing.signalled(result.signals, now_s)
        self._leave_batches(result.signals, now_s)
        for desk in list(floor.desks.values()):
            if desk.vendor is None and not desk.opening and desk.lines and not desk.blocked:
                self.opening.open(desk)
            self.sender.schedule_waiting(desk, now_s)
            self.sender.pump(desk, now_s)
        if result.claimed:
            self.wake_now()  # reserve at once: nothing of a claimed segment can be sent before

    def _leave_batches(self, signals: Mapping[str, BatchSignals], now_s: float) -> None:
        """Forgets batches of which nothing is held, unless a blocked lane of theirs still has to be told of."""
        blocked = {text for text, desk in self.floor.desks.items() if desk.blocked}
        waiting = {pair[0] for pair, lanes in self.floor.lane_sets.items() if not blocked.isdisjoint(lanes)}
        for context in list(self.floor.contexts.values()):
            told = context.paused or context.closing is not None or context.batch_id not in waiting
            if told and not (context.segments or context.in_flight or context.allowance_picousd):
                self.floor.leave(context, now_s)
                if (trace := self.parts.trace) is not None:
                    signal = signals.get(context.batch_id)
                    settled = signal is not None and signal.settled
                    ended_ms, duration_s = self._clock.now_ms(), now_s - context.since_s
                    trace(batch_span(context, settled=settled, ended_ms=ended_ms, duration_s=duration_s))

    # ----------------------------------------------------------------------------------------------------- the ends

    def _finished(self) -> bool:
        if self.floor.segments or self.sender.in_flight or self.sender.changed:
            return False
        if self.calls is not None and self.calls.busy:
            return False
        if any(context.allowance_picousd for context in self.floor.contexts.values()):
            return False
        if self.stopping:
            return True
        if self.only_batch:
            return self.closing.only_batch_is_over
        return self._until_idle and self.appetite.idle_looks > 0
