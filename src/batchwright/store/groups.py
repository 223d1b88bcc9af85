"""Groups of rows at vendors' batch APIs (`ports.groups`), as rows of a table."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, bindparam, delete, select, update

from batchwright.ports.groups import Group, RowAttempt
from batchwright.store import dialect
from batchwright.store.schema import row_group

_KEEP = dialect.insert_or_keep(row_group)
_NAME = (
    update(row_group).where(row_group.c.tag == bindparam("of_tag")).values(vendor_batch_id=bindparam("new_vendor_id"))
)
_DROP = delete(row_group).where(row_group.c.tag == bindparam("of_tag"))
_OF_BATCH = (
    select(row_group)
    .where(row_group.c.batch_id == bindparam("of_batch"))
    .order_by(row_group.c.kept_at_ms, row_group.c.tag)
)
_ROWS_OF_BATCH = select(row_group.c.rows).where(row_group.c.batch_id == bindparam("of_batch"))
_decode_rows = msgspec.msgpack.Decoder(tuple[RowAttempt, ...]).decode
_decode_ids = msgspec.msgpack.Decoder(tuple[str, ...]).decode


def keep(connection: Connection, group: Group) -> None:
    values = {
        "tag": group.tag,
        "batch_id": group.batch_id,
        "vendor": group.vendor,
        "vendor_batch_id": group.vendor_batch_id,
        "rows": msgspec.msgpack.encode(group.rows),
        "ids": msgspec.msgpack.encode(group.ids),
        "keeper": group.keeper,
        "kept_at_ms": group.kept_at_ms,
    }
    connection.execute(_KEEP, values)


def name(connection: Connection, tag: str, vendor_batch_id: str) -> None:
    connection.execute(_NAME, {"of_tag": tag, "new_vendor_id": vendor_batch_id})


def drop(connection: Connection, tag: str) -> None:
    connection.execute(_DROP, {"of_tag": tag})


def of_batch(connection: Connection, batch_id: str) -> list[Group]:
    return [
        Group(
            tag=row.tag,
            batch_id=row.batch_id,
            vendor=row.vendor,
            rows=_decode_rows(row.rows),
            ids=_decode_ids(row.ids),
            vendor_batch_id=row.vendor_batch_id,
            keeper=row.keeper,
            kept_at_ms=row.kept_at_ms,
        )
        for row in connection.execute(_OF_BATCH, {"of_batch": batch_id})
    ]


def rows_of_batch(connection: Connection, batch_id: str) -> frozenset[RowAttempt]:
    """Every attempt of the batch's rows that went, or was about to go, to a batch API."""
    packed = connection.execute(_ROWS_OF_BATCH, {"of_batch": batch_id}).scalars()
    return frozenset(row for rows in packed for row in _decode_rows(rows))
