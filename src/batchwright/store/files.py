"""Files, as rows and blobs: uploads arrive piece by piece; a batch's files are rows alone (`store.output_files`).

What is deleted or has expired is hidden at once and removed later, some pieces a transaction, once no batch takes its
rows in from it.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, and_, bindparam, delete, exists, insert, or_, select, update

from batchwright.core.errors import NoSuchFile
from batchwright.ports.files import FilePage, StoredFile
from batchwright.store.blobs import TableBlobs
from batchwright.store.schema import batch, file, file_batch

SWEPT_PIECES = 64
"""That one step removes of one file."""
SWEPT_FILES = 16
"""That one step looks at."""

_ADD = insert(file)
_ONE = select(file).where(file.c.file_id == bindparam("file_id"))
_ADD_PIECE = (
    update(file)
    .where(file.c.file_id == bindparam("of_file"), file.c.state == "arriving")
    .values(pieces=file.c.pieces + 1)
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
_FEWER = update(file).where(file.c.file_id == bindparam("of_file")).values(pieces=bindparam("left"))
_DELETE = delete(file).where(file.c.file_id == bindparam("of_file"))
_ARRIVING = select(file.c.file_id, file.c.owner).where(file.c.state == "arriving")


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
_NEEDED = (
    exists()
    .where(file_batch.c.file_id == file.c.file_id, batch.c.batch_id == file_batch.c.batch_id)
    .where(batch.c.phase == "accepting")
)
_IS_DEAD = and_(
    file.c.batch_id == "",
    or_(file.c.state == "deleted", and_(file.c.expires_at_ms > 0, file.c.expires_at_ms <= bindparam("now_ms"))),
    ~_NEEDED,
)
_DEAD = select(file.c.file_id).where(_IS_DEAD).order_by(file.c.seq).limit(SWEPT_FILES)
_DEAD_ONE = select(file.c.pieces).where(file.c.file_id == bindparam("file_id"), _IS_DEAD)


def piece_key(file_id: str, number: int) -> str:
    return f"file/{file_id}/{number}"


def begin(connection: Connection, names: tuple[str, str, str], now_ms: int) -> None:
    """`names` is (its id, its account, the lock of whoever takes it in)."""
    values = {"file_id": names[0], "account": names[1], "owner": names[2], "created_at_ms": now_ms, "state": "arriving"}
    connection.execute(_ADD, values)


def add_piece(connection: Connection, file_id: str, packed: bytes) -> None:
    pieces = connection.execute(_ADD_PIECE, {"of_file": file_id}).scalar_one_or_none()
    if pieces is None:
        raise _none_such(file_id)
    TableBlobs(connection).put(piece_key(file_id, pieces - 1), packed)


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
    values = {"of_account": names[0], "file_id": names[1], "now_ms": now_ms}
    row = connection.execute(_FIND, values).one_or_none()
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


def read_piece(connection: Connection, file_id: str, number: int) -> bytes:
    try:
        return TableBlobs(connection).get(piece_key(file_id, number))
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


def arriving(connection: Connection) -> list[tuple[str, str]]:
    return [(row.file_id, row.owner) for row in connection.execute(_ARRIVING)]


def dead(connection: Connection, now_ms: int) -> list[str]:
    """Some of the uploads whose bytes nobody needs any more."""
    return list(connection.execute(_DEAD, {"now_ms": now_ms}).scalars())


def sweep_step(connection: Connection, file_id: str, now_ms: int) -> int:
    """Removes the last pieces of a dead upload, and it itself with the last of them; returns how many, at least 1."""
    # Asked again under the lock: a batch may have begun to take it in.
    pieces: int | None = connection.execute(_DEAD_ONE, {"file_id": file_id, "now_ms": now_ms}).scalar_one_or_none()
    if pieces is None:
        return 0
    left = max(0, pieces - SWEPT_PIECES)
    TableBlobs(connection).delete([piece_key(file_id, number) for number in range(left, pieces)])
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
