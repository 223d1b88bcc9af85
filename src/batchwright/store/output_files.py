"""The files of a batch that was made from one: they come to be in the transaction that settles it.

A row for each that has lines; their bytes are the batch's rows. A round's files take the place of the round before's.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, insert, select

from batchwright.core.batch_state import count
from batchwright.core.output_files import Lines, filename_of, output_file_id
from batchwright.ports.files import Purpose
from batchwright.store import ledger
from batchwright.store.schema import batch, file, file_batch

MS = 1000
UNKNOWN_SIZE = -1

_OF_FILE = (
    select(batch.c.account, batch.c.round, batch.c.rows, file_batch.c.output_expires_s)
    .join(file_batch, file_batch.c.batch_id == batch.c.batch_id)
    .where(batch.c.batch_id == bindparam("batch_id"))
)
_FORGET = delete(file).where(file.c.batch_id == bindparam("of_batch"))
_ADD = insert(file)


def publish(connection: Connection, batch_id: str, now_ms: int) -> None:
    """For a batch that has just settled; nothing for one that was not made from a file."""
    row = connection.execute(_OF_FILE, {"batch_id": batch_id}).one_or_none()
    if row is None:
        return
    connection.execute(_FORGET, {"of_batch": batch_id})
    counts = count(row.rows, ledger.sum_tally(connection, batch_id, row.round))
    for lines, rows in ((Lines.OUTPUT, counts.succeeded), (Lines.ERRORS, counts.without_success)):
        if not rows:
            continue
        values = {
            "file_id": output_file_id(batch_id, row.round, lines),
            "account": row.account,
            "purpose": Purpose.BATCH_OUTPUT.value,
            "filename": filename_of(batch_id, lines),
            "bytes": UNKNOWN_SIZE,
            "created_at_ms": now_ms,
            "expires_at_ms": now_ms + row.output_expires_s * MS if row.output_expires_s else 0,
            "state": "ready",
            "batch_id": batch_id,
            "round": row.round,
        }
        connection.execute(_ADD, values)
