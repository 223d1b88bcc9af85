"""What runs at every checkpoint or claim finds its rows by an index: no backlog is ever scanned."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest
from sqlalchemy import Connection
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import ClauseElement

from batchwright.store import (
    backlog,
    batches,
    blobs,
    body_days,
    claiming,
    closing,
    credit,
    dropping,
    fencing,
    files,
    funds,
    ledger,
    parts,
    queueing,
    reading,
    webhooks,
    workers,
)
from batchwright.store.postgres import PostgresConnections
from batchwright.store.prepared import Prepared
from batchwright.store.schema import metadata
from batchwright.store.sqlite import SqliteConnections
from support.postgres import PostgresServer

STATEMENTS = {
    "sets of lanes": queueing._LANE_SETS,
    "first accounts": queueing._FIRST,
    "urgent batches": queueing._URGENT,
    "places": queueing._PLACES,
    "batches locked": batches._SOME_LOCKED,
    "picks": queueing._PICKS,
    "segments held": queueing._HELD,
    "resting": queueing._RESTING,
    "charge": queueing._CHARGE,
    "queue's row": queueing._LOCK,
    "rest": queueing._REST,
    "fill": queueing._FILL,
    "waiting again": backlog._ADD,
    "fewer waiting": backlog._LOWER_IN_TURN,
    "picks of one batch": claiming._PICKS_OF_ONE,
    "heads": claiming._HEADS,
    "head": claiming._HEAD,
    "take": claiming._TAKE,
    "due": claiming._DUE,
    "held": fencing._HELD,
    "fence": fencing._FENCE,
    "named": parts._NAMED,
    "frames": parts._FRAMES,
    "supersede": blobs._SUPERSEDE,
    "superseded": blobs._OLD,
    "blob": blobs._FIND,
    "objects to sweep": blobs._OLD_OBJECTS,
    "unheld": closing._UNHELD,
    "expire": closing._EXPIRE,
    "awaiting": closing._AWAITING,
    "let go": workers._LET_GO,
    "still holds": ledger._STILL_HOLDS,
    "from": reading._FROM,
    "holding": reading._HOLDING,
    "ended before": dropping._ENDED_BEFORE,
    "uploads that arrive": files._ARRIVING,
    "uploads deleted": files._DELETED,
    "uploads expired": files._EXPIRED,
    "needing an upload": files._NEEDING,
    "letting an upload go": files._LET_GO,
    "taken": funds._TAKEN,
    "moving under a key": credit._MOVING,
    "listening": webhooks._LISTENING,
    "deliveries due": webhooks._DUE,
    "deliveries of a webhook": webhooks._PAGE,
    "old deliveries": webhooks._FORGET_OLD,
}


CLAIMS = (
    *(
        "sets of lanes",
        "first accounts",
        "urgent batches",
        "places",
        "batches locked",
        "picks",
        "segments held",
        "resting",
        "charge",
    ),
    *("queue's row", "rest", "fill", "waiting again", "fewer waiting", "picks of one batch", "heads", "head", "take"),
    "due",
)
"""Of a claim."""
ORDERED = ("sets of lanes", "first accounts", "urgent batches", "picks", "head", "due", "resting")
"""Read in the order of an index: nothing is sorted."""
NUMBERS = re.compile(r"_ms|at_most|number|more|fewer|claims|turn|epoch|weight|tokens|taker|state|^param_|^virtual")


@pytest.mark.parametrize("name", STATEMENTS)
def test_no_table_is_scanned(name: str) -> None:
    found = STATEMENTS[name]
    statement = found.statement if isinstance(found, Prepared) else found
    assert isinstance(statement, ClauseElement)
    compiled = statement.compile(dialect=sqlite.dialect(paramstyle="named"))
    connections = SqliteConnections(None)
    with connections.write() as connection:
        metadata.create_all(connection)
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", dict.fromkeys(compiled.params, 1)).all()
    connections.close()
    steps = [row[3] for row in plan]
    # Reading a partial index from its start is no scan of the table: it holds just the rows that are asked for.
    found_whole = [step for step in steps if step.startswith("SCAN") and " INDEX " not in step]
    assert [step for step in found_whole if step.split()[1] in metadata.tables] == []
    if name in ORDERED:
        assert [step for step in steps if "TEMP B-TREE" in step] == []


@pytest.fixture(scope="module")
def on_postgres(postgres: PostgresServer) -> Iterator[Connection]:
    """A transaction in which a table is read whole only where no index would do."""
    with postgres.database() as url:
        connections = PostgresConnections(url, shown=url)
        with connections.write() as connection:
            connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
            connection.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
            yield connection
        connections.close()


def plan_of(connection: Connection, sql: str, values: object) -> list[str]:
    driver = connection.connection.dbapi_connection
    assert isinstance(driver, psycopg.Connection)
    return [row[0] for row in driver.execute(f"EXPLAIN {sql}", values).fetchall()]


@pytest.mark.parametrize("name", CLAIMS)
def test_a_claim_scans_nothing_on_postgresql(on_postgres: Connection, name: str) -> None:
    statement = STATEMENTS[name]
    assert isinstance(statement, Prepared)
    text = statement._text(on_postgres)
    names = set(re.findall(r"%\((\w+)\)s", text.sql))
    values = {name: 1 if NUMBERS.search(name) else "x" for name in names - set(text._fixed)}
    values |= {name: ["x", "y"] for name in names & {"accounts", "batch_ids"}}
    plan = plan_of(on_postgres, text.sql, text.bound(values))
    assert [line for line in plan if "Seq Scan" in line] == []
    if name in ORDERED:
        assert [line for line in plan if "Sort" in line] == []


@pytest.mark.parametrize(
    ("statement", "values"),
    [
        (blobs._FIND, {"key": "00003/input/b/1"}),
        (parts._FRAMES, {"batch_id": "b", "number": 1, "blob_keys": ["00003/part/w/1/1", "00003/part/w/1/2"]}),
        (blobs._SUPERSEDE, {"old_key": "00003/part/w/1/1", "now_ms": 1}),
    ],
    ids=["blob", "frames", "supersede"],
)
def test_one_days_bodies_are_looked_for_in_its_table_alone(
    on_postgres: Connection, statement: Prepared, values: dict[str, object]
) -> None:
    """Known before it runs, so that the other days are not even locked."""
    for day in range(6):
        body_days.make(on_postgres, day)
    text = statement._text(on_postgres)
    plan = plan_of(on_postgres, text.sql, text.bound(values))
    assert set(re.findall(r"blob_\d+\b", " ".join(plan))) >= {"blob_3"}
    assert [line for line in plan if re.search(r"on blob_([0-24-9]|undated)\b", line) or "Seq Scan" in line] == []
