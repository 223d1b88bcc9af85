"""Files, as rows and blobs: uploads arrive piece by piece; a batch's files are rows alone (`store.output_files`).

What is deleted or has expired is hidden at once, and removed later, some pieces a transaction. An upload in which rows
of batches lie is `kept` for them, hidden; when one of those batches goes it is `deleted` again, and the sweeper looks
whether another is left. So the sweeper never looks twice at what it cannot remove, however much of that there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Row,
    Select,
    and_,
    bindparam,
    delete,
    exists,
    insert,
    or_,
    select,
    text,
    update,
)

from batchwright.core.errors import NoSuchFile
from batchwright.ports.files import FilePage, StoredFile
from batchwright.store import blobs
from batchwright.store.blobs import Span, piece_key
from batchwright.store.bodies import Bodies, Reader
from batchwright.store.schema import UNREADY, UPLOAD_EXPIRES, batch, file, file_batch

SWEPT_PIECES = 64
"""That one step removes of one file."""
SWEPT_FILES = 16
"""That one step looks at, of the deleted and of the expired."""

_ADD = insert(file)
_ONE = select(file).where(file.c.file_id == bindparam("file_id"))
_ADD_PIECES = (
    update(file)
    .where(file.c.file_id == bindparam("of_file"), file.c.state == "arriving")
    .values(pieces=file.c.pieces + bindparam("more"))
    .returning(file.c.pieces)
)
_FINISH = (
    update(file)
    .where(file.c.file_id == bindparam("of_file"), file.c.state == "arriving")
    .values(
        state="ready",
        owner="",
        purpose=bindparam("new_purpose"),
        filename=bindparam("new_filename"),
        bytes=bindparam("new_bytes"),
        expires_at_ms=bindparam("new_expiry"),
    )
)
_SET_SIZE = update(file).where(file.c.file_id == bindparam("of_file")).values(bytes=bindparam("new_bytes"))
_HIDE = update(file).where(file.c.file_id == bindparam("of_file")).values(state="deleted")
_FEWER = (
    update(file)
    .where(file.c.file_id == bindparam("of_file"))
    # Also of one that has expired: with a clock set back it would be found again, and lack its end.
    .values(pieces=bindparam("left"), state="deleted")
)
_DELETE = delete(file).where(file.c.file_id == bindparam("of_file"))
_ARRIVING = select(file.c.file_id, file.c.owner, file.c.created_at_ms).where(text(UNREADY), file.c.state == "arriving")


def _there() -> ColumnElement[bool]:
    """What its account finds now."""
    its_round = exists().where(
        batch.c.batch_id == file.c.batch_id, batch.c.round == file.c.round, batch.c.phase == "settled"
    )
    return and_(
        file.c.account == bindparam("of_account"),
        file.c.state == "ready",
        or_(file.c.expires_at_ms == 0, file.c.expires_at_ms > bindparam("now_ms")),
        or_(file.c.batch_id == "", its_round),
    )


_FIND = select(file).where(file.c.file_id == bindparam("file_id"), _there())
_FIND_LOCKED = _FIND.with_for_update(of=file)
_IS_DELETED = and_(text(UNREADY), file.c.state == "deleted")
_DELETED = select(file.c.file_id).where(_IS_DELETED).order_by(file.c.seq).limit(SWEPT_FILES)
_IS_EXPIRED = and_(text(UPLOAD_EXPIRES), file.c.expires_at_ms <= bindparam("now_ms"))
_EXPIRED = select(file.c.file_id).where(_IS_EXPIRED).order_by(file.c.expires_at_ms).limit(SWEPT_FILES)
_GONE_ONE = (
    select(file.c.pieces).where(file.c.file_id == bindparam("file_id"), or_(_IS_DELETED, _IS_EXPIRED)).with_for_update()
)
_NEEDING = (
    select(batch.c.batch_id)
    .join(file_batch, file_batch.c.batch_id == batch.c.batch_id)
    .where(file_batch.c.file_id == bindparam("file_id"), batch.c.phase != "refused")
    .limit(1)
)
_KEEP = update(file).where(file.c.file_id == bindparam("of_file")).values(state="kept")
_ITS_FILE = select(file_batch.c.file_id).where(file_batch.c.batch_id == bindparam("of_batch")).scalar_subquery()
# The sweeper may be about to keep it for this very batch, which goes: waited for, and seen by the statement after.
_LOCK_ITS_FILE = select(file.c.file_id).where(file.c.file_id == _ITS_FILE).with_for_update()
_LET_GO = update(file).where(file.c.file_id == _ITS_FILE, file.c.state == "kept").values(state="deleted")


def begin(connection: Connection, names: tuple[str, str, str], now_ms: int) -> None:
    """`names` is (its id, its account, the lock of whoever takes it in)."""
    values = {"file_id": names[0], "account": names[1], "owner": names[2], "created_at_ms": now_ms, "state": "arriving"}
    connection.execute(_ADD, values)


def put_outside(bodies: Bodies, file_id: str, packed: Sequence[bytes]) -> list[Span | None]:
    """Where each piece lies, put there before the transaction that adds them; None: it belongs into the table."""
    return bodies.put_all([(f"file/{file_id}", piece) for piece in packed])


def add_pieces(connection: Connection, file_id: str, packed: Sequence[bytes], outside: Sequence[Span | None]) -> None:
    """`outside` is what `put_outside` gave."""
    pieces = connection.execute(_ADD_PIECES, {"of_file": file_id, "more": len(packed)}).scalar_one_or_none()
    if pieces is None:
        raise _none_such(file_id)
    for number, (piece, span) in enumerate(zip(packed, outside, strict=True), pieces - len(packed)):
        blobs.put(connection, piece_key(file_id, number), piece, span)


def finish(connection: Connection, done: StoredFile) -> None:
    values = {
        "of_file": done.file_id,
        "new_purpose": done.purpose,
        "new_filename": done.filename,
        "new_bytes": done.size,
        "new_expiry": done.expires_at_ms,
    }
    if not connection.execute(_FINISH, values).rowcount:
        raise _none_such(done.file_id)


def get(connection: Connection, names: tuple[str, str], now_ms: int) -> StoredFile:
    """`names` is (account, its id)."""
    return _get(connection, names, now_ms, statement=_FIND)


def get_locked(connection: Connection, names: tuple[str, str], now_ms: int) -> StoredFile:
    """As `get`; nobody removes or hides it until this transaction ends."""
    return _get(connection, names, now_ms, statement=_FIND_LOCKED)


def _get(connection: Connection, names: tuple[str, str], now_ms: int, *, statement: Select[Any]) -> StoredFile:
    values = {"of_account": names[0], "file_id": names[1], "now_ms": now_ms}
    row = connection.execute(statement, values).one_or_none()
    if row is None:
        raise _none_such(names[1])
    return _file(row)


def listed(connection: Connection, wish: tuple[str, FilePage], now_ms: int) -> list[StoredFile]:
    account, page = wish
    order = file.c.seq.asc() if page.ascending else file.c.seq.desc()
    statement = select(file).where(_there()).order_by(order).limit(page.limit)
    if page.purpose:
        statement = statement.where(file.c.purpose == page.purpose)
    if page.after:
        place = connection.execute(_ONE, {"file_id": page.after}).one_or_none()
        if place is None or place.account != account:
            raise _none_such(page.after)
        statement = statement.where(file.c.seq > place.seq if page.ascending else file.c.seq < place.seq)
    return [_file(row) for row in connection.execute(statement, {"of_account": account, "now_ms": now_ms})]


def read_piece(connection: Connection, reader: Reader, which: tuple[str, int]) -> bytes:
    """`which` is (file, number). Raises Outside."""
    file_id, number = which
    try:
        return reader.bytes_of(blobs.find(connection, piece_key(file_id, number)))
    except KeyError:
        raise _none_such(file_id) from None


def count_pieces(connection: Connection, file_id: str) -> int:
    row = connection.execute(_ONE, {"file_id": file_id}).one_or_none()
    if row is None:
        raise _none_such(file_id)
    return int(row.pieces)


def set_size(connection: Connection, file_id: str, size: int) -> None:
    connection.execute(_SET_SIZE, {"of_file": file_id, "new_bytes": size})


def hide(connection: Connection, file_id: str) -> None:
    connection.execute(_HIDE, {"of_file": file_id})


def arriving(connection: Connection) -> list[tuple[str, str, int]]:
    return [(row.file_id, row.owner, row.created_at_ms) for row in connection.execute(_ARRIVING)]


def let_go(connection: Connection, batch_id: str) -> None:
    """The batch needs its file no more, which the sweeper is to look at again."""
    connection.execute(_LOCK_ITS_FILE, {"of_batch": batch_id})
    connection.execute(_LET_GO, {"of_batch": batch_id})


def gone(connection: Connection, now_ms: int) -> list[str]:
    """Some of the uploads that were deleted or have expired, and are neither removed nor kept."""
    deleted = list(connection.execute(_DELETED).scalars())
    return deleted + list(connection.execute(_EXPIRED, {"now_ms": now_ms}).scalars())


def sweep_step(connection: Connection, file_id: str, now_ms: int) -> int:
    """Keeps the upload if a batch needs it, and returns 1; else removes its last pieces, and it itself with the last of
    them, and returns how many, at least 1."""
    # Asked again under the lock: a batch may have been made of one that has expired by now.
    pieces: int | None = connection.execute(_GONE_ONE, {"file_id": file_id, "now_ms": now_ms}).scalar_one_or_none()
    if pieces is None:
        return 0
    if connection.execute(_NEEDING, {"file_id": file_id}).first() is not None:
        connection.execute(_KEEP, {"of_file": file_id})
        return 1
    left = max(0, pieces - SWEPT_PIECES)
    blobs.discard(connection, [piece_key(file_id, number) for number in range(left, pieces)])
    if left:
        connection.execute(_FEWER, {"of_file": file_id, "left": left})
    else:
        connection.execute(_DELETE, {"of_file": file_id})
    return max(1, pieces - left)


def _file(row: Row[Any]) -> StoredFile:
    return StoredFile(
        file_id=row.file_id,
        account=row.account,
        purpose=row.purpose,
        filename=row.filename,
        size=row.bytes,
        pieces=row.pieces,
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        batch_id=row.batch_id,
        round=row.round,
    )


def _none_such(file_id: str) -> NoSuchFile:
    return NoSuchFile(f"There is no file {file_id}.")
