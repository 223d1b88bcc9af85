"""Idempotency keys: written with the batch they make, in its first transaction, so that two requests make one batch.

The key of rows that still arrive has an empty digest: it is completed in the transaction that closes the intake.
"""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, select, update

from batchwright.core.errors import KeyReused
from batchwright.ports.store import Idempotency, IdempotentBatch
from batchwright.store import dialect
from batchwright.store.schema import idempotency

KEPT_MS = 24 * 3_600_000
"""How long a key stands for its batch."""

_FIND = select(idempotency).where(
    idempotency.c.account == bindparam("of_account"),
    idempotency.c.key == bindparam("of_key"),
    idempotency.c.created_at_ms > bindparam("since_ms"),
)
# In one statement with the question whose key it is: of two batches made at once under one key one alone gets it.
_KEEP = dialect.insert_or_replace(
    idempotency,
    ("digest", "batch_id", "created_at_ms"),
    only_if=(idempotency.c.batch_id == bindparam("of_batch")) | (idempotency.c.created_at_ms <= bindparam("since_ms")),
)
_COMPLETE = update(idempotency).where(idempotency.c.batch_id == bindparam("of_batch")).values(digest=bindparam("known"))
_FORGET_OLD = delete(idempotency).where(idempotency.c.created_at_ms <= bindparam("since_ms"))
_FORGET_BATCH = delete(idempotency).where(idempotency.c.batch_id == bindparam("of_batch"))


def find(connection: Connection, place: tuple[str, str], now_ms: int) -> IdempotentBatch | None:
    """`place` is (account, key)."""
    values = {"of_account": place[0], "of_key": place[1], "since_ms": now_ms - KEPT_MS}
    row = connection.execute(_FIND, values).one_or_none()
    return None if row is None else IdempotentBatch(batch_id=row.batch_id, digest=row.digest)


def keep(connection: Connection, wish: Idempotency, place: tuple[str, str], now_ms: int) -> None:
    """`place` is (account, batch_id). Raises KeyReused if the key stands for another batch by now."""
    account, batch_id = place
    values = {
        "account": account,
        "key": wish.key,
        "digest": wish.digest,
        "batch_id": batch_id,
        "created_at_ms": now_ms,
        "of_batch": batch_id,
        "since_ms": now_ms - KEPT_MS,
    }
    if not connection.execute(_KEEP, values).rowcount:
        found = find(connection, (account, wish.key), now_ms)
        made = found.batch_id if found is not None else "another batch"
        raise KeyReused(f"the idempotency key {wish.key!r} made {made}")


def complete(connection: Connection, batch_id: str, digest: str) -> None:
    """The digest of rows that arrived, known at their end."""
    connection.execute(_COMPLETE, {"of_batch": batch_id, "known": digest})


def forget_old(connection: Connection, now_ms: int) -> None:
    connection.execute(_FORGET_OLD, {"since_ms": now_ms - KEPT_MS})


def forget_batch(connection: Connection, batch_id: str) -> None:
    connection.execute(_FORGET_BATCH, {"of_batch": batch_id})
