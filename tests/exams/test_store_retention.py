"""Batches that ended long ago are deleted in bounded passes; others, and what a process is writing, are let be."""

from __future__ import annotations

from pathlib import Path

import pytest

from batchwright.core.worker_id import WorkerId
from batchwright.engine import sweeper as sweeping
from batchwright.engine.sweeper import Sweeper, run_lock_name
from batchwright.ports.store import Store
from batchwright.store.file_locks import FileLocks
from support.store_drive import Worker, new_segment, submit

DAY_MS = 86_400_000


def ended_at(store: Store, worker: Worker, batch_id: str, moment_ms: int) -> None:
    submit(store, batch_id, [new_segment(0)])
    worker.run(batch_id=batch_id, now_ms=moment_ms)


def test_old_batches_go_and_others_stay(store: Store, tmp_path: Path) -> None:
    locks = FileLocks(tmp_path)
    worker = Worker(store)
    held = locks.take(f"worker-{worker.id.name}-{worker.id.incarnation}", holder="a test")
    assert held is not None
    for day in range(1, 5):
        ended_at(store, worker, f"batch_{day}", day * DAY_MS)
    submit(store, "batch_open", [new_segment(0)])
    writing = locks.take(run_lock_name("batch_2"), holder="a test")
    assert writing is not None
    sweeper = Sweeper(store, owner=WorkerId("sweeper", "1"), locks=locks, host="here", lease_ms=10**12)
    now_ms = 4 * DAY_MS + 1

    sweeper.sweep(now_ms)
    assert len(store.find_batches()) == 5, "without a retention all are kept"
    sweeper.sweep(now_ms, keep_ended_ms=DAY_MS)
    assert {row.batch_id for row in store.find_batches()} == {"batch_2", "batch_4", "batch_open"}
    writing.release()
    sweeper.sweep(now_ms, keep_ended_ms=DAY_MS)
    assert {row.batch_id for row in store.find_batches()} == {"batch_4", "batch_open"}
    held.release()


def test_a_pass_is_bounded(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeping, "OLD_BATCHES_MAX", 2)
    worker = Worker(store)
    for number in range(5):
        ended_at(store, worker, f"batch_{number}", number + 1)
    worker_lock = FileLocks(tmp_path).take(f"worker-{worker.id.name}-{worker.id.incarnation}", holder="a test")
    assert worker_lock is not None
    sweeper = Sweeper(store, owner=WorkerId("sweeper", "1"), locks=FileLocks(tmp_path), host="here", lease_ms=10**12)
    left = []
    for _ in range(3):
        sweeper.sweep(DAY_MS, keep_ended_ms=1)
        left.append({row.batch_id for row in store.find_batches()})
    assert left == [{"batch_2", "batch_3", "batch_4"}, {"batch_4"}, set()]
    worker_lock.release()
