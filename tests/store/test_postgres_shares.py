"""Shares of limits on a server: who cannot have its turn keeps what it has, and waits for nobody."""

from __future__ import annotations

import threading

import psycopg

from batchwright.core.shares import WHOLE_PPM, LaneUse
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import Store
from batchwright.store.open import open_store
from support.postgres import PostgresServer

LANE = "v||m#1"
WORKERS = 6
BEATS = 40
TURN = "SELECT pg_advisory_xact_lock(hashtextextended('shares of lanes', 1))"
"""The very turn that `store.dialect.try_turns` asks for."""


def wants(share_ppm: int, demand: float = 10.0) -> LaneUse:
    return LaneUse(LANE, requests_per_minute=600.0, demand=demand, share_ppm=share_ppm)


def beat(store: Store, worker: WorkerId, use: LaneUse) -> int:
    heard = store.heartbeat(worker, 2_000, uses=[use])
    assert heard is not None
    return heard.shares_ppm[LANE]


def test_a_process_that_hangs_in_its_turn_holds_nobody_up(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        store = open_store(url)
        worker = WorkerId("w", "1")
        store.register_worker(worker, host="here", pid=1, now_ms=1_000)
        with psycopg.connect(url) as hanging:
            hanging.execute(TURN)
            assert beat(store, worker, wants(0)) == 0
            hanging.rollback()
            assert beat(store, worker, wants(0)) == WHOLE_PPM
            hanging.execute(TURN)
            assert beat(store, worker, wants(300_000)) == 300_000, "as much as it has"
        store.close()


def test_workers_that_beat_at_once_never_tell_more_than_the_whole(postgres: PostgresServer) -> None:
    with postgres.database() as url:
        stores = [open_store(url) for _ in range(WORKERS)]
        names = [WorkerId(f"w{number}", "1") for number in range(WORKERS)]
        for store, name in zip(stores, names, strict=True):
            store.register_worker(name, host="here", pid=1, now_ms=1_000)
        failures: list[BaseException] = []

        def go_on(store: Store, name: WorkerId, number: int) -> None:
            try:
                share_ppm = 0
                for turn in range(BEATS):
                    if turn % 3 == number % 3:
                        share_ppm //= 2
                    share_ppm = beat(store, name, wants(share_ppm, 1.0 + (turn * number) % 7))
                    told = [use.share_ppm for row in store.live_workers() for use in row.uses]
                    assert sum(told) <= WHOLE_PPM
            except BaseException as error:
                failures.append(error)

        threads = [
            threading.Thread(target=go_on, args=(store, name, number))
            for number, (store, name) in enumerate(zip(stores, names, strict=True))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for store in stores:
            store.close()
        assert not failures, failures
