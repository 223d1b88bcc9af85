"""What is stored of a batch, as whoever asks for it sees it: its status, and its rows."""

from __future__ import annotations

from batchwright.core import row_map
from batchwright.core.batch_spec import LaneKey
from batchwright.core.batch_state import count, derive
from batchwright.core.rows import RowView
from batchwright.engine.floor import lane_name
from batchwright.ports.batches import BatchStatus, Waiting
from batchwright.ports.store import BatchRow, SegmentView

NO_END = 2**62
"""A request_index that no row has."""
ANY_BYTE = frozenset(range(256))


def status_of(batch: BatchRow, *, live: bool | None, waiting: tuple[Waiting, ...] = ()) -> BatchStatus:
    """What is stored of a batch, as a client sees it."""
    state = derive(batch.facts, batch.tally)
    return BatchStatus(
        batch_id=batch.batch_id,
        tenant=batch.tenant,
        state=state,
        terminal=state.terminal,
        spec=batch.spec,
        round=batch.round,
        total=batch.facts.total,
        counts=count(batch.facts.total, batch.tally),
        by_byte=dict(batch.tally.counts),
        tally=batch.tally,
        created_at_ms=batch.created_at_ms,
        settled_at_ms=batch.settled_at_ms,
        deadline_ms=batch.deadline_ms,
        pauses=tuple(batch.pauses),
        budget_taken_picousd=batch.budget_taken_picousd,
        live=False if state.terminal else live,
        worst_picousd=batch.worst_picousd,
        waiting=waiting,
        closed_as=batch.closed_as,
        left=batch.left,
        priority=batch.priority,
        share=batch.share,
    )


def waiting_of(batch: BatchRow, now_ms: int) -> tuple[Waiting, ...]:
    """The lanes that hold its rows back now; each once, by whoever has told of it longest."""
    found: dict[str, Waiting] = {}
    for wait in batch.waits:
        key = LaneKey.parse(wait.lane_text)
        if wait.lane in found or wait.is_over(now_ms) or wait.lane != lane_name(key, batch.spec.destinations):
            continue
        found[wait.lane] = Waiting(
            vendor=key.vendor,
            model=key.model,
            cause=wait.cause.value,
            reason=wait.sentence(now_ms),
            since_ms=wait.since_ms,
            until_ms=wait.until_ms,
        )
    return tuple(found.values())


def views_of(segment: SegmentView, within: range, wanted: frozenset[int] | None) -> list[RowView]:
    """A segment's rows with a request_index of these and a wanted byte (None: any)."""
    assert segment.input is not None
    find_record = segment.records.get
    first = segment.first_index
    closing = row_map.CLOSING_BYTES
    chosen = ANY_BYTE if wanted is None else wanted
    places = range(max(0, within.start - first), min(len(segment.row_map), within.stop - first))
    rows, bytes_ = segment.input.rows, segment.row_map
    # One comprehension: a call a row would cost as much as the row's view.
    return [
        RowView(
            request_index=first + position,
            byte=byte,
            record=find_record(position),
            input=rows[position],
            may_have_been_sent=byte in closing and _may_have_been_sent(segment, position),
            out_at_end=byte in closing and segment.reserved[position] == row_map.RESERVED,
        )
        for position in places
        if (byte := bytes_[position]) in chosen
    ]


def _may_have_been_sent(segment: SegmentView, position: int) -> bool:
    record = segment.records.get(position)
    return segment.reserved[position] == row_map.RESERVED or (record is not None and record.doubts > 0)
