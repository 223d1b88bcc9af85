"""How batches and segments come to an end in a worker, other than by their last row: cancel, deadline, pause, stop,
a lane that is paused for good, a spent budget, a lost lease.

A segment is given back or closed in two steps. It is *retired* at once: its rows leave the desks, and those that are
reserved but not at a vendor go back to pending. When nothing of it is out any more (or the grace is over, and what is
out is dropped: each such row has an attempt in doubt), the next checkpoint writes the release or the closing.
"""

from __future__ import annotations

import math
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, cast

from batchwright.core.batch_spec import LaneKey
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import NoSuchBatch, VendorUnavailable, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.gate import GateRule
from batchwright.core.quarantine import Quarantine
from batchwright.core.spent_out import reason_kept
from batchwright.engine.batch_context import BatchContext
from batchwright.engine.desk import LaneDesk
from batchwright.engine.open_segment import OpenSegment, SegmentDraft
from batchwright.engine.room import Room
from batchwright.ports.store import BatchSignals, LanePause, Release, SegmentKey
from batchwright.ports.vendor import GroupVendor

if TYPE_CHECKING:
    from batchwright.engine.worker import Worker

STILL_FOR_MS = 5_000
"""For how long a segment is parked whose lanes stand still."""


RECALLED = "its deadline is near: what is not back goes to the vendor itself"


class Closing:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker
        self._floor = worker.floor
        self._sender = worker.sender
        self._clock = worker.parts.clock
        self._store = worker.parts.store
        self._writer = worker.parts.writer
        self._releases: dict[SegmentKey, int] = {}
        """Segments the next checkpoint gives back: not before which moment (0: at once)."""
        self._closings: dict[SegmentKey, FailureKind] = {}
        self._pauses: list[tuple[str, Pause]] = []
        self.only_batch_is_over = False
        """The one batch that the worker is for was seen settled or paused."""
        self._look_for_blocked = False
        self._look_for_cleared = False
        self._opened: list[tuple[str, str]] = []
        self._renewal_look_s = 0.0
        """Vendors and models that a person has opened again; batches that this worker paused meanwhile are to go on."""
        self._version = 0
        """Of the store, when lane pauses were last read."""

    def look_for_cleared(self) -> None:
        """This very process may have cleared a lane's pause: its own commits do not show."""
        self._look_for_cleared = True

    # ---------------------------------------------------------------------------------------------------- from apply

    def signalled(self, signals: dict[str, BatchSignals], now_s: float) -> None:
        """What the last checkpoint said of the batches held."""
        for batch_id, signal in signals.items():
            if batch_id == self._worker.only_batch:
                self.only_batch_is_over = bool(signal.settled or signal.paused)
            context = self._floor.contexts.get(batch_id)
            if context is None:
                continue
            allowed = not self._worker.stopping and not context.worst_next_picousd
            context.signal(signal, sending_allowed=allowed)
            if signal.closing is not None and context.closing is None:
                self._begin_closing(context, signal.closing, now_s)

    def lose(self, segment: OpenSegment) -> None:
        """The segment's epoch is another's: what is still out is only counted, as orphan spend."""
        segment.lost = True
        self._sender.leave(segment)
        self._floor.unready(segment)
        segment.new_records = []
        self._drop_if_empty(segment)

    def quarantined(self, quarantines: tuple[Quarantine, ...]) -> None:
        """Lanes that a person has closed, in place of those before: rows that are out come back and count, others do
        not go. Where one was opened again, what waits may go on."""
        now_s = self._clock.now_s()
        kept = {(closed.vendor, closed.model) for closed in quarantines}
        before = ((closed.vendor, closed.model) for closed in self._floor.quarantines)
        self._opened += [names for names in before if names not in kept]
        for desk in self._floor.close_lanes(quarantines):
            if desk.quarantine is not None:
                self._sender.changed.update(dict.fromkeys(desk.unreserve()))
            self._sender.pump(desk, now_s)  # calls that wait there are refused, or go
        self._worker.look_again()

    def park(self, segment: OpenSegment, not_before_ms: int) -> None:
        """Gives a segment back of which nothing is out, until this moment."""
        self._give_back(segment, not_before_ms=not_before_ms)

    def nothing_claimable(self) -> None:
        self._look_for_blocked = True

    # --------------------------------------------------------------------------------------------------------- tidy

    async def tidy(self, now_s: float) -> None:
        if self._worker.stopping:
            self._stop(now_s)
        await self._expire(now_s)
        for context in list(self._floor.contexts.values()):
            if 0 < context.recall_ms <= self._clock.now_ms():
                for desk in context.desks.values():
                    if desk.groups and not desk.recalled:
                        desk.recalled = RECALLED
                        _recall(desk, RECALLED)
            if context.gate_shut:
                await self._shut_gate(context, now_s)
            if context.failed_anew and context.closing is None:
                await self._count_failures(context, now_s)
            if context.budget_spent:
                context.budget_spent = False
                cause = PauseCause.KEY_BUDGET if context.key_short else PauseCause.BUDGET
                self._pause(context, cause, reason_kept(context.least_next_picousd))
            if context.closing is not None:
                self._close(context, now_s)
            elif context.paused:
                for segment in self._floor.segments_of(context):
                    self._give_back(segment)
        await self._tidy_lanes(now_s)
        for segment in [segment for segment in self._floor.segments.values() if segment.lost or segment.retired]:
            if segment.lost:
                self._drop_if_empty(segment)
            elif segment.context.closing is None:
                self._give_back(segment)  # also when what it was retired for is over: its rows have left the desks
        room = Room(self._floor, self._worker.settings)
        if room.full_vendors or room.full_lanes:
            self._park_waiting(now_s)
            self._park_still(now_s)

    def next_due_s(self, now_s: float) -> float:
        """The next moment at which `tidy` has something to do by the clock."""
        due_s = math.inf
        now_ms = self._clock.now_ms()
        for context in self._floor.contexts.values():
            if context.closing is not None:
                due_s = min(due_s, context.closing_until_s)
            elif context.deadline_ms:
                due_ms = context.recall_ms if context.recall_ms > now_ms else context.deadline_ms
                due_s = min(due_s, now_s + max(0, due_ms - now_ms) / 1000)
        if self._worker.stopping:
            due_s = min(due_s, self._worker.stop_until_s)
        return due_s

    def mark(self, draft: SegmentDraft) -> None:
        """Writes a pending release or closing into a segment's draft."""
        segment = draft.segment
        not_before_ms = self._releases.pop(segment.key, None)
        closed_as = self._closings.pop(segment.key, None)
        if segment.lost or draft.open == 0:
            return
        if closed_as is not None:
            draft.closed_as = closed_as
        elif not_before_ms is not None:
            draft.release = Release.PARKED if not_before_ms else Release.WAITING
            draft.not_before_ms = not_before_ms
            draft.lane_set = segment.lane_set

    def take_pauses(self) -> list[tuple[str, Pause]]:
        pauses, self._pauses = self._pauses, []
        return pauses

    def blocked_pairs(self) -> frozenset[tuple[str, str]]:
        """(batch, lane set) pairs of which every lane is blocked until a person acts."""
        blocked = {text for text, desk in self._floor.desks.items() if desk.blocked}
        return frozenset(pair for pair, lanes in self._floor.lane_sets.items() if blocked.issuperset(lanes))

    # ------------------------------------------------------------------------------------------------- whole batches

    def _begin_closing(self, context: BatchContext, kind: FailureKind, now_s: float) -> None:
        settings = self._worker.settings
        context.closing = kind
        context.may_send = False
        grace_s = settings.deadline_grace_s if kind is FailureKind.EXPIRED else settings.grace_s
        context.closing_until_s = now_s + grace_s
        for desk in context.desks.values():
            _recall(desk, f"the batch ends ({kind.value})")
        self._worker.wake_now()

    def _close(self, context: BatchContext, now_s: float) -> None:
        assert context.closing is not None
        for segment in self._floor.segments_of(context):
            if self._retire(segment, late=now_s >= context.closing_until_s):
                self._closings[segment.key] = context.closing

    async def _expire(self, now_s: float) -> None:
        now_ms = self._clock.now_ms()
        for context in list(self._floor.contexts.values()):
            if context.deadline_ms and now_ms >= context.deadline_ms and context.closing is None:
                await self._request_close(context, FailureKind.EXPIRED, now_s)

    async def _request_close(self, context: BatchContext, kind: FailureKind, now_s: float) -> None:
        """Sets the flag and closes what no worker holds; what this one holds follows within the grace."""
        batch_id = context.batch_id
        self._begin_closing(context, kind, now_s)

        def close() -> None:
            with suppress(WrongState):  # somebody else ended it: that is what was wanted
                self._store.request_close(batch_id, kind, self._clock.now_ms())
                while self._store.close_step(batch_id, self._clock.now_ms()):
                    pass

        await self._writer.do(close)

    async def _shut_gate(self, context: BatchContext, now_s: float) -> None:
        sentence, context.gate_shut, context.gate = context.gate_shut, "", None
        if context.spec.gate is GateRule.STOP:
            await self._request_close(context, FailureKind.STOPPED, now_s)
        else:
            self._pause(context, PauseCause.GATE, sentence)

    async def _count_failures(self, context: BatchContext, now_s: float) -> None:
        """By what all workers have made durable: what is out then, at each of them, may fail beyond the limit."""
        context.failed_anew, limit = False, context.spec.stop_after
        if limit is None:
            return
        with suppress(NoSuchBatch):
            counts = await self._writer.do(partial(self._store.count_worked, context.batch_id))
            context.failed_anew = limit.may_wait(counts)
            if limit.is_reached(counts):
                await self._request_close(context, FailureKind.STOPPED, now_s)

    def _pause(self, context: BatchContext, cause: PauseCause, reason: str, lane: str = "") -> None:
        pause = Pause(cause=cause, reason=reason, since_ms=self._clock.now_ms(), lane=lane)
        self._pauses.append((context.batch_id, pause))
        context.paused = True
        context.may_send = False
        self.only_batch_is_over |= context.batch_id == self._worker.only_batch

    # ------------------------------------------------------------------------------------------------------ segments

    def _retire(self, segment: OpenSegment, *, late: bool) -> bool:
        """See the module's docstring; true once nothing of the segment is out, so that it can be let go."""
        if segment.lost or segment.open == 0:
            return False
        if not segment.retired:
            segment.retired = True
            segment.lane_set = "\n".join(sorted(self._floor.open_lanes(segment))) or segment.lane_set
            self._floor.unready(segment)
            self._sender.changed[segment] = None
        if segment.flights and segment.context.closing is None:
            self._sender.leave(segment)
        if segment.flights and late:
            self._sender.abort(segment)
        if segment.flights or segment.open == 0:
            return False
        self._sender.changed[segment] = None
        return True

    def _give_back(self, segment: OpenSegment, *, late: bool = False, not_before_ms: int = 0) -> None:
        if self._retire(segment, late=late):
            self._releases[segment.key] = not_before_ms

    def _stop(self, now_s: float) -> None:
        for segment in list(self._floor.segments.values()):
            self._give_back(segment, late=now_s >= self._worker.stop_until_s)

    def _park_waiting(self, now_s: float) -> None:
        """Frees places: segments of which every open row waits for its next attempt are parked until the first may."""
        for segment in list(self._floor.segments.values()):
            if segment.waiting and len(segment.waiting) == segment.open:
                wait_s = min(segment.waiting.values()) - now_s
                self._give_back(segment, not_before_ms=self._clock.now_ms() + max(1, int(wait_s * 1000)))

    def _park_still(self, now_s: float) -> None:
        """Frees places: of lanes that stand still one segment each is kept, for the probes, and the others are parked;
        they would keep out rows of lanes that are well."""
        kept: set[LaneDesk] = set()
        for segment in list(self._floor.segments.values()):
            desks = {queue.line.desk for queue in segment.queues.values()}
            if segment.flights or not desks or not all(desk.lane.stands_still(now_s) for desk in desks):
                continue
            if desks <= kept:
                self._give_back(segment, not_before_ms=self._clock.now_ms() + STILL_FOR_MS)
            kept |= desks

    def _drop_if_empty(self, segment: OpenSegment) -> None:
        if segment.lost and not segment.flights and segment not in self._sender.changed:
            self._floor.forget(segment)

    # --------------------------------------------------------------------------------------------------------- lanes

    async def _tidy_lanes(self, now_s: float) -> None:
        """Makes lasting pauses known, lets a probe out when it is due, gives back what cannot be sent here."""
        while self._opened:
            await self._writer.do(partial(self._store.release_lanes, *self._opened.pop()))
            self._worker.look_again()
        cleared = await self._cleared_lanes()
        blocked: set[str] = set()
        for text, desk in list(self._floor.desks.items()):  # single calls add desks while this waits for the store
            lane = desk.lane
            if lane.paused_reason and not desk.known_pause:
                desk.known_pause = True
                desk.probe_at_s = now_s + self._worker.settings.lane_probe_s
                await self._write_lane_pause(text, lane.paused_reason)
            elif not lane.paused_reason and desk.known_pause and desk.successes:
                desk.known_pause = False
                await self._writer.do(partial(self._store.clear_lane, text))
            due = not self._worker.only_batch and now_s >= desk.probe_at_s
            if desk.quarantine is not None:
                due, cleared = False, cleared - {text}
            if lane.paused_reason and (due or text in cleared):
                desk.probe_at_s = now_s + self._worker.settings.lane_probe_s
                lane.probe()
                # Not cleared: another worker would take that for leave to probe as well, and this one for its leave.
                await self._writer.do(partial(self._store.release_lane, text))
                desk.probing = True
                desk.probe_mark = desk.answered
            if desk.probing and lane.paused_reason and desk.answered > desk.probe_mark:
                desk.probing = False  # the probe came back without success
                await self._write_lane_pause(text, lane.paused_reason)
            if desk.blocked:
                blocked.add(text)
                self._sender.changed.update(dict.fromkeys(desk.unreserve()))
        self._sender.changed.update(dict.fromkeys(self._worker.failover.relieve(now_s)))
        self._worker.heart.waits.look(now_s)
        self._worker.heart.shares.look(now_s)
        if not blocked:
            return
        await self._leave_renewed(now_s)
        for segment in list(self._floor.segments.values()):
            lanes = self._floor.open_lanes(segment) if segment.queues else ()
            if segment.queues and all(self._floor.desk(lane, segment.context, now_s).blocked for lane in lanes):
                self._give_back(segment)
        if self._look_for_blocked:
            self._look_for_blocked = False
            await self._pause_blocked_batches(blocked, now_s)

    async def _leave_renewed(self, now_s: float) -> None:
        """Batches that were blocked here and have another key by now are met anew. Others of this worker's go on with
        the keys they have: nobody changes these while a worker holds something of theirs."""
        if now_s < self._renewal_look_s:
            return
        self._renewal_look_s = now_s + self._worker.settings.idle_poll_s
        for context in list(self._floor.contexts.values()):
            if context.segments or not any(desk.blocked for desk in context.desks.values()):
                continue
            with suppress(NoSuchBatch):
                batch = await self._writer.do(partial(self._store.get_batch, context.batch_id))
                if batch.spec.destinations != context.spec.destinations and not context.segments:
                    for desk in context.desks.values():
                        self._worker.opening.lacking.pop(desk.name, None)
                    self._floor.leave(context, now_s)
                    self._worker.look_again()

    async def _cleared_lanes(self) -> frozenset[str]:
        """Lanes that are paused here and no more in the store: a person asked for them to be tried, or they worked for
        another worker."""
        desks = self._floor.desks.items()
        paused = {text for text, desk in desks if desk.known_pause and desk.lane.paused_reason and not desk.probing}
        version = self._store.data_version() if paused else self._version
        if not paused or (version == self._version and not self._look_for_cleared):
            return frozenset()
        self._version, self._look_for_cleared = version, False
        stored = await self._writer.do(self._store.lane_pauses)
        return frozenset(paused.difference(pause.lane for pause in stored))

    async def _write_lane_pause(self, lane: str, reason: str) -> None:
        now_ms = self._clock.now_ms()
        probe_at_ms = now_ms + int(self._worker.settings.lane_probe_s * 1000)
        pause = LanePause(lane=lane, reason=reason, since_ms=now_ms, probe_at_ms=probe_at_ms)
        await self._writer.do(lambda: self._store.pause_lane(pause))

    async def _pause_blocked_batches(self, blocked: set[str], now_s: float) -> None:
        """A batch whose open rows all go to lanes that are paused for good is paused for that reason."""
        for context in list(self._floor.contexts.values()):
            if context.paused or context.segments or context.closing is not None:
                continue
            batch_id = context.batch_id
            lane_sets = await self._writer.do(partial(self._store.open_lane_sets, batch_id))
            lanes = sorted({lane for lane_set in lane_sets for lane in lane_set.split("\n")})
            names = [self._floor.name_of(lane, context) for lane in lanes]
            if not lanes or not blocked.issuperset(names):
                continue
            lacking = [self._worker.opening.lacking[name] for name in names if name in self._worker.opening.lacking]
            if lacking:
                # Nothing is wrong with the batch: a process that has the key goes on with it.
                if self._worker.only_batch:
                    self._worker.fail(VendorUnavailable("; ".join(dict.fromkeys(lacking))))
            else:
                # One that a person closed is named first: it is for a person to open it.
                desks = [self._floor.desks[name] for name in names]
                at = next((at for at, desk in enumerate(desks) if desk.quarantine is not None), 0)
                self._pause(context, PauseCause.LANE, f"{_lane_name(lanes[at])}: {desks[at].blocked}", names[at])


def _recall(desk: LaneDesk, why: str) -> None:
    if desk.groups and desk.vendor is not None:
        cast(GroupVendor, desk.vendor).recall(why)


def _lane_name(lane: str) -> str:
    key = LaneKey.parse(lane)
    return f"{key.vendor}, {key.model}" if key.model else key.vendor
