"""Blobs: immutable bytes under a key that says what wrote them and is used once.

A key begins with a day, of which on a PostgreSQL server all blobs are a table of their own (`store.body_days`): an
input's is the day its batch came in, of what came after it the day it was written. Pieces of files have none.

Each blob has its row. Its bytes are in that row, or in an object of the object store (`store.bodies`), perhaps beside
those of others, and the row says where. Superseded blobs are marked, never deleted by the transaction that supersedes
them: a reader may hold their names. The sweeper deletes them later, and an object once all go that lie in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, Text, bindparam, cast, delete, exists, insert, literal, or_, select, text, update

from batchwright.core.worker_id import WorkerId
from batchwright.store.prepared import Prepared
from batchwright.store.schema import IS_OBJECT, SUPERSEDED, blob, part

MAX_BYTES = 8 * 1024 * 1024
"""Of blobs in one transaction; a single larger one goes alone."""
DAY_MS = 86_400_000
LONG_AGO_MS = 1
"""When a blob was superseded whose readers find nothing of it any more."""

_PUT = Prepared(insert(blob), ("key", "object", "object_size", "object_offset", "size", "data"))
_FIND = Prepared(
    select(blob.c.data, blob.c.object, blob.c.object_size, blob.c.object_offset, blob.c.size).where(
        blob.c.key == bindparam("key")
    )
)
_IS_ONE = blob.c.key.in_(bindparam("dead_keys", expanding=True))
_IS_UNNAMED = ~exists().where(part.c.blob_key == blob.c.key)
_DELETE = delete(blob).where(_IS_ONE)
_DELETE_UNNAMED = _DELETE.where(_IS_UNNAMED)
_LEAVE = (
    update(blob)
    .where(_IS_ONE, text(IS_OBJECT))
    .values(
        key=literal("gone/") + blob.c.object + literal("/") + cast(blob.c.object_offset, Text),
        superseded_at_ms=LONG_AGO_MS,
    )
)
_LEAVE_UNNAMED = _LEAVE.where(_IS_UNNAMED)
_SUPERSEDE = Prepared(
    update(blob).where(blob.c.key == bindparam("old_key"), _IS_UNNAMED).values(superseded_at_ms=bindparam("now_ms"))
)
_IS_OLD = (text(SUPERSEDED), blob.c.superseded_at_ms <= bindparam("until_ms"))
_OLD = (
    select(blob.c.key)
    .where(*_IS_OLD, blob.c.object == "")
    .order_by(blob.c.superseded_at_ms)
    .limit(bindparam("at_most"))
)
_beside = blob.alias("beside")
_OLD_OBJECTS = (
    select(blob.c.key, blob.c.object)
    .where(
        text(f"blob.{SUPERSEDED}"),
        text(f"blob.{IS_OBJECT}"),
        blob.c.superseded_at_ms <= bindparam("until_ms"),
        ~exists().where(
            _beside.c.object == blob.c.object,
            text(f"beside.{IS_OBJECT}"),
            or_(_beside.c.superseded_at_ms == 0, _beside.c.superseded_at_ms > bindparam("until_ms")),
        ),
    )
    .order_by(blob.c.superseded_at_ms)
    .limit(bindparam("at_most"))
)
_NAMED = select(blob.c.object).where(text(IS_OBJECT), blob.c.object.in_(bindparam("objects", expanding=True)))
_ANY_OBJECT = select(blob.c.key).where(text(IS_OBJECT)).limit(1)


class Span(NamedTuple):
    """A run of an object's bytes."""

    object: str
    offset: int
    length: int
    size: int
    """Of the whole object."""


def day_of(moment_ms: int) -> int:
    return moment_ms // DAY_MS


def of_day(day: int) -> tuple[str, str]:
    """All keys of a day: from the first to before the second, by code points."""
    return f"{day:05}/", f"{day:05}0"


def _dated(moment_ms: int, rest: str) -> str:
    return of_day(day_of(moment_ms))[0] + rest


def input_key(batch_id: str, number: int, created_at_ms: int) -> str:
    """`created_at_ms`: of the batch."""
    return _dated(created_at_ms, f"input/{batch_id}/{number}")


def piece_key(file_id: str, number: int) -> str:
    """A piece of an uploaded file; the bodies of batches' rows may lie in it."""
    return f"file/{file_id}/{number}"


def intake_key(batch_id: str, number: int, created_at_ms: int) -> str:
    """Records of rows that ended at intake. `created_at_ms`: of the batch."""
    return _dated(created_at_ms, f"intake/{batch_id}/{number}")


def part_key(worker: WorkerId, number: int, now_ms: int) -> str:
    """What one checkpoint of one worker wrote."""
    return _dated(now_ms, f"part/{worker}/{number}")


def doubt_key(segment: tuple[str, int], epoch: int, now_ms: int) -> str:
    """What was noted of rows that a lost lease, or a round that ended, left in doubt."""
    return _dated(now_ms, f"doubt/{segment[0]}/{segment[1]}/{epoch}")


def result_key(segment: tuple[str, int], round_epoch: tuple[int, int], now_ms: int) -> str:
    """A segment's merged result; an epoch settles at most once."""
    return _dated(now_ms, f"result/{segment[0]}/{segment[1]}/{round_epoch[0]}/{round_epoch[1]}")


def put(connection: Connection, key: str, data: bytes, outside: Span | None = None) -> None:
    """`key` must be new. `outside`: where its bytes lie already; they are left out of the row then."""
    if outside is not None:
        put_object(connection, key, outside)
    else:
        own = {"object": "", "object_size": 0, "object_offset": 0}
        _PUT.run(connection, {"key": key, **own, "size": len(data), "data": data})


def put_object(connection: Connection, key: str, span: Span) -> None:
    """`key` must be new; the object holds its bytes already."""
    own = {"object": span.object, "object_size": span.size, "object_offset": span.offset}
    _PUT.run(connection, {"key": key, **own, "size": span.length, "data": b""})


def find(connection: Connection, key: str) -> bytes | Span:
    """A blob's bytes, or where they lie. Raises KeyError for a key that was never put, or was deleted."""
    found = _FIND.first(connection, {"key": key})
    if found is None:
        raise KeyError(key)
    if found.object:
        return Span(found.object, found.object_offset, found.size, found.object_size)
    return bytes(found.data)


def discard(connection: Connection, keys: Sequence[str], *, unnamed: bool = False, with_day: bool = False) -> None:
    """Deletes those that exist; with `unnamed` those alone that no part leads to. The row of an object is kept, under
    no key that anybody asks for, until the sweeper has deleted the object. `with_day`: what is in the table stays, and
    goes with all of its day."""
    if keys:
        dead = {"dead_keys": list(keys)}
        connection.execute(_LEAVE_UNNAMED if unnamed else _LEAVE, dead)
        if not with_day:
            connection.execute(_DELETE_UNNAMED if unnamed else _DELETE, dead)


def supersede(connection: Connection, keys: Iterable[str], now_ms: int) -> None:
    """Marks those of the blobs that no part leads to any more."""
    old = [{"old_key": key, "now_ms": now_ms} for key in keys]
    if old:
        _SUPERSEDE.run_many(connection, old)


def delete_superseded(connection: Connection, until_ms: int, limit: int) -> int:
    """Deletes up to `limit` blobs of this table superseded until then; returns how many."""
    # By name: what is deleted by a question of its own is looked for in the tables of all days.
    old = list(connection.execute(_OLD, {"until_ms": until_ms, "at_most": limit}).scalars())
    if old:
        forget(connection, old)
    return len(old)


def superseded_objects(connection: Connection, until_ms: int, limit: int) -> dict[str, str]:
    """Of those whose bytes are in objects where nothing else is any more: key -> object, up to `limit`."""
    rows = connection.execute(_OLD_OBJECTS, {"until_ms": until_ms, "at_most": limit})
    return {row.key: row.object for row in rows}


def forget(connection: Connection, keys: Sequence[str]) -> None:
    """Deletes these rows alone; their objects, if any, are no more."""
    connection.execute(_DELETE, {"dead_keys": list(keys)})


def named(connection: Connection, objects: Sequence[str]) -> frozenset[str]:
    """Those of the objects that a row names."""
    return frozenset(connection.execute(_NAMED, {"objects": list(objects)}).scalars())


def any_object(connection: Connection) -> bool:
    """Whether any blob's bytes are an object."""
    return connection.execute(_ANY_OBJECT).first() is not None
