"""A long interval between checkpoints holds no vendor up: rows are reserved before a desk has run out of them, or at
once, and still no more than twice what is sent in an interval. A checkpoint that takes long costs no lease."""

from __future__ import annotations

import asyncio

from batchwright.core import row_map
from batchwright.engine.sent_rows import SentRows
from batchwright.store.open import open_store
from support.fleet import EPOCH_MS, Fleet, MinuteVendor, run_fleet, until
from support.store_drive import new_segment, submit

SEGMENTS, ROWS = 16, 500
LATENCY_S = 0.05
CONCURRENCY = 100
"""2,000 rows a second."""


def work(interval_s: float) -> tuple[float, int, int]:
    """All rows at a fast vendor: (seconds, checkpoints, rows that were reserved and not sent at most)."""
    store = open_store(":memory:")
    submit(store, "batch_a", [new_segment(number, ROWS) for number in range(SEGMENTS)])
    ahead = [0]

    async def scene(fleet: Fleet) -> None:
        worker = fleet.start("w", checkpoint_s=interval_s, concurrency=CONCURRENCY).worker

        def done() -> bool:
            reserved = sum(bytes(one.row_map).count(row_map.RESERVED) for one in worker.floor.segments.values())
            ahead.append(reserved - worker.sender.in_flight)
            return len(fleet.vendor.sent) == SEGMENTS * ROWS

        took_s.append(await until(done, at_most_s=600, step_s=0.01))
        checkpoints.append(worker.landing.number)
        await until(lambda: store.get_batch("batch_a").facts.settled, at_most_s=10)

    took_s: list[float] = []
    checkpoints: list[int] = []
    run_fleet(scene, store, MinuteVendor(1_000_000, latency_s=LATENCY_S))
    store.close()
    return took_s[0], checkpoints[0], max(ahead)


def test_a_fast_vendor_is_not_held_up_by_a_long_interval() -> None:
    short_s, many, _ = work(0.02)
    long_s, few, ahead = work(2.0)
    assert long_s < 1.3 * short_s
    assert few * 4 < many
    assert ahead <= 2 * 2.0 * CONCURRENCY / LATENCY_S + CONCURRENCY
    usual_s, _, ahead = work(0.25)
    assert usual_s < 1.1 * short_s
    assert ahead <= 2 * 0.25 * CONCURRENCY / LATENCY_S + CONCURRENCY


def test_a_lease_is_renewed_while_a_checkpoint_waits_for_an_object_store() -> None:
    store = open_store(":memory:")
    submit(store, "batch_a", [new_segment(0)])

    async def scene(fleet: Fleet) -> None:
        seat = fleet.start("w", beats_apart=True)
        lease_s = seat.worker.settings.lease_s
        await until(lambda: bool(fleet.vendor.sent), at_most_s=10)
        seat.writer.goes_on.clear()
        await asyncio.sleep(2 * lease_s)
        (row,) = store.live_workers()
        now_ms = EPOCH_MS + int(asyncio.get_running_loop().time() * 1000)
        assert now_ms - row.heartbeat_ms <= (seat.worker.settings.heartbeat_s + 1) * 1000
        seat.writer.goes_on.set()
        await until(lambda: store.get_batch("batch_a").facts.settled, at_most_s=10)

    run_fleet(scene, store, MinuteVendor(1_000))
    store.close()


def test_an_interval_is_counted_on_over_checkpoints_before_its_end() -> None:
    sent = SentRows()
    assert sent.rows(10.0, 2.0) == 0
    sent.count += 30
    assert sent.rows(10.1, 2.0) == 30
    sent.count += 60
    assert sent.rows(10.3, 2.0) == 90
    assert sent.rows(12.0, 2.0) == 90
    sent.count += 5
    assert sent.rows(12.1, 2.0) == 90, "of the interval before, until this one is over"
    assert sent.rows(16.0, 2.0) == 2, "a count that lasted longer is not taken for one interval's"


def test_bodies_are_bounded_by_what_they_take_in_memory() -> None:
    """Rows that are alike pack to next to nothing, and are held unpacked."""
    store = open_store(":memory:")
    submit(store, "batch_a", [new_segment(number, 20, body_bytes=100_000) for number in range(12)])
    held = [0]

    async def scene(fleet: Fleet) -> None:
        worker = fleet.start("w", concurrency=CONCURRENCY, input_bytes_max=5_000_000).worker

        def done() -> bool:
            held.append(worker.floor.input_bytes)
            return store.get_batch("batch_a").facts.settled

        await until(done, at_most_s=600, step_s=0.01)

    run_fleet(scene, store, MinuteVendor(1_000_000, latency_s=LATENCY_S))
    store.close()
    assert 4_000_000 <= max(held) <= 7_000_000, "up to the bound, and one segment more"
