"""Blobs in a table beside the truth (`ports.blobs`), and the keys they lie under.

A key says what wrote it and is used once. Superseded blobs are marked, never deleted by the transaction that
supersedes them: a reader may hold their names. The sweeper deletes them later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, exists, insert, select, text, update

from batchwright.core.worker_id import WorkerId
from batchwright.store.prepared import Prepared
from batchwright.store.schema import SUPERSEDED, blob, part

MAX_BYTES = 8 * 1024 * 1024
"""Of blobs in one transaction; a single larger one goes alone."""

_PUT = Prepared(insert(blob), ("key", "data"))
_GET = Prepared(select(blob.c.data).where(blob.c.key == bindparam("key")))
_DELETE = delete(blob).where(blob.c.key == bindparam("dead_key"))
_SUPERSEDE = (
    update(blob)
    .where(blob.c.key == bindparam("old_key"), ~exists().where(part.c.blob_key == blob.c.key))
    .values(superseded_at_ms=bindparam("now_ms"))
)
_SWEEP = delete(blob).where(
    blob.c.key.in_(
        select(blob.c.key)
        .where(text(SUPERSEDED), blob.c.superseded_at_ms <= bindparam("until_ms"))
        .order_by(blob.c.superseded_at_ms)
        .limit(bindparam("at_most"))
    )
)


def input_key(batch_id: str, number: int) -> str:
    return f"input/{batch_id}/{number}"


def piece_key(file_id: str, number: int) -> str:
    """A piece of an uploaded file; the bodies of batches' rows may lie in it."""
    return f"file/{file_id}/{number}"


def intake_key(batch_id: str, number: int) -> str:
    """Records of rows that ended at intake."""
    return f"intake/{batch_id}/{number}"


def part_key(worker: WorkerId, number: int) -> str:
    """What one checkpoint of one worker wrote."""
    return f"part/{worker}/{number}"


def doubt_key(batch_id: str, number: int, epoch: int) -> str:
    """What was noted of rows that a lost lease, or a round that ended, left in doubt."""
    return f"doubt/{batch_id}/{number}/{epoch}"


def result_key(batch_id: str, number: int, round_epoch: tuple[int, int]) -> str:
    """A segment's merged result; an epoch settles at most once."""
    return f"result/{batch_id}/{number}/{round_epoch[0]}/{round_epoch[1]}"


class TableBlobs:
    """Implements `ports.blobs.Blobs` within the transaction of the connection it was made for."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def put(self, key: str, data: bytes) -> None:
        _PUT.run(self._connection, {"key": key, "data": data})

    def get(self, key: str) -> bytes:
        found = _GET.first(self._connection, {"key": key})
        if found is None:
            raise KeyError(key)
        return bytes(found[0])

    def delete(self, keys: Sequence[str]) -> None:
        if keys:
            self._connection.execute(_DELETE, [{"dead_key": key} for key in keys])


def supersede(connection: Connection, keys: Iterable[str], now_ms: int) -> None:
    """Marks those of the blobs that no part leads to any more."""
    old = [{"old_key": key, "now_ms": now_ms} for key in keys]
    if old:
        connection.execute(_SUPERSEDE, old)


def delete_superseded(connection: Connection, until_ms: int, limit: int) -> int:
    """Deletes up to `limit` blobs superseded until then; returns how many."""
    return connection.execute(_SWEEP, {"until_ms": until_ms, "at_most": limit}).rowcount
