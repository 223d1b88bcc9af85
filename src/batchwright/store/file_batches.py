"""Batches made from a file: what OpenAI's face says of them beside what every batch has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, bindparam, insert, select, update

from batchwright.core.errors import NoSuchBatch
from batchwright.core.output_files import Lines, output_file_id
from batchwright.ports.files import FileBatchRow, LineError
from batchwright.ports.store import NewBatch
from batchwright.store import files, intake, turning
from batchwright.store.schema import batch, file, file_batch

_ADD = insert(file_batch)
_ALL: Select[Any] = select(file_batch, batch.c.round, batch.c.phase, batch.c.seq).join(
    batch, batch.c.batch_id == file_batch.c.batch_id
)
_ONE = _ALL.where(batch.c.batch_id == bindparam("of_batch"), batch.c.phase != "dropping")
_ACCEPTING = _ALL.where(batch.c.phase == "accepting").order_by(batch.c.seq)
_PLACE = select(batch.c.seq).where(
    batch.c.batch_id == bindparam("of_batch"), batch.c.account == bindparam("of_account"), batch.c.phase != "dropping"
)
_FILE_IDS = select(file.c.file_id).where(
    file.c.batch_id == bindparam("of_batch"), file.c.round == bindparam("of_round")
)
_TAKEN_IN = (
    update(file_batch)
    .where(file_batch.c.batch_id == bindparam("of_batch"))
    .values(in_progress_at_ms=bindparam("now_ms"), model=bindparam("new_model"))
)
_SET_ERRORS = (
    update(file_batch).where(file_batch.c.batch_id == bindparam("of_batch")).values(errors=bindparam("new_errors"))
)
_read_errors = msgspec.json.Decoder(tuple[LineError, ...]).decode


def create(connection: Connection, new: NewBatch, row: FileBatchRow) -> None:
    # In the same transaction: a file that is deleted a moment later has a batch by then, and is kept for it.
    files.get_locked(connection, (new.tenant.account, row.file_id), new.created_at_ms)
    intake.create(connection, new)
    values = {
        "batch_id": new.batch_id,
        "file_id": row.file_id,
        "endpoint": row.endpoint,
        "completion_window": row.completion_window,
        "output_expires_s": row.output_expires_s,
        "errors": b"",
    }
    connection.execute(_ADD, values)


def close(connection: Connection, batch_id: str, now_ms: int, model: str) -> None:
    connection.execute(_TAKEN_IN, {"of_batch": batch_id, "now_ms": now_ms, "new_model": model})
    intake.close(connection, batch_id, now_ms)


def refuse(connection: Connection, batch_id: str, errors: Sequence[LineError], now_ms: int) -> None:
    """Of a batch that has nothing taken in. Nothing happens to one that is refused already."""
    if turning.refuse(connection, batch_id, now_ms):
        connection.execute(_SET_ERRORS, {"of_batch": batch_id, "new_errors": msgspec.json.encode(list(errors))})
        files.let_go(connection, batch_id)


def accepting(connection: Connection) -> list[str]:
    return [row.batch_id for row in connection.execute(_ACCEPTING)]


def get(connection: Connection, batch_id: str) -> FileBatchRow:
    row = connection.execute(_ONE, {"of_batch": batch_id}).one_or_none()
    if row is None:
        raise NoSuchBatch(f"There is no batch {batch_id} that was made from a file.")
    return _row(connection, row)


def listed(connection: Connection, wish: tuple[str, str], limit: int) -> list[FileBatchRow]:
    """`wish` is (account, only those older than this one)."""
    account, after = wish
    statement = _ALL.where(batch.c.account == account, batch.c.phase != "dropping")
    if after:
        seq = connection.execute(_PLACE, {"of_batch": after, "of_account": account}).scalar_one_or_none()
        if seq is None:
            raise NoSuchBatch(f"There is no batch {after} that was made from a file.")
        statement = statement.where(batch.c.seq < seq)
    found = connection.execute(statement.order_by(batch.c.seq.desc()).limit(limit)).all()
    return [_row(connection, row) for row in found]


def _row(connection: Connection, row: Row[Any]) -> FileBatchRow:
    ids: frozenset[str] = frozenset()
    if row.phase == "settled":
        key = {"of_batch": row.batch_id, "of_round": row.round}
        ids = frozenset(connection.execute(_FILE_IDS, key).scalars())
    names = {lines: output_file_id(row.batch_id, row.round, lines) for lines in Lines}
    return FileBatchRow(
        batch_id=row.batch_id,
        file_id=row.file_id,
        endpoint=row.endpoint,
        completion_window=row.completion_window,
        output_expires_s=row.output_expires_s,
        model=row.model,
        in_progress_at_ms=row.in_progress_at_ms,
        cancelling_at_ms=row.cancelling_at_ms,
        errors=_read_errors(row.errors) if row.errors else (),
        output_file_id=names[Lines.OUTPUT] if names[Lines.OUTPUT] in ids else "",
        error_file_id=names[Lines.ERRORS] if names[Lines.ERRORS] in ids else "",
    )
