"""A service's items and statuses in the words of `ports.batches`. No I/O."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

from batchwright.client.fields import Fields
from batchwright.client.values import Batch, RowResult, UsageLine, WaitingLane
from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.batch_state import BatchState, Counts, Pause, PauseCause
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.fair_share import WEIGHT_ONE
from batchwright.core.money import picousd_from_usd
from batchwright.core.records import UNKNOWN, InputRow, Record, Tally, UsageKey, UsageSum
from batchwright.core.rows import RowView
from batchwright.core.tenants import Tenant
from batchwright.ports.batches import BatchStatus, Waiting
from batchwright.ports.stored import Share


def status_of(batch: Batch, destination: Destination) -> BatchStatus:
    """A state that nobody has told us of is one that runs; a failure kind likewise is a fault of the service's."""
    by_byte = _by_byte(batch)
    kinds = batch.error_kinds
    closed = {name: kinds.get(name, 0) for name in ("cancelled", "expired", "stopped")}
    return BatchStatus(
        batch_id=batch.batch_id,
        tenant=Tenant(""),  # whose key this is, the service keeps to itself
        state=_state(batch),
        terminal=batch.terminal,
        spec=BatchSpec(
            name="",
            destinations=(destination,),
            metadata=dict(batch.metadata),
            max_cost_picousd=-1 if batch.max_cost_usd is None else picousd_from_usd(batch.max_cost_usd),
        ),
        round=batch.round,
        total=batch.total_count,
        counts=Counts(
            succeeded=batch.completed_count,
            failed=batch.failed_count - sum(closed.values()),
            cancelled=closed["cancelled"],
            expired=closed["expired"],
            stopped=closed["stopped"],
            open=batch.total_count - batch.completed_count - batch.failed_count,
        ),
        by_byte=by_byte,
        tally=Tally(
            counts=by_byte,
            attempts=batch.attempts,
            retries=batch.retries,
            cost_picousd=_picousd(batch.cost_usd),
            unpriced=batch.unpriced_count,
            doubts=batch.possible_double_payments,
            prompt_tokens=batch.usage.prompt_tokens or 0,
            completion_tokens=batch.usage.completion_tokens or 0,
            cached_tokens=batch.usage.cached_tokens or 0,
        ),
        created_at_ms=_ms(batch.created_at),
        settled_at_ms=_ms(batch.finished_at),
        deadline_ms=_ms(batch.expires_at),
        pauses=_pauses(batch),
        waiting=tuple(_waiting(lane) for lane in batch.waiting),
        budget_taken_picousd=-1 if batch.cap_taken_usd is None else picousd_from_usd(batch.cap_taken_usd),
        live=False if batch.terminal else batch.worked_on,
        closed_as=_CLOSED_AS.get(batch.closed_as),
        left=batch.left_count,
        priority=batch.priority,
        share=Share(account="", weight=round(batch.share.weight * WEIGHT_ONE), in_flight=batch.share.in_flight or 0),
    )


_CLOSED_AS = {kind.value: kind for kind in row_map.CLOSING_KINDS}


def _state(batch: Batch) -> BatchState:
    try:
        return BatchState(batch.state.lower())
    except ValueError:
        return BatchState.RUNNING


def _by_byte(batch: Batch) -> dict[int, int]:
    by_byte: dict[int, int] = {}
    for name, rows in batch.error_kinds.items():
        byte = row_map.KIND_BYTES[_kind(name)]
        by_byte[byte] = by_byte.get(byte, 0) + rows
    for name, rows in batch.flags.items():
        if name in tuple(Flag):
            by_byte[row_map.FLAG_BYTES[Flag(name)]] = rows
    plain = batch.completed_count - sum(by_byte.get(byte, 0) for byte in row_map.SUCCESS_BYTES)
    if plain:
        by_byte[row_map.PLAIN_SUCCESS] = by_byte.get(row_map.PLAIN_SUCCESS, 0) + plain
    return by_byte


def _pauses(batch: Batch) -> tuple[Pause, ...]:
    if not batch.pauses and batch.paused_reason:
        return (Pause(cause=PauseCause.UNKNOWN, reason=batch.paused_reason, since_ms=0),)
    return tuple(
        Pause(
            cause=PauseCause(fact.cause) if fact.cause in tuple(PauseCause) else PauseCause.UNKNOWN,
            reason=fact.reason,
            since_ms=_ms(fact.since),
        )
        for fact in batch.pauses
    )


def _waiting(lane: WaitingLane) -> Waiting:
    return Waiting(
        vendor=lane.vendor,
        model=lane.model,
        cause=lane.cause,
        reason=lane.reason,
        since_ms=_ms(lane.since),
        until_ms=_ms(lane.until),
    )


def view_of(item: RowResult) -> RowView:
    fields = Fields(item.raw)
    byte = _byte(item, fields)
    error = fields.fields("error")
    cause = error.fields("cause")
    return RowView(
        request_index=item.request_index,
        byte=byte,
        record=_record(item, byte, cause) if row_map.is_end(byte) or item.attempts else None,
        input=InputRow(body=b"", custom_id=item.custom_id, model=item.model, line=error.integer("line")),
        may_have_been_sent=bool(error.flag("may_have_been_sent")),
    )


def _byte(item: RowResult, fields: Fields) -> int:
    if item.ok is None:
        return row_map.RESERVED if fields.text("state") == "reserved" else row_map.PENDING
    if not item.ok:
        return row_map.KIND_BYTES[_kind(item.error.kind if item.error is not None else "")]
    flags = [flag for flag in item.flags if flag in tuple(Flag)]
    return row_map.FLAG_BYTES[Flag(flags[0])] if flags else row_map.PLAIN_SUCCESS


def _record(item: RowResult, byte: int, cause: Fields) -> Record:
    unknown_cost = item.cost_usd is None
    return Record(
        row=0,
        byte=byte,
        attempts=item.attempts,
        used=0,
        cost_picousd=_picousd(item.cost_usd),
        unpriced=int(unknown_cost and item.usage.prompt_tokens is not None),
        no_usage=int(unknown_cost and item.usage.prompt_tokens is None),
        http_status=cause.integer("http_status"),
        code=cause.text("code"),
        param=cause.text("param"),
        message=item.error.message if item.error is not None else "",
        body=item.response,
        vendor=item.vendor,
        prompt_tokens=UNKNOWN if item.usage.prompt_tokens is None else item.usage.prompt_tokens,
        completion_tokens=UNKNOWN if item.usage.completion_tokens is None else item.usage.completion_tokens,
        cached_tokens=UNKNOWN if item.usage.cached_tokens is None else item.usage.cached_tokens,
    )


def usage_of(line: UsageLine) -> tuple[UsageKey, UsageSum]:
    tokens = line.tokens
    used = UsageSum(
        answers=line.answers,
        prompt_tokens=tokens.prompt_tokens or 0,
        completion_tokens=tokens.completion_tokens or 0,
        cached_tokens=tokens.cached_tokens or 0,
        cost_picousd=_picousd(line.cost_usd),
        unpriced=line.unpriced_count,
    )
    return UsageKey(line.day, "", line.model, line.vendor, "", line.key_id), used


def _kind(name: str) -> FailureKind:
    return FailureKind(name) if name in tuple(FailureKind) else FailureKind.INTERNAL


def _picousd(amount: Decimal | None) -> int:
    return 0 if amount is None else picousd_from_usd(amount)


def _ms(moment: datetime | None) -> int:
    return 0 if moment is None else round(moment.timestamp() * 1000)
