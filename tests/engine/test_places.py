"""Processes of several places on one store: a lock proves something only where it lies."""

from __future__ import annotations

from pathlib import Path

from batchwright.core.tenants import Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.engine.sweeper import (
    BLIND_MS,
    ELSEWHERE_MS,
    SWEEP_EVERY_S,
    SWEEP_SOONEST_S,
    Sweeper,
    run_lock_name,
    worker_lock_name,
)
from batchwright.ports.store import NewBatch, Store
from batchwright.store.file_locks import FileLocks
from batchwright.store.open import open_store
from support.store_drive import new_segment, spec

LEASE_MS = 10_000
HERE, ELSEWHERE = "one@aaaa", "one@bbbb"
"""Of the same name of a host, too."""


def sweeper(store: Store, folder: Path, *, shared: bool = True) -> Sweeper:
    return Sweeper(
        store,
        owner=WorkerId(f"{HERE}-1", "s"),
        locks=FileLocks(folder),
        host=HERE,
        lease_ms=LEASE_MS,
        shared=shared,
    )


def accept(store: Store, batch_id: str, host: str) -> None:
    owner = WorkerId(f"{host}-77", "1")
    batch = NewBatch(batch_id=batch_id, tenant=Tenant("acme"), spec=spec(), created_at_ms=1_000, owner=owner)
    store.create_batch(batch, [new_segment(0)])


def there(store: Store) -> set[str]:
    return {batch.batch_id for batch in store.find_batches()}


def test_an_intake_elsewhere_is_left_alone_for_a_day(tmp_path: Path) -> None:
    store = open_store(":memory:")
    accept(store, "batch_here", HERE)
    accept(store, "batch_held", HERE)
    accept(store, "batch_elsewhere", ELSEWHERE)
    held = FileLocks(tmp_path).take(run_lock_name("batch_held"), holder="a test")
    assert held is not None
    sweeper(store, tmp_path).sweep(2_000)
    assert there(store) == {"batch_held", "batch_elsewhere"}
    sweeper(store, tmp_path).sweep(1_001 + ELSEWHERE_MS)
    assert there(store) == {"batch_held"}
    held.release()
    store.close()


def test_on_this_machines_own_store_the_lock_tells_whatever_the_owners_name(tmp_path: Path) -> None:
    """A laptop's host name changes with its network."""
    store = open_store(":memory:")
    accept(store, "batch_a", ELSEWHERE)
    sweeper(store, tmp_path, shared=False).sweep(2_000)
    assert there(store) == set()
    store.close()


def test_an_upload_elsewhere_is_left_alone_for_a_day(tmp_path: Path) -> None:
    store = open_store(":memory:")
    for number, host in enumerate((HERE, ELSEWHERE)):
        store.begin_file(f"file-{number}", "acme", owner=f"uploads-{host}-77-1", now_ms=1_000)
    sweeper(store, tmp_path).sweep(2_000)
    assert [name for name, _, _ in store.arriving_files()] == ["file-1"]
    sweeper(store, tmp_path).sweep(1_001 + ELSEWHERE_MS)
    assert store.arriving_files() == []
    store.close()


def test_a_worker_elsewhere_lives_as_long_as_its_lease(tmp_path: Path) -> None:
    store = open_store(":memory:")
    here, held, elsewhere = (WorkerId(name, "1") for name in (f"{HERE}-7", f"{HERE}-8", f"{ELSEWHERE}-7"))
    for worker, host in ((here, HERE), (held, HERE), (elsewhere, ELSEWHERE)):
        store.register_worker(worker, host=host, pid=7, now_ms=1_000)
    lock = FileLocks(tmp_path).take(worker_lock_name(held), holder="a test")
    assert lock is not None
    sweeper(store, tmp_path).bury_dead(1_000 + LEASE_MS)
    assert {row.worker for row in store.live_workers()} == {held, elsewhere}
    sweeper(store, tmp_path).bury_dead(1_001 + LEASE_MS)
    assert {row.worker for row in store.live_workers()} == {held}
    lock.release()
    store.close()


def test_the_next_look_is_when_a_lease_elsewhere_ends_and_not_for_one_that_stands_still_here(tmp_path: Path) -> None:
    store = open_store(":memory:")
    looks = sweeper(store, tmp_path)
    held = WorkerId(f"{HERE}-8", "1")
    lock = FileLocks(tmp_path).take(worker_lock_name(held), holder="a test")
    assert lock is not None
    store.register_worker(held, host=HERE, pid=7, now_ms=1_000)
    looks.bury_dead(9_000_000)
    assert looks.rest_s(9_000_000) == SWEEP_EVERY_S, "its lock says that it lives"
    store.register_worker(WorkerId(f"{ELSEWHERE}-7", "1"), host=ELSEWHERE, pid=7, now_ms=9_001_000)
    looks.bury_dead(9_002_000)
    ends_ms = 9_001_001 + LEASE_MS
    assert looks.rest_s(ends_ms - 60_000) == SWEEP_EVERY_S
    assert looks.rest_s(ends_ms - 1_500) == 1.5
    assert looks.rest_s(ends_ms + 1) == SWEEP_SOONEST_S
    lock.release()
    store.close()


def test_a_folder_of_locks_has_one_name(tmp_path: Path) -> None:
    assert FileLocks(tmp_path / "a").place("fresh1") == "fresh1"
    assert FileLocks(tmp_path / "a").place("fresh2") == "fresh1"
    assert FileLocks(tmp_path / "b").place("fresh2") == "fresh2"
    assert sorted(path.name for path in (tmp_path / "a" / "locks").iterdir()) == ["place"]


def test_whoever_could_not_look_takes_nobody_elsewhere_for_dead_at_once(tmp_path: Path) -> None:
    """A database that was away for longer than the lease: nobody could renew one."""
    store = open_store(":memory:")
    here, elsewhere, gone = (WorkerId(name, "1") for name in (f"{HERE}-7", f"{ELSEWHERE}-7", f"{ELSEWHERE}-8"))
    for worker, host in ((here, HERE), (elsewhere, ELSEWHERE), (gone, ELSEWHERE)):
        store.register_worker(worker, host=host, pid=7, now_ms=1_000)
    looks = sweeper(store, tmp_path)
    held = FileLocks(tmp_path).take(worker_lock_name(here), holder="a test")
    assert held is not None
    looks.bury_dead(2_000)
    back_ms = 2_001 + LEASE_MS + BLIND_MS
    assert looks.bury_dead(back_ms) == 0
    store.heartbeat(elsewhere, back_ms + 1)
    held.release()
    assert looks.bury_dead(back_ms + 2) == 1, "a lock that is free proves a death as ever"
    assert looks.bury_dead(back_ms + LEASE_MS) == 1
    assert [row.worker for row in store.live_workers()] == [elsewhere]
    store.close()
