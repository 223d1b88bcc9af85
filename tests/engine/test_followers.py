"""A worker that holds nothing but rows which repeat others: the others may be anywhere, also with nobody any more."""

from __future__ import annotations

import msgspec

from batchwright.core.records import InputRow, SegmentInput
from batchwright.ports.store import NewSegment
from batchwright.store.open import open_store
from batchwright.wire import frames
from support.fleet import Fleet, MinuteVendor, run_fleet, until
from support.store_drive import LANE, spec, submit

ROWS = 10
SEGMENTS = 40


def segment(number: int) -> NewSegment:
    """Those of the first segment are asked, all others repeat them."""
    inputs = [
        InputRow(body=b'{"row":%d}' % row, model="m", line=row + 1, shares=row if number else -1) for row in range(ROWS)
    ]
    return NewSegment(
        number=number,
        first_index=number * ROWS,
        row_map=bytes(ROWS),
        input=frames.pack_input(SegmentInput(lanes=[LANE], rows=inputs)),
        lane_set=LANE,
    )


def test_rows_that_nobody_has_any_more_are_claimed_by_those_who_wait_for_them() -> None:
    store = open_store(":memory:")
    submit(store, "batch_a", list(map(segment, range(SEGMENTS))), msgspec.structs.replace(spec(), dedup=True))

    async def scene(fleet: Fleet) -> None:
        fleet.vendor.latency_s = 10_000.0
        first = fleet.start("w", concurrency=4)
        await until(lambda: bool(fleet.vendor.sent), at_most_s=10, step_s=0.01)
        second = fleet.start("w2", concurrency=4)
        await until(lambda: bool(second.worker.floor.segments), at_most_s=100)
        assert all(one.key.number for one in second.worker.floor.segments.values()), "it has none that could be sent"
        first.kill()
        fleet.vendor.latency_s = 0.1
        store.mark_dead([first.worker.identity])
        await until(lambda: store.get_batch("batch_a").facts.settled, at_most_s=100)

    run_fleet(scene, store, MinuteVendor(1_000))
    assert store.get_batch("batch_a").tally.counts == {16: SEGMENTS * ROWS}
    assert store.check("batch_a") == []
    store.close()
