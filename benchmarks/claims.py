"""The benchmark of fair claims: a large backlog of many accounts, and workers that do nothing but claim from it.

    python benchmarks/claims.py --segments 1000000 --accounts 10000
    python benchmarks/claims.py --segments 1000000 --accounts 10000 --database postgresql://... --workers 2
    python benchmarks/claims.py --soak 20
    python benchmarks/claims.py --postgres --soak 20

Without --database it is a state file in a temporary folder, with --postgres a server of the benchmark's own that forces
to disk what it commits, and vacuums by itself. The database must be an empty one: the backlog is written
straight into its tables, in segments of one size with a tiny input, and is claimed through the statements that workers
use. Each worker is a process. At the end the accounts are counted from the segments that are held.

--soak goes on for so many minutes with all that changes a backlog: what was claimed is ended or given back, batches
come in, some are paused and resumed, those that have ended are deleted as a retention does. A line for each part of the
time says the rates, what the tables have grown to and which rows in them are dead, and whether the database still goes
about a claim's statements by index: no table read whole, nothing sorted. Where it does not, or the tables have doubled
for each row since half of the time, it says so at the end and exits with 1.

It goes below the store's contract, to its connections, which is what the silenced checks are for.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.queues import Queue
from pathlib import Path
from typing import Any

import condition
import msgspec
from sqlalchemy import Connection

from batchwright.core import fair_share, row_map
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.records import InputRow, Record, SegmentInput
from batchwright.core.tenants import Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.ports.store import (
    Checkpoint,
    ClaimedSegment,
    ClaimRequest,
    NewBatch,
    NewSegment,
    Release,
    SegmentChange,
    Store,
)
from batchwright.store.blobs import input_key
from batchwright.store.open import open_store
from batchwright.wire import frames

ROWS = 4
"""Of a segment."""
NOW_MS = 1_000_000
WINDOW_S = 30.0
"""Of a soak: one line a window, and at least 4."""
NEW_SEGMENTS = 64
"""Of a batch that comes in during a soak."""
KEPT = 100_000
"""Latest transactions of which times are kept."""
SERVER = {
    **{"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "autovacuum": "on"},
    "shared_buffers": "256MB",
}
OWNER = WorkerId("benchmark", "1")


def lanes_of(account: int, lane_sets: int) -> str:
    return f"vendor|KEY|model-{account % lane_sets}"


def segment_input(lanes: str) -> bytes:
    rows = [InputRow(body=b'{"row":%d}' % row, custom_id=None, worst_picousd=1, line=row + 1) for row in range(ROWS)]
    return frames.pack_input(SegmentInput(lanes=[lanes], rows=rows))


def spec() -> BatchSpec:
    there = Destination(vendor="vendor", base_url="https://example.test/v1", key_env="KEY")
    return BatchSpec(name="rows.jsonl", source="", identity="", destinations=(there,))


def fill(store: Store, given: argparse.Namespace) -> None:
    """The backlog: a batch an account, of as many segments each."""
    each = given.segments // given.accounts
    lanes = [lanes_of(number, given.lane_sets) for number in range(given.lane_sets)]
    store._connections.transact(lambda connection: _insert(connection, given, (each, lanes)))  # type: ignore[attr-defined]
    if given.database:
        # As a server does by itself within a minute, where tables grow row by row.
        store._connections.transact(lambda connection: connection.exec_driver_sql("ANALYZE"))  # type: ignore[attr-defined]


def _insert(connection: Connection, given: argparse.Namespace, what: tuple[int, list[str]]) -> None:
    each, lanes = what
    word = "%s" if connection.dialect.name == "postgresql" else "?"

    def run(sql: str, *values: object) -> None:
        connection.exec_driver_sql(sql.replace("?", word), values)

    numbers = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i + 1 < ?) "
    run(
        "INSERT INTO batch (batch_id, account, source, identity, spec, owner, created_at_ms, phase, reopen_bytes, "
        "rows, segments, segments_open) "
        + numbers
        + "SELECT 'batch_' || i, 'account_' || i, '', '', CAST(? AS bytea), ?, ?, 'open', CAST(? AS bytea), "
        "CAST(? AS bigint), CAST(? AS bigint), CAST(? AS bigint) FROM n".replace(
            "bytea", "bytea" if word == "%s" else "blob"
        ),
        *(given.accounts, msgspec.json.encode(spec()), str(OWNER), NOW_MS, b"", each * ROWS, each, each),
    )
    day = input_key("", 0, NOW_MS).partition("/")[0]
    for number, lane in enumerate(lanes):
        mine = f"seq % {len(lanes)} = {number}".replace("%", "%%" if word == "%s" else "%")
        run(
            "INSERT INTO pick (batch_id, lane_set, waiting, account, seq, ready, created_at_ms) "
            f"SELECT batch_id, CAST(? AS text), segments, account, seq, 1, created_at_ms FROM batch WHERE {mine}",
            lane,
        )
        run(
            f"INSERT INTO queue (account, lane_set, state) SELECT account, CAST(? AS text), 1 FROM batch WHERE {mine}",
            lane,
        )
        packed = segment_input(lane)
        run(
            "INSERT INTO segment (batch_id, number, first_index, row_map, open, state, rank, lane_set, all_lanes, "
            "input_bytes, account) "
            + numbers
            + f"SELECT batch_id, i, i * {ROWS}, CAST(? AS {'bytea' if word == '%s' else 'blob'}), {ROWS}, "
            f"'waiting', i, "
            f"CAST(? AS text), CAST(? AS text), CAST(? AS bigint), account FROM batch, n WHERE {mine}",
            *(each, bytes(ROWS), lane, lane, len(packed)),
        )
        run(
            "INSERT INTO blob (key, data) "
            + numbers
            + f"SELECT '{day}/input/' || batch_id || '/' || i, CAST(? AS {'bytea' if word == '%s' else 'blob'}) "
            f"FROM batch, n WHERE {mine}",
            *(each, packed),
        )


# ------------------------------------------------------------------------------------------------------------ workers


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """What one worker did in a part of its time."""

    claims: int
    settles: int
    transactions_s: list[float]
    lasted_s: float
    cpu_s: float
    """Of the worker's process."""


class Claimer:
    """A worker that claims; with `churn` it also ends, gives back, and brings work in."""

    def __init__(self, given: argparse.Namespace, number: int, place: str) -> None:
        self.given = given
        self.store = open_store(place if given.database else Path(place))
        self.id = WorkerId(f"claimer{number}", "1")
        self.store.register_worker(self.id, host="here", pid=number + 1, now_ms=NOW_MS)
        self.landed = self.settled = 0
        self.chance = random.Random(number)
        self.new = 0

    def window(self, until_s: float, claims: int, *, churn: bool) -> Window:
        taken = 0
        settled = self.settled
        times: deque[float] = deque(maxlen=KEPT)
        held: Sequence[ClaimedSegment] = ()
        began_s, began_cpu_s = time.perf_counter(), time.process_time()
        while taken < claims and time.perf_counter() < until_s:
            changes = [self._end(one) for one in held] if churn else []
            if changes:
                self._checkpoint(changes, None)
            one_s = time.perf_counter()
            held = self._checkpoint((), ClaimRequest(limit=self.given.limit))
            times.append(time.perf_counter() - one_s)
            taken += len(held)
            if not held:
                break
            if churn and self.chance.random() < 0.5:
                self._disturb()
        if churn:
            self._checkpoint([self._end(one) for one in held], None)
        return Window(
            claims=taken,
            settles=self.settled - settled,
            transactions_s=list(times),
            lasted_s=time.perf_counter() - began_s,
            cpu_s=time.process_time() - began_cpu_s,
        )

    def _checkpoint(self, changes: Sequence[SegmentChange], claim: ClaimRequest | None) -> Sequence[ClaimedSegment]:
        self.landed += 1
        made = Checkpoint(worker=self.id, number=self.landed, now_ms=NOW_MS, segments=changes, claim=claim)
        return self.store.checkpoint(made).claimed

    def _end(self, one: ClaimedSegment) -> SegmentChange:
        if self.chance.random() < 0.5:
            return SegmentChange(key=one.key, epoch=one.epoch, row_map=one.row_map, release=Release.WAITING)
        self.settled += 1
        ok = row_map.PLAIN_SUCCESS
        records = [Record(row=row, byte=ok, attempts=1, used=1, body=b"{}") for row in range(ROWS)]
        change = SegmentChange(
            key=one.key,
            epoch=one.epoch,
            row_map=bytes([ok] * ROWS),
            records=frames.pack_records(records),
            outcomes=ROWS,
        )
        change.tally.counts[ok] = change.tally.attempts = ROWS
        change.tally.prompt_tokens = self.chance.randrange(100, 5_000)
        return change

    def _disturb(self) -> None:
        """A batch comes in, for the account of some other; now and then one is paused, and goes on."""
        self.new += 1
        account = self.chance.randrange(self.given.accounts)
        lanes = lanes_of(account, self.given.lane_sets)
        packed = segment_input(lanes)
        segments = [
            NewSegment(number=number, first_index=number * ROWS, row_map=bytes(ROWS), input=packed, lane_set=lanes)
            for number in range(min(NEW_SEGMENTS, self.given.limit))
        ]
        batch_id = f"batch_{self.id.name}_{self.new}"
        batch = NewBatch(
            batch_id=batch_id, tenant=Tenant(f"account_{account}"), spec=spec(), created_at_ms=NOW_MS, owner=OWNER
        )
        self.store.create_batch(batch, segments, close=True)
        if self.new % 8 == 0:
            self.store.pause_batch(batch_id, Pause(cause=PauseCause.USER, reason="churn", since_ms=NOW_MS))
            self.store.resume_batch(batch_id)


def work(given: argparse.Namespace, number: int, place: str, said: Queue[tuple[int, Window | None]]) -> None:
    claimer = Claimer(given, number, place)
    if given.soak:
        ends_s = time.perf_counter() + 60 * given.soak
        while (now_s := time.perf_counter()) < ends_s:
            until_s = min(ends_s, now_s + min(WINDOW_S, 15 * given.soak))
            said.put((number, claimer.window(until_s, given.segments, churn=True)))
    else:
        each = given.claims // given.workers
        said.put((number, claimer.window(time.perf_counter() + 3_600, each, churn=False)))
    claimer.store.close()
    said.put((number, None))


def windows(given: argparse.Namespace, place: str) -> Iterator[list[Window]]:
    """What all workers did at the same time, part by part."""
    context = multiprocessing.get_context("spawn")
    said: Queue[tuple[int, Window | None]] = context.Queue()
    workers = [context.Process(target=work, args=(given, number, place, said)) for number in range(given.workers)]
    for worker in workers:
        worker.start()
    living = given.workers
    waiting: list[Window] = []
    while living:
        _, window = said.get()
        if window is None:
            living -= 1
            continue
        waiting.append(window)
        if len(waiting) == given.workers:
            yield waiting
            waiting = []
    for worker in workers:
        worker.join()


# ------------------------------------------------------------------------------------------------------------ figures


def quantile_ms(times_s: Sequence[float], share: float) -> float:
    in_order = sorted(times_s)
    return 1_000 * in_order[min(len(in_order) - 1, int(share * len(in_order)))]


def line(found: Sequence[Window], workers: int) -> dict[str, Any]:
    times_s = [one_s for window in found for one_s in window.transactions_s]
    claims = sum(window.claims for window in found)
    return {
        "workers": workers,
        "claims": claims,
        "claims_a_second": round(claims / max(window.lasted_s for window in found)),
        "settles_a_second": round(sum(window.settles for window in found) / max(window.lasted_s for window in found)),
        "worker_cpu_ms_a_claim": round(1_000 * sum(window.cpu_s for window in found) / max(1, claims), 2),
        "transaction_p50_ms": round(quantile_ms(times_s, 0.5), 1),
        "transaction_p99_ms": round(quantile_ms(times_s, 0.99), 1),
    }


def fairness(store: Store) -> dict[str, Any]:
    """How far accounts are apart, by what they were charged and by what is held of them."""

    def read(connection: Connection) -> dict[str, Any]:
        least, most = connection.exec_driver_sql("SELECT min(virtual), max(virtual) FROM queue").one()
        held = connection.exec_driver_sql(
            "SELECT min(held), max(held) FROM (SELECT count(*) AS held FROM segment "
            "WHERE state = 'held' GROUP BY account) "
            "AS counted"
        ).one()
        one = connection.exec_driver_sql("SELECT max(charged) FROM segment WHERE state = 'held'").scalar()
        return {
            "tokens_apart": (most - least) // fair_share.PER_TOKEN,
            "tokens_a_segment": one,
            "segments_held_an_account": list(held),
        }

    return store._connections.look(read)  # type: ignore[attr-defined, no-any-return]


@contextmanager
def database(given: argparse.Namespace) -> Iterator[str]:
    """Where it is: a URL, or a path."""
    if given.database:
        yield given.database
    elif given.postgres:
        sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
        from support.postgres import PostgresServer

        server = PostgresServer(SERVER)
        try:
            given.database = server.new_database()
            yield given.database
        finally:
            server.close()
    else:
        with tempfile.TemporaryDirectory() as folder:
            yield str(Path(folder) / "batchwright.db")


def main() -> int:
    parser = argparse.ArgumentParser(description="How fast and how fairly segments are claimed.")
    parser.add_argument("--segments", type=int, default=1_000_000)
    parser.add_argument("--accounts", type=int, default=10_000)
    parser.add_argument("--lane-sets", type=int, default=4)
    parser.add_argument("--limit", type=int, default=16, help="claims a transaction asks for")
    parser.add_argument("--claims", type=int, default=20_000, help="in all, where there is no --soak")
    parser.add_argument("--workers", type=int, default=1)
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--database", help="an empty one; without it a state file")
    where.add_argument("--postgres", action="store_true", help="a server of the benchmark's own")
    parser.add_argument("--soak", type=float, default=0.0, help="minutes")
    given = parser.parse_args()
    wrong: list[str] = []
    with database(given) as place:
        store = open_store(place if given.database else Path(place))
        began_s = time.perf_counter()
        fill(store, given)
        print(json.dumps({"filled_s": round(time.perf_counter() - began_s, 1), "segments": given.segments}), flush=True)
        soak = condition.Soak(store, lanes_of(0, 1), NOW_MS)
        for found in windows(given, place):
            print(json.dumps(line(found, given.workers) | (soak.look() if given.soak else {})), flush=True)
        for name, steps in condition.plans(store, lanes_of(0, 1)).items():
            print(f"{name}:\n" + "\n".join(f"    {step}" for step in steps))
        if given.soak:
            wrong = soak.verdict(given.soak)
            print("\n".join(wrong) or "every claim by index to the end, and no table grew without rows")
        else:
            print(json.dumps(fairness(store)))
        store.close()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
