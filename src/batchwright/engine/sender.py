"""Sends what may be sent: from a desk's ready rows through its lane to its vendor, and books what comes back.

Runs in callbacks on the loop, never waits, and changes nothing durable. The hot path of a row is `pump` ->
(vendor) -> `ended` -> `_go_on` -> `book_held`, `pump`.
"""

from __future__ import annotations

import math
from asyncio import TimerHandle
from collections.abc import Callable
from functools import partial
from typing import cast

from batchwright.core import row_map
from batchwright.core.errors import told_of_fault
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.pricing import worst_case
from batchwright.core.records import InputRow, Record
from batchwright.engine.attempt import Attempt, Attempts, row_tokens
from batchwright.engine.desk import BatchLine, LaneDesk
from batchwright.engine.filled_call import FilledCall
from batchwright.engine.open_segment import OpenSegment
from batchwright.engine.room import TIMES_FREE
from batchwright.engine.worker_settings import CHECKPOINT_RECORD_BYTES, WorkerSettings
from batchwright.ports.clock import Clock
from batchwright.ports.observer import WorkerFigures
from batchwright.ports.row_files import RowFiles
from batchwright.ports.vendor import Answer, GroupCall, GroupVendor, RowAsk, Send, Vendor, VendorCall

USUAL_OVER = 16
"""Answers that the running mean of their size goes back over."""
SOFT_OUTPUT_TOKENS = 1024
"""Taken for the output of a row that names no bound, under a soft cap; it is a guess and bounds nothing."""

CallSoon = Callable[[Callable[[], None]], object]
CallLater = Callable[[float, Callable[[LaneDesk], None], LaneDesk], TimerHandle]

SHARED_BYTES = 256
"""About what a record takes beside its answer: of rows that share a failure there may be very many at once."""


class Sender:
    def __init__(
        self,
        *,
        settings: WorkerSettings,
        attempts: Attempts,
        clock: Clock,
        call_soon: CallSoon,
        call_later: CallLater,
        wake: Callable[[], None],
        hurry: Callable[[], None],
        report: Callable[[str], None],
        figures: WorkerFigures,
        files: RowFiles,
    ) -> None:
        self._settings = settings
        self._attempts = attempts
        self._clock = clock
        self._call_soon = call_soon
        self._call_later = call_later
        self._wake = wake
        self._hurry = hurry
        """The next checkpoint is wanted before its time."""
        self._report = report
        self._figures = figures
        self._files = files
        self.changed: dict[OpenSegment, None] = {}
        """Segments that have something for the next checkpoint, in the order they changed."""
        self.sending = True
        self.send_until_s = 0.0
        """Until when the lease is known to hold. Asked at every send: a commit may hang for longer than the lease,
        while answers that come in make room for rows that another worker has by then."""
        self.in_flight = 0
        self.grouped = 0
        """Of these, rows at batch APIs."""
        self.answered = 0
        self.flight_bytes = 0
        self.answer_bytes = 0
        """Answers booked since the last snapshot."""
        self.landing_bytes = 0
        """Answers in the checkpoint that is under way."""
        self.usual_answer_bytes = 0.0
        """A running mean: what is out now will be answered by about so much each, and none of it can be put off."""
        self._to_pump: dict[LaneDesk, None] = {}
        """Desks at which rows have ended since the last `_go_on`."""
        self._going_on = False
        """`_go_on` has been asked for."""
        self.held: list[tuple[Attempt, Answer]] = []
        """Answers that have come and are not booked."""
        self.too_many = False
        """Some of them would make the next checkpoint too large, and wait until it is taken."""
        self.held_bytes = 0
        self.starved = False
        """A desk has had no reserved row for the room it has, since the last checkpoint was begun."""

    def pump(self, desk: LaneDesk, now_s: float) -> None:
        """Sends the desk's ready rows until its lane, a bound or the rows say stop; calls go before them."""
        if desk.callers and not self._serve(desk, now_s):
            return
        vendor = desk.vendor
        if vendor is None or not self.sending or now_s >= self.send_until_s or desk.quarantine is not None:
            return
        desk.ask_costs_anew()
        lane = desk.lane
        room_bytes = self._settings.answer_bytes_max - self.answer_bytes - self.landing_bytes - self.held_bytes
        while desk.groups or self.in_flight <= self.grouped or self._live * self.usual_answer_bytes <= room_bytes:
            line = desk.next_ready()
            if line is None:
                if not self.starved and desk.starves:
                    self.starved = True
                    self._hurry()
                self._wake()
                return
            queue, row = line.ready[0]
            entry = queue.segment.rows[row]
            assert entry is not None
            size = entry.sent_bytes if entry.files else len(entry.body)
            if lane.in_flight and desk.flight_bytes + size > TIMES_FREE * (
                self._settings.flight_bytes_max - self.flight_bytes - size
            ):
                return
            context = line.context
            held_picousd = 0
            if context.needs_allowance:
                # The lane is asked before the budget: nothing is drawn for rows that cannot go.
                wait_s = lane.held_back_s(now_s)
                if wait_s > 0:
                    self._later(desk, now_s, wait_s)
                    return
                held_picousd = self._hold(line, entry)
                if held_picousd < 0:
                    continue
            tokens = row_tokens(entry)
            wait_s = lane.admit(now_s, tokens)
            if wait_s > 0:
                self._later(desk, now_s, wait_s)
                return
            line.ready.popleft()
            attempt = Attempt(self.ended, desk, queue, row)
            attempt.size = size
            attempt.tokens = tokens
            attempt.started_s = now_s
            if held_picousd:
                attempt.worst_picousd = held_picousd
                context.allowance_picousd -= held_picousd
            queue.segment.flights[row] = attempt
            context.in_flight += 1
            self.in_flight += 1
            self.flight_bytes += size
            desk.flight_bytes += size
            desk.sent.count += 1
            if desk.groups or entry.files:
                attempt.call = self._send_apart(vendor, attempt, entry)
            else:
                attempt.call = vendor.send(entry.endpoint, entry.body, attempt.end)

    @property
    def _live(self) -> int:
        """Rows out whose answers come when they come: those of a batch API are taken from it as there is room."""
        return self.in_flight - self.grouped

    def _send_apart(self, vendor: Vendor, attempt: Attempt, entry: InputRow) -> VendorCall:
        """A row that goes to a batch API, or whose body names files."""
        send: Send = vendor.send
        if attempt.desk.groups:
            self.grouped += 1
            segment, row = attempt.queue.segment, attempt.row
            attempts = segment.base_record(row).attempts
            ask = RowAsk(segment.first_index + row, attempts, entry.custom_id or "", entry.model, self.has_room)
            send = partial(cast(GroupVendor, vendor).send_row, ask)
        if entry.files:
            return FilledCall(send, entry, attempt.end, self._files)
        return send(entry.endpoint, entry.body, attempt.end)

    def has_room(self) -> bool:
        """Whether answers that can wait may come now."""
        return self.answer_bytes + self.landing_bytes + self.held_bytes < CHECKPOINT_RECORD_BYTES

    def _serve(self, desk: LaneDesk, now_s: float) -> bool:
        """Lets calls go before any row. False: one waits for room, and no row may overtake it.

        Neither a spent lease nor a worker that stops holds a call back: it belongs to no segment.
        """
        callers, lane = desk.callers, desk.lane
        while callers:
            if desk.vendor is None and not desk.blocked:
                return False  # it is being opened
            opened = desk.vendor is not None and desk.quarantine is None
            wait_s = lane.admit(now_s, callers[0].tokens) if opened else math.inf
            if desk.vendor is not None and wait_s <= 0:
                callers.popleft().go(desk.vendor, now_s)
            elif desk.blocked or lane.paused_reason or lane.in_outage:
                callers.popleft().refuse(wait_s)
            else:
                self._later(desk, now_s, wait_s)
                return False
        return True

    def _hold(self, line: BatchLine, row: InputRow) -> int:
        """What the row is to hold of its batch's allowance; -1: it is not covered, and the batch sends nothing until
        more is drawn (or the line, while too few answers tell what such a row costs). Under a key's
        budget alone a row whose bound nobody knows goes with what there is, as the only one of its batch then: a guess
        about it does not hold back what may still be spent."""
        context, desk = line.context, line.desk
        bound_picousd = bound_of(desk, row)
        if bound_picousd is None and 0 <= desk.dearest.may_be_out <= desk.lane.in_flight:
            line.waits_for_cost = True
            return -1
        held_picousd = likely_cost(desk, row.sent_bytes, row.output_tokens) if bound_picousd is None else bound_picousd
        if held_picousd <= context.allowance_picousd:
            return held_picousd
        guessed = bound_picousd is None and not context.has_cap
        if guessed and context.allowance_picousd and not context.in_flight and context.all_drawn:
            return context.allowance_picousd
        context.worst_next_picousd = held_picousd
        context.guessed_next = guessed
        context.may_send = False
        self._wake()
        return -1

    def share(self, segment: OpenSegment, row: int, outcome: Record) -> None:
        """As `Attempts.share`."""
        self._attempts.share(segment, row, outcome)
        self.answer_bytes += len(outcome.body) + SHARED_BYTES
        self.changed[segment] = None

    def ended(self, attempt: Attempt, answer: Answer) -> None:
        """An attempt's callback: what it means is found out once for all that ended in one turn of the loop."""
        self.held.append((attempt, answer))
        self.held_bytes += len(answer.body)
        if not self._going_on:
            self._going_on = True
            self._call_soon(self._go_on)

    def _go_on(self) -> None:
        """Books what one turn of the loop brought, then sends in its stead, in one go. A vendor's process is woken by
        the first of these requests and then finds the others; woken for each it costs both sides twice as much."""
        self._going_on = False
        now_s = self._clock.now_s()
        self.book_held(now_s)
        self._wake()
        while self._to_pump and self.sending:
            desk, _ = self._to_pump.popitem()
            self.schedule_waiting(desk, now_s)
            self.pump(desk, now_s)

    def book_held(self, now_s: float, *, every: bool = False) -> None:
        """Books the answers that have come, as many as the next checkpoint takes; `every` one before an end."""
        held = self.held
        now_ms = self._clock.now_ms()
        taken = 0
        for attempt, answer in held:
            size = len(answer.body)
            if self.answer_bytes and self.answer_bytes + size > CHECKPOINT_RECORD_BYTES and not every:
                break
            taken += 1
            self.answer_bytes += size
            self.usual_answer_bytes += (size - self.usual_answer_bytes) / USUAL_OVER
            self._book(attempt, answer, now_s, now_ms)
        if taken:
            self.held = held[taken:]
            self.held_bytes -= sum(len(answer.body) for _, answer in held[:taken])
        self.too_many = bool(self.held)
        if self.too_many:
            self._hurry()

    def _book(self, attempt: Attempt, answer: Answer, now_s: float, now_ms: int) -> None:
        segment = attempt.queue.segment
        self._land(attempt)
        self.answered += 1
        try:
            self._attempts.book(attempt, answer, now_s, now_ms)
        except Exception as error:
            # One row's odd answer must not take the others down; the row ends, and the fault is told.
            text = told_of_fault(error)
            self._report(f"row {segment.first_index + attempt.row} of {segment.key.batch_id}: {text}")
            if segment.row_map[attempt.row] == row_map.RESERVED:
                self._attempts.fail_unsent(segment, attempt.row, FailureKind.INTERNAL, text)
        if answer.kind is None and segment.row_map[attempt.row] == row_map.PLAIN_SUCCESS:
            attempt.desk.plain_answers += 1
        else:
            self._count(attempt, answer)
        self.changed[segment] = None
        self._to_pump[attempt.desk] = None

    def _land(self, attempt: Attempt) -> None:
        """It is out no more."""
        segment = attempt.queue.segment
        del segment.flights[attempt.row]
        segment.context.in_flight -= 1
        self.in_flight -= 1
        self.grouped -= attempt.desk.groups
        self.flight_bytes -= attempt.size
        attempt.desk.flight_bytes -= attempt.size

    def count_plain(self, desk: LaneDesk) -> None:
        """What nearly every attempt comes to is counted at once for all since the last time."""
        count, desk.plain_answers = desk.plain_answers, 0
        if count:
            vendor, model = desk.answered_by, desk.key.model
            self._figures.attempt_ended(vendor, model, "", count)
            self._figures.row_ended(vendor, model, row_map.FLAG_BYTES[Flag.PLAIN], count)

    def _count(self, attempt: Attempt, answer: Answer) -> None:
        """For whoever watches this process; what is true of batches stands in their tallies."""
        vendor, model = attempt.desk.answered_by, attempt.desk.key.model
        self._figures.attempt_ended(vendor, model, answer.kind.value if answer.kind is not None else "")
        byte = attempt.queue.segment.row_map[attempt.row]
        if row_map.is_end(byte):
            self._figures.row_ended(vendor, model, byte)

    def abort(self, segment: OpenSegment) -> None:
        """Drops the segment's flights; each may have been paid for, as after a lost connection."""
        now_s = self._clock.now_s()
        if segment.context.closing is None:
            self.leave(segment)
        self.book_held(now_s, every=True)
        for attempt in list(segment.flights.values()):
            assert attempt.call is not None
            attempt.call.abort()
            attempt.desk.lane.withdraw(attempt.tokens)
            self._land(attempt)
            self._attempts.drop(attempt, now_s, self._clock.now_ms())
            self.changed[segment] = None

    def leave(self, segment: OpenSegment) -> None:
        """Lets go of those of the segment's rows that are at a batch API: they stay there, in no doubt, for whoever
        goes on with it."""
        grouped = [attempt for attempt in segment.flights.values() if attempt.desk.groups]
        if not grouped:
            return
        self.book_held(self._clock.now_s(), every=True)
        for attempt in grouped:
            if segment.flights.get(attempt.row) is not attempt:
                continue  # its answer has just been booked
            cast(GroupCall, attempt.call).leave()
            attempt.desk.lane.withdraw(attempt.tokens)
            self._land(attempt)
            self._attempts.withdraw(attempt)
            self.changed[segment] = None

    def _later(self, desk: LaneDesk, now_s: float, wait_s: float) -> None:
        """One timer a desk, for the earliest moment anything there may go on; none for what no clock brings."""
        if wait_s == math.inf:
            return
        at_s = now_s + wait_s
        if desk.timer is not None:
            if desk.timer_at_s <= at_s:
                return
            desk.timer.cancel()
        desk.timer_at_s = at_s
        desk.timer = self._call_later(wait_s, self._due, desk)

    def _due(self, desk: LaneDesk) -> None:
        desk.timer = None
        now_s = self._clock.now_s()
        if desk.release_due(now_s):
            self._wake()
        self.schedule_waiting(desk, now_s)
        self.pump(desk, now_s)

    def schedule_waiting(self, desk: LaneDesk, now_s: float) -> None:
        """Makes sure that a timer is set for the desk's earliest waiting row."""
        if desk.waiting:
            self._later(desk, now_s, max(0.001, desk.waiting[0][0] - now_s))


def bound_of(desk: LaneDesk, row: InputRow) -> int | None:
    """The most that a row can cost: on all lanes it may go to or, where that has no bound, on this one. None: no bound,
    or no price."""
    return row.worst_picousd or bound_here(desk, row.sent_bytes, row.output_tokens)


def bound_here(desk: LaneDesk, body_bytes: int, output_tokens: int) -> int | None:
    """The most that a request can cost there; None: nobody knows. What is free costs nothing."""
    price = desk.price
    if price is None:
        return None
    return 0 if price.zero_rated else worst_case(price, body_bytes, output_tokens)


def likely_cost(desk: LaneDesk, body_bytes: int, output_tokens: int) -> int:
    """What a request of no known bound is taken to cost there: as much as the dearest did lately, a longish answer at
    least, and where there is no price the least there is, so that it waits too once nothing is left."""
    price = desk.price
    longish = 1 if price is None else worst_case(price, body_bytes, output_tokens or SOFT_OUTPUT_TOKENS) or 1
    return max(longish, desk.dearest.picousd)
