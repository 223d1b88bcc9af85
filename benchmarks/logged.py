"""What a run leaves in the write-ahead log and in an object store, and how many rows a kill would leave in doubt."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from ours import Bench

from batchwright.core import row_map

SAMPLED_S = 0.05
POSITION = "SELECT pg_current_wal_insert_lsn()::text"
BYTES = "SELECT sum(record_size)::bigint, sum(fpi_size)::bigint FROM pg_get_wal_stats(%s, %s)"
HELD_MAPS = "SELECT row_map FROM segment WHERE state = 'held'"


@dataclass(frozen=True, slots=True)
class Logged:
    """Of one run, from the intake until its file is written."""

    rows: int
    log_bytes: int
    """Without the next."""
    image_bytes: int
    """Of pages that are written whole: those that changed for the first time since the server's last checkpoint."""
    puts: int
    """Objects that are there since: within a run none is deleted but the one that tries the store."""
    reserved: list[int]
    """Rows reserved in the database, at moments of the run: a kill leaves them in doubt. Those in flight are among
    them."""
    wall_s: float


def run(bench: Bench, count: int, base_url: str, environ: dict[str, str]) -> Logged:
    """Of so many rows, right after a checkpoint of the server; the next may come within it."""
    url = environ["BATCHWRIGHT_DATABASE"]
    folder = Path(environ.get("BATCHWRIGHT_BLOBS", "file:///nowhere").removeprefix("file://"))
    before = _count_files(folder)
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE EXTENSION IF NOT EXISTS pg_walinspect")
        connection.execute("CHECKPOINT")
        began = _one(connection, POSITION)[0]
        with _sampled(url) as reserved:
            cost = bench.run(count, base_url, environ)
        log_bytes, image_bytes = _one(connection, BYTES, began, _one(connection, POSITION)[0])
    return Logged(count, log_bytes, image_bytes, _count_files(folder) - before, reserved, cost.wall_s)


def sentence(few: Logged, many: Logged) -> str:
    """What a row comes to beyond a run's fixed cost."""
    rows = many.rows - few.rows
    working = [count for count in many.reserved if count]
    log, images = (many.log_bytes - few.log_bytes) / rows, many.image_bytes / many.rows
    return (
        f"{log:,.1f} bytes a row, {images:,.1f} of whole pages; {(many.puts - few.puts) / rows:.6f} PUTs a row; "
        f"{statistics.median(working):,.0f} rows reserved (median, {max(working):,} at most) "
        f"at {rows / (many.wall_s - few.wall_s):,.0f} rows/s"
    )


@contextmanager
def _sampled(url: str) -> Iterator[list[int]]:
    """How many rows are reserved, again and again until the end of the block."""
    reserved: list[int] = []
    over = threading.Event()

    def sample() -> None:
        with psycopg.connect(url, autocommit=True) as connection:
            while not over.wait(SAMPLED_S):
                maps = connection.execute(HELD_MAPS).fetchall()
                reserved.append(sum(bytes(row[0]).count(row_map.RESERVED) for row in maps))

    sampling = threading.Thread(target=sample)
    sampling.start()
    try:
        yield reserved
    finally:
        over.set()
        sampling.join()


def _one(connection: psycopg.Connection[Any], statement: str, *values: object) -> tuple[Any, ...]:
    row = connection.execute(statement, values).fetchone()
    assert row is not None
    return tuple(row)


def _count_files(folder: Path) -> int:
    return sum(1 for path in folder.rglob("*") if path.is_file())
