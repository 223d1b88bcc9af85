"""One send of one row, and what becomes of the row when it ends: classify is the vendor's, decide is `core.retry`'s.

`Attempts` is the only place where a row moves on: to its end, or to wait for another attempt. It changes nothing that
is durable; the next checkpoint writes what it left in the segment.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from batchwright.core import row_map
from batchwright.core.answer_schema import MISMATCH_CODE
from batchwright.core.failures import KINDS, FailureKind, LaneSignal
from batchwright.core.gate import GateVerdict
from batchwright.core.met import add_met
from batchwright.core.records import REPAIR_NEXT, UNKNOWN, InputRow, Record, UsageKey, UsageSum
from batchwright.core.retry import Decision, decide
from batchwright.engine.booking import Money, money_of, tell_lane
from batchwright.engine.checked import AnswerCheck, behind_answer, ended_by_its_answer, noted
from batchwright.engine.desk import BatchLine, LaneDesk
from batchwright.engine.failover import MOVES_ON, Failover
from batchwright.engine.open_segment import UNTRIED, LaneQueue, OpenSegment
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.vendor import Answer, VendorCall

DAY_MS = 86_400_000
GATE_MESSAGE_CHARS = 300
"""Of the vendor's own sentence, in the reason why a gate shut."""

FAILS_ALIKE = frozenset({FailureKind.OVERLOADED, FailureKind.TIMEOUT, FailureKind.NETWORK})
"""What one row may meet each time although its lane is well. An address that cannot be reached is no row's fault."""

DROPPED = Answer(
    kind=FailureKind.NETWORK, code="dropped", message="the grace time was over before this row was answered"
)
"""How an attempt ends that we end ourselves: for all we know it was read, as when a connection is lost."""


class Attempt:
    """A row at a vendor. `end` is handed to the vendor as the callback: no closure and no task a row."""

    __slots__ = ("call", "desk", "owner", "queue", "row", "size", "started_s", "tokens", "worst_picousd")

    def __init__(self, owner: Callable[[Attempt, Answer], None], desk: LaneDesk, queue: LaneQueue, row: int) -> None:
        self.owner = owner
        self.desk = desk
        self.queue = queue
        self.row = row
        self.call: VendorCall | None = None
        self.size = 0
        self.started_s = 0.0
        self.tokens = 0
        self.worst_picousd = 0

    def end(self, answer: Answer) -> None:
        self.owner(self, answer)


class Attempts:
    """Books ended attempts into their segments."""

    def __init__(self, *, clock: Clock, chance: Chance, day_of: Callable[[int], str], failover: Failover) -> None:
        self._failover = failover
        self._clock = clock
        self._chance = chance
        self._day_of = day_of

    def book(self, attempt: Attempt, answer: Answer, now_s: float, now_ms: int) -> None:
        """The row's lane learns how it ended; the row ends, or waits for its next attempt; costs are counted. `now_s`
        is the loop's clock, `now_ms` the calendar's."""
        desk = attempt.desk
        desk.answered += 1
        if answer.kind is None and answer.limits is None and not desk.lane.counts_tokens:
            desk.lane.succeeded(now_s, attempt.started_s)
        elif desk.groups and answer.kind is not None and KINDS[answer.kind].lane is not LaneSignal.PAUSE:
            desk.lane.withdraw(attempt.tokens)  # it says nothing of pace
        else:
            tell_lane(
                desk,
                answer,
                tokens=attempt.tokens,
                started_s=attempt.started_s,
                now_s=now_s,
                chance=self._chance.random(),
                of_row=answer.kind in FAILS_ALIKE and _is_of_row(attempt),
            )
        self._move_on(attempt, answer, (now_s, now_ms))

    def drop(self, attempt: Attempt, now_s: float, now_ms: int) -> None:
        """We end the attempt ourselves: its row is in doubt, and says nothing of its lane or its batch."""
        gate, attempt.queue.segment.context.gate = attempt.queue.segment.context.gate, None
        self._move_on(attempt, DROPPED, (now_s, now_ms))
        attempt.queue.segment.context.gate = gate

    def withdraw(self, attempt: Attempt) -> None:
        """The row is left where it is: this attempt of it goes on, and is asked for again."""
        segment, context = attempt.queue.segment, attempt.queue.segment.context
        if context.needs_allowance:
            context.allowance_picousd += attempt.worst_picousd
        if not segment.lost:
            segment.clear(attempt.row)

    def _move_on(self, attempt: Attempt, answer: Answer, now: tuple[float, int]) -> None:
        desk = attempt.desk
        segment = attempt.queue.segment
        kind = answer.kind
        context = segment.context
        cost_picousd, unpriced, no_usage = money_of(desk, answer)
        if kind is None or cost_picousd:
            desk.dearest.note(cost_picousd)
        if segment.lost:
            usage_key = self._usage_key(attempt.queue.line, now[1])
            _count_usage(segment, usage_key, answer, (cost_picousd, unpriced, no_usage))
            segment.tally.cost_picousd += cost_picousd
            if context.needs_allowance:
                context.allowance_picousd += max(0, attempt.worst_picousd - cost_picousd)
            return
        row = attempt.row
        base = segment.base_record(row) if segment.notes or segment.previous_records else UNTRIED
        record = self._record(attempt, answer, base, now)
        if segment.away:
            record.lane = _lane_of(segment, row)
        record.cost_picousd += cost_picousd
        record.unpriced += unpriced
        record.no_usage += no_usage
        tally = segment.tally
        tally.attempts += 1
        if kind is FailureKind.UNREACHABLE or kind is FailureKind.INVALID_ROW:
            tally.unreached += 1
        if base.repair != REPAIR_NEXT and (base.used or base.rate_limits or _was_tried(segment, row)):
            tally.retries += 1
        tally.cost_picousd += cost_picousd
        tally.unpriced += unpriced
        tally.no_usage += no_usage
        _count_usage(segment, self._usage_key(attempt.queue.line, now[1]), answer, (cost_picousd, unpriced, no_usage))
        # Answered at a cost nobody can tell: under a cap it may have been the most. (A doubt below is the same charge.)
        # A key's budget counts what is known to be spent and what is out, and no doubt.
        worst_picousd = attempt.worst_picousd if context.has_cap else 0
        doubtful_picousd = worst_picousd if unpriced or no_usage else 0
        if kind is None:
            desk.successes += 1
            desk.newest_success_s = max(desk.newest_success_s, attempt.started_s)
            if context.check is None:
                record.byte = row_map.FLAG_BYTES[answer.flag]
                self._finish(segment, record)
            else:
                self._check(context.check, attempt, answer, record, now[0])
        elif self._after_failure(attempt, answer, (base, record), now[0]):
            tally.doubts += 1
            doubtful_picousd = worst_picousd
        tally.possible_picousd += doubtful_picousd
        if context.needs_allowance:
            left = cost_picousd + doubtful_picousd
            context.spent_picousd += left
            # A vendor may bill more than the row's worst case, and a soft cap knows none: then nothing is left of it.
            context.allowance_picousd = max(0, context.allowance_picousd + attempt.worst_picousd - left)

    def _check(self, check: AnswerCheck, attempt: Attempt, answer: Answer, record: Record, now_s: float) -> None:
        """The row ends with its answer, or waits for another that matches the batch's schema."""
        segment, row = attempt.queue.segment, attempt.row
        earlier = segment.previous_records.get(row)
        judged = check.judge(
            answer,
            repairs=record.repairs - (earlier.repairs if earlier is not None else 0),
            may_repair=segment.context.closing is None,
        )
        if judged.byte == row_map.PENDING:
            note = noted(record, judged.finding)
            if check.ask_again(segment, note, attempt.desk.price):
                segment.clear(row)
                note.not_before_ms = note.ended_at_ms
                segment.notes[row] = note
                segment.new_records.append(note)
                attempt.desk.wait(attempt.queue, row, now_s)
                return
        record.byte = judged.byte if judged.byte != row_map.PENDING else check.schema.mismatch_byte
        record.message = judged.finding
        if record.byte in row_map.FAILURE_BYTES:
            record.code = MISMATCH_CODE
        self._finish(segment, record)

    def _after_failure(self, attempt: Attempt, answer: Answer, records: tuple[Record, Record], now_s: float) -> bool:
        """The row waits for another attempt, or ends; true if the attempt may have been paid for. `records` are the one
        before the attempt and the one after it, which has not been filed yet."""
        base, record = records
        assert answer.kind is not None
        record.met = add_met(base.met, record.vendor, answer.kind, answer.http_status)
        decision = self._decide(attempt, answer, base)
        record.used += decision.uses_attempt
        record.rate_limits += decision.rate_limit_counted
        record.doubts += decision.doubt
        if decision.again:
            self._again(attempt, record, decision, kind=answer.kind, now_s=now_s)
        else:
            assert decision.end is not None
            record.byte = row_map.KIND_BYTES[decision.end]
            self._finish(attempt.queue.segment, record)
        return decision.doubt

    def fail_unsent(self, segment: OpenSegment, row: int, kind: FailureKind, message: str) -> None:
        """Ends a RESERVED row that cannot be sent at all (our exception, no route): it was never at a vendor."""
        record = msgspec.structs.replace(
            segment.base_record(row),
            row=row,
            byte=row_map.KIND_BYTES[kind],
            code=kind.value,
            message=message,
            ended_at_ms=self._clock.now_ms(),
        )
        self._finish(segment, record)

    def share(self, segment: OpenSegment, row: int, outcome: Record) -> None:
        """Ends a PENDING row as the row did whose request it repeats: with its answer or failure, and without an
        attempt or a cost of its own. The gate judges rows that were sent, and is not asked."""
        base = segment.base_record(row)
        record = Record(
            row=row,
            byte=outcome.byte,
            attempts=base.attempts,
            used=0,
            cost_picousd=base.cost_picousd,
            unpriced=base.unpriced,
            no_usage=base.no_usage,
            doubts=base.doubts,
            http_status=outcome.http_status,
            code=outcome.code,
            param=outcome.param,
            message=outcome.message,
            body=outcome.body,
            request_id=outcome.request_id,
            vendor=outcome.vendor,
            prompt_tokens=outcome.prompt_tokens,
            completion_tokens=outcome.completion_tokens,
            cached_tokens=outcome.cached_tokens,
            ended_at_ms=self._clock.now_ms(),
            met=base.met,
        )
        record = _kept_answer(segment, record)
        row_map.share(segment.row_map, row, record.byte)
        _file(segment, record)

    # ------------------------------------------------------------------------------------------------------------

    def _record(self, attempt: Attempt, answer: Answer, base: Record, now: tuple[float, int]) -> Record:
        """`now` is (loop seconds, milliseconds since the epoch)."""
        desk = attempt.desk
        return Record(
            attempt.row,
            row_map.PENDING,
            base.attempts + 1,
            base.used,
            base.cost_picousd,
            base.unpriced,
            base.no_usage,
            base.doubts,
            answer.http_status,
            answer.code,
            answer.param,
            answer.message,
            answer.body,
            answer.request_id,
            desk.answered_by,
            desk.price.price_id if desk.price is not None and answer.cost_picousd == UNKNOWN else "",
            answer.prompt_tokens,
            answer.completion_tokens,
            answer.cached_tokens,
            int((now[0] - attempt.started_s) * 1000),
            now[1],
            0,
            base.rate_limits,
            base.alone,
            base.deaths,
            base.met,
            -1,
            "",
            -1,
            base.repairs,
        )

    def _usage_key(self, line: BatchLine, now_ms: int) -> UsageKey:
        """One object a batch, desk and day: it is asked for with every answer."""
        day_number = now_ms // DAY_MS
        if line.usage_key is None or day_number != line.usage_day:
            line.usage_day = day_number
            day = self._day_of(day_number * DAY_MS)
            desk, tenant = line.desk, line.context.tenant
            line.usage_key = UsageKey(day, desk.destination.key_env, desk.key.model, desk.answered_by, *tenant)
        return line.usage_key

    def _decide(self, attempt: Attempt, answer: Answer, base: Record) -> Decision:
        assert answer.kind is not None
        desk = attempt.desk
        segment = attempt.queue.segment
        row = attempt.row
        had_success = desk.successes > segment.rate_marks.get(row, desk.successes)
        if answer.kind is FailureKind.RATE_LIMITED:
            segment.rate_marks[row] = desk.successes
        if answer.final:
            return Decision(again=False, end=answer.kind, uses_attempt=True)
        spec = segment.context.spec
        return decide(
            kind=answer.kind,
            wait_s=answer.wait_s,
            used=base.used,
            rate_limits=base.rate_limits,
            max_attempts=spec.max_attempts,
            on_uncertain=spec.on_uncertain,
            in_outage=desk.lane.in_outage,
            lane_had_success_since=had_success,
            scatter=desk.lane.scatters,
            chance=self._chance.random(),
        )

    def _again(self, attempt: Attempt, record: Record, decision: Decision, *, kind: FailureKind, now_s: float) -> None:
        segment = attempt.queue.segment
        row = attempt.row
        segment.clear(row)
        record.body = b""
        if segment.unrepaired:
            record = behind_answer(segment, record)
        record.not_before_ms = record.ended_at_ms
        segment.notes[row] = record
        segment.new_records.append(record)
        entry = segment.rows[row]
        if entry is not None and entry.route and kind in MOVES_ON:
            delay_s = decision.delay_s
            if self._failover.after_failure(segment, row, delay_s=delay_s, now_s=now_s):
                return
        record.not_before_ms += int(decision.delay_s * 1000)
        attempt.desk.wait(attempt.queue, row, now_s + decision.delay_s)

    def _finish(self, segment: OpenSegment, record: Record) -> None:
        """RESERVED -> the record's byte; an earlier answer is never replaced by a failure, whether it is of an earlier
        round or one that was to be repaired."""
        if segment.unrepaired:
            record = ended_by_its_answer(segment, record)
        if segment.context.gate is not None:
            self._ask_gate(segment, record)
        kept = record if segment.previous_map is None else _kept_answer(segment, record)
        if kept is not record:
            row_map.restore(segment.row_map, kept.row, kept.byte)
        else:
            row_map.finish(segment.row_map, kept.row, kept.byte)
        segment.reserved -= 1
        segment.outcomes += 1
        _file(segment, kept)

    def _ask_gate(self, segment: OpenSegment, record: Record) -> None:
        context = segment.context
        assert context.gate is not None
        kind = row_map.BYTE_KINDS.get(record.byte)
        verdict = context.gate.note(kind=kind, code=record.code, param=record.param)
        if verdict is GateVerdict.PASSED:
            context.gate = None
            context.gate_passed = True
        elif verdict is GateVerdict.SHUT:
            said = f": {record.message[:GATE_MESSAGE_CHARS]}" if record.message else ""
            context.gate_shut = f"{context.gate.sentence}{said}"


def _kept_answer(segment: OpenSegment, record: Record) -> Record:
    """The record itself, or the row's answer of an earlier round where this one would put a failure in its place."""
    row = record.row
    previous = segment.previous_map[row] if segment.previous_map is not None else 0
    if not row_map.is_success(previous) or row_map.is_success(record.byte):
        return record
    return msgspec.structs.replace(
        segment.previous_records[row],
        attempts=record.attempts,
        used=record.used,
        cost_picousd=record.cost_picousd,
        unpriced=record.unpriced,
        no_usage=record.no_usage,
        doubts=record.doubts,
        met=record.met,
        repairs=record.repairs,
    )


def _file(segment: OpenSegment, record: Record) -> None:
    """The row has ended, as its byte says: its record is for the next checkpoint."""
    row = record.row
    segment.open -= 1
    segment.rows[row] = None
    if segment.notes:
        segment.notes.pop(row, None)
    if segment.rate_marks:
        segment.rate_marks.pop(row, None)
    if segment.failure_marks:
        segment.failure_marks.pop(row, None)
    if segment.unrepaired:
        segment.unrepaired.pop(row, None)
    segment.new_records.append(record)
    counts = segment.tally.counts
    counts[record.byte] = counts.get(record.byte, 0) + 1


def _was_tried(segment: OpenSegment, row: int) -> bool:
    """Whether it has an attempt in this round; a note may tell of a death alone."""
    note, earlier = segment.notes.get(row), segment.previous_records.get(row)
    return note is not None and note.attempts > (0 if earlier is None else earlier.attempts)


def _is_of_row(attempt: Attempt) -> bool:
    """Whether the lane was well when this row first failed: a row that was sent after it has had its answer since then.
    An answer to a row that was sent before says nothing: as an outage begins, what is out is still answered. Of a row
    that failed in an earlier process: whether anything was answered in this one."""
    segment, row, newest_s = attempt.queue.segment, attempt.row, attempt.desk.newest_success_s
    note = segment.notes.get(row)
    first_s = -math.inf if note is not None and note.used else max(newest_s, attempt.started_s)
    return newest_s > segment.failure_marks.setdefault(row, first_s)


def _lane_of(segment: OpenSegment, row: int) -> int:
    """As `Record.lane`."""
    entry = segment.rows[row]
    return entry.lane if entry is not None and row in segment.away else -1


def row_tokens(row: InputRow) -> int:
    """What a row is taken to cost its lane until its usage is known: a token per four bytes, and its output bound."""
    output_tokens = row.output_tokens
    return (len(row.body) >> 2) + (output_tokens if output_tokens > 0 else 0)


def _count_usage(segment: OpenSegment, key: UsageKey, answer: Answer, money: Money) -> None:
    """Adds an answer's tokens and money to the segment's usage, and its tokens to the segment's tally."""
    if answer.kind is not None and money == (0, 0, 0) and answer.prompt_tokens == UNKNOWN:
        return
    # Counted for the batch all the same, and not a second time for the days and the keys.
    total = segment.usage.get(key) if not answer.is_counted else UsageSum()
    if total is None:
        total = segment.usage[key] = UsageSum()
    total.answers += 1
    total.cost_picousd += money[0]
    total.unpriced += money[1]
    total.no_usage += money[2]
    tally = segment.tally
    if answer.prompt_tokens > 0:
        total.prompt_tokens += answer.prompt_tokens
        tally.prompt_tokens += answer.prompt_tokens
    if answer.completion_tokens > 0:
        total.completion_tokens += answer.completion_tokens
        tally.completion_tokens += answer.completion_tokens
    if answer.cached_tokens > 0:
        total.cached_tokens += answer.cached_tokens
        tally.cached_tokens += answer.cached_tokens
