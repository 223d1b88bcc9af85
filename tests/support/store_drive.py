"""Drives a store as intake and workers do, by legal moves only, so that a test says what happens and not how."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.doubt import OnUncertain
from batchwright.core.failures import FailureKind
from batchwright.core.identity import hash_custom_id
from batchwright.core.records import InputRow, Pieces, Record, SegmentInput, Tally, UsageKey, UsageSum
from batchwright.core.tenants import Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import (
    AllowanceRequest,
    Checkpoint,
    CheckpointResult,
    ClaimedSegment,
    ClaimRequest,
    NewBatch,
    NewSegment,
    Release,
    SegmentChange,
    SegmentKey,
    Store,
)
from batchwright.wire import frames
from batchwright.wire.file_bodies import FileLine, find_bodies

OK = row_map.PLAIN_SUCCESS
FAILED = row_map.KIND_BYTES[FailureKind.INVALID_REQUEST]
REFUSED_ROW = row_map.KIND_BYTES[FailureKind.INVALID_ROW]
CANCELLED = row_map.KIND_BYTES[FailureKind.CANCELLED]
IN_DOUBT = row_map.KIND_BYTES[FailureKind.IN_DOUBT]
LANE = "openai|KEY|m"
COST = 7
"""Picousd of each answer."""
WORST = 10
"""Picousd that each row can cost at most."""
INTAKE = WorkerId("intake", "1")


def spec(
    *,
    cap: int = -1,
    policy: OnUncertain = OnUncertain.RETRY,
    max_attempts: int = 5,
    identity: str = "",
    source: str = "",
) -> BatchSpec:
    return BatchSpec(
        name="rows.jsonl",
        source=source,
        identity=identity,
        destinations=(Destination(vendor="openai", base_url="https://example.test/v1", key_env="KEY"),),
        on_uncertain=policy,
        max_attempts=max_attempts,
        max_cost_picousd=cap,
    )


def new_segment(
    number: int,
    rows: int = 4,
    *,
    first_index: int | None = None,
    lanes: str = LANE,
    refused: Iterable[int] = (),
    ids: Sequence[str | None] = (),
    padding: int = 0,
    body_bytes: int = 0,
    within: Pieces | None = None,
) -> NewSegment:
    """A segment as intake cuts it; `refused` rows have ended as `invalid_row`. All segments before it have `rows`.

    `within`: where its bodies lie, as `file_piece` makes one. `body_bytes`: at least, of each.
    """
    bad = frozenset(refused)
    names = list(ids) or [None] * rows
    inputs = [
        InputRow(body=(b'{"row":%d}' % row).ljust(body_bytes), custom_id=names[row], worst_picousd=WORST, line=row + 1)
        for row in range(rows)
    ]
    segment_input = SegmentInput(lanes=lanes.split("\n"), rows=inputs)
    if within is None:
        packed = frames.pack_input(segment_input)
    else:
        lines = [FileLine(row * (len(inputs[0].body) + 1), inputs[row].body) for row in range(rows)]
        packed = frames.pack_input_of_file(segment_input, find_bodies(within, lines, [item.body for item in inputs]))
    records = [Record(row=row, byte=REFUSED_ROW, attempts=0, used=0, message="no body") for row in sorted(bad)]
    return NewSegment(
        number=number,
        first_index=number * rows if first_index is None else first_index,
        row_map=bytes(REFUSED_ROW if row in bad else row_map.PENDING for row in range(rows)),
        # What follows a frame is no part of it: a cheap way to a large input.
        input=packed + bytes(padding),
        lane_set="" if len(bad) == rows else lanes,
        records=frames.pack_records(records) if records else b"",
        id_hashes=b"".join(bytes(8) if name is None else hash_custom_id(name) for name in names) if ids else b"",
        piece_bytes=0 if within is None else within.count * len(file_piece(rows)),
    )


def file_piece(rows: int = 4) -> bytes:
    """A piece of an upload, packed, with the bodies of a segment as lines."""
    return frames.pack_piece(b"".join(b'{"row":%d}\n' % row for row in range(rows)))


def submit(
    store: Store,
    batch_id: str,
    segments: Sequence[NewSegment],
    of: BatchSpec | None = None,
    *,
    created_at_ms: int = 1_000,
    deadline_ms: int = 0,
    account: str = "acme",
) -> None:
    """A batch, claimable."""
    accept(store, batch_id, segments, of, created_at_ms=created_at_ms, deadline_ms=deadline_ms, account=account)
    store.close_intake(batch_id, 1_000)


def accept(
    store: Store,
    batch_id: str,
    segments: Sequence[NewSegment],
    of: BatchSpec | None = None,
    *,
    created_at_ms: int = 1_000,
    deadline_ms: int = 0,
    account: str = "acme",
) -> None:
    """A batch whose intake is not closed."""
    batch = NewBatch(
        batch_id=batch_id,
        tenant=Tenant(account),
        spec=of or spec(),
        created_at_ms=created_at_ms,
        deadline_ms=deadline_ms,
        owner=INTAKE,
    )
    store.create_batch(batch, segments)


@dataclass
class Held:
    """A segment in a worker's hands, with what it has not checkpointed yet."""

    claimed: ClaimedSegment
    row_map: bytearray
    records: dict[int, Record]
    fresh: dict[int, Record] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    usage: UsageSum = field(default_factory=UsageSum)
    outcomes: int = 0

    @property
    def key(self) -> SegmentKey:
        return self.claimed.key

    def reserve(self, *rows: int) -> Held:
        for row in rows:
            row_map.reserve(self.row_map, row)
        return self

    def unreserve(self, *rows: int) -> Held:
        for row in rows:
            row_map.clear(self.row_map, row)
        return self

    def _next(self, row: int, byte: int, cost: int) -> Record:
        last = self.records.get(row)
        if last is None:
            before = self.claimed.previous_records.get(row)
            fresh = Record(row=row, byte=byte, attempts=0, used=0)
            last = msgspec.structs.replace(before, used=0, rate_limits=0) if before is not None else fresh
        self.tally.attempts += 1
        self.tally.cost_picousd += cost
        self.usage.answers += 1
        self.usage.cost_picousd += cost
        record = msgspec.structs.replace(
            last, byte=byte, attempts=last.attempts + 1, used=last.used + 1, cost_picousd=last.cost_picousd + cost
        )
        self.records[row] = self.fresh[row] = record
        return record

    def answer(self, *rows: int, byte: int = OK, cost: int = COST, tokens: int = 0) -> Held:
        """Reserved rows end, of `tokens` each."""
        self.tally.prompt_tokens += tokens * len(rows)
        for row in rows:
            previous = self.claimed.previous_map[row] if self.claimed.previous_map else 0
            if not row_map.is_success(byte) and row_map.is_success(previous):
                before = self.claimed.previous_records[row]
                row_map.restore(self.row_map, row, previous)
                record = self._next(row, previous, cost)
                record = msgspec.structs.replace(record, body=before.body)
                counted = previous
            else:
                row_map.finish(self.row_map, row, byte)
                body = b"answer %d of round %d" % (row, self.claimed.round) if row_map.is_success(byte) else b""
                record = msgspec.structs.replace(self._next(row, byte, cost), body=body)
                counted = byte
            self.records[row] = self.fresh[row] = record
            self.tally.counts[counted] = self.tally.counts.get(counted, 0) + 1
            self.outcomes += 1
        return self

    def note(self, *rows: int, cost: int = 0) -> Held:
        """An attempt of reserved rows came to nothing; they stay reserved, to be sent again."""
        for row in rows:
            self.fresh[row] = self.records[row] = msgspec.structs.replace(
                self._next(row, row_map.RESERVED, cost), body=b""
            )
        return self

    def change(
        self,
        *,
        release: Release | None = None,
        not_before_ms: int = 0,
        closed_as: FailureKind | None = None,
        lanes: str = "",
    ) -> SegmentChange:
        """What there is to checkpoint; nothing of it is left afterwards."""
        key = UsageKey(day="2026-01-01", account="vendor-account", model="m", vendor="openai", tenant="acme")
        made = SegmentChange(
            key=self.key,
            epoch=self.claimed.epoch,
            row_map=bytes(self.row_map),
            records=frames.pack_records(list(self.fresh.values())) if self.fresh else b"",
            tally=self.tally,
            usage={key: self.usage} if self.usage.answers else {},
            outcomes=self.outcomes,
            orphan_picousd=self.tally.cost_picousd,
            release=release,
            not_before_ms=not_before_ms,
            closed_as=closed_as,
            lane_set=lanes,
        )
        self.fresh, self.tally, self.usage, self.outcomes = {}, Tally(), UsageSum(), 0
        return made


class Worker:
    """A registered worker that counts its own checkpoints."""

    def __init__(self, store: Store, name: str = "w", incarnation: str = "1", *, now_ms: int = 1_000) -> None:
        self.store = store
        self.id = WorkerId(name, incarnation)
        self.landed = 0
        store.register_worker(self.id, host="here", pid=7, now_ms=now_ms)

    def checkpoint(
        self,
        *changes: SegmentChange,
        now_ms: int = 2_000,
        claim: ClaimRequest | None = None,
        allowances: Sequence[AllowanceRequest] = (),
        **more: object,
    ) -> CheckpointResult:
        made = Checkpoint(
            worker=self.id,
            number=self.landed + 1,
            now_ms=now_ms,
            segments=changes,
            claim=claim,
            allowances=allowances,
        )
        result = self.store.checkpoint(replace(made, **more))  # type: ignore[arg-type]
        self.landed += 1
        return result

    def claim(self, limit: int = 1, *, now_ms: int = 2_000, batch_id: str = "", **more: object) -> list[Held]:
        request = replace(ClaimRequest(limit=limit, batch_id=batch_id), **more)  # type: ignore[arg-type]
        return [held(claimed) for claimed in self.checkpoint(now_ms=now_ms, claim=request).claimed]

    def one(self, *, now_ms: int = 2_000, batch_id: str = "") -> Held:
        (found,) = self.claim(now_ms=now_ms, batch_id=batch_id)
        return found

    def finish(self, held_: Held, *, byte: int = OK, now_ms: int = 2_000, tokens: int = 0) -> CheckpointResult:
        """Reserves and ends every open row of a segment, in two checkpoints."""
        rows = [row for row, state in enumerate(held_.row_map) if state == row_map.PENDING]
        held_.reserve(*rows)
        self.checkpoint(held_.change(), now_ms=now_ms)
        held_.answer(
            *[row for row, state in enumerate(held_.row_map) if state == row_map.RESERVED], byte=byte, tokens=tokens
        )
        return self.checkpoint(held_.change(), now_ms=now_ms)

    def run(self, *, byte: int = OK, batch_id: str = "", now_ms: int = 2_000) -> int:
        """Claims and finishes until nothing is left; returns how many segments."""
        done = 0
        while found := self.claim(batch_id=batch_id, now_ms=now_ms):
            self.finish(found[0], byte=byte, now_ms=now_ms)
            done += 1
        return done


def held(claimed: ClaimedSegment) -> Held:
    return Held(claimed, bytearray(claimed.row_map), dict(claimed.records))


def maps(store: Store, batch_id: str) -> list[bytes]:
    """The row maps as they count."""
    return [view.row_map for view in store.read_segments(batch_id)]


def bodies(store: Store, batch_id: str) -> dict[int, bytes]:
    """The last answer of each row that has one, by request_index."""
    return {
        view.first_index + row: record.body
        for view in store.read_segments(batch_id)
        for row, record in view.records.items()
        if record.body
    }
