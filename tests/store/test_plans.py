"""What runs at every checkpoint or claim finds its rows by an index: no backlog is ever scanned."""

from __future__ import annotations

import pytest
from sqlalchemy.dialects import sqlite
from sqlalchemy.sql import ClauseElement

from batchwright.store import (
    blobs,
    checkpointing,
    claiming,
    closing,
    credit,
    dropping,
    files,
    ledger,
    parts,
    reading,
    webhooks,
    workers,
)
from batchwright.store.prepared import Prepared
from batchwright.store.schema import metadata
from batchwright.store.sqlite import SqliteConnections

STATEMENTS = {
    "picks": claiming._PICKS,
    "picks of one batch": claiming._PICKS_OF_ONE,
    "heads": claiming._HEADS,
    "head": claiming._HEAD,
    "take": claiming._TAKE,
    "due": claiming._DUE,
    "next turn": claiming._NEXT_TURN,
    "held": checkpointing._HELD,
    "fence": checkpointing._FENCE,
    "frames": parts._FRAMES,
    "supersede": blobs._SUPERSEDE,
    "sweep": blobs._SWEEP,
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
    "taken": credit._TAKEN,
    "moving under a key": credit._MOVING,
    "listening": webhooks._LISTENING,
    "deliveries due": webhooks._DUE,
    "deliveries of a webhook": webhooks._PAGE,
    "old deliveries": webhooks._FORGET_OLD,
}


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
    assert [step for step in found_whole if step != "SCAN CONSTANT ROW"] == []
