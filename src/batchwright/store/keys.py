"""Keys of the service, as rows: their hashes, never the keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, Row, bindparam, insert, select, update

from batchwright.core.tenants import Scope
from batchwright.ports.keys import ApiKey
from batchwright.store.schema import api_key

_ADD = insert(api_key)
_FIND = select(api_key).where(api_key.c.digest == bindparam("of_digest"))
_LIST = select(api_key).order_by(api_key.c.created_at_ms, api_key.c.key_id)
_REVOKE = (
    update(api_key)
    .where(api_key.c.key_id == bindparam("of_key"), api_key.c.revoked_at_ms == 0)
    .values(revoked_at_ms=bindparam("now_ms"))
)
_TOUCH = (
    update(api_key)
    .where(api_key.c.key_id == bindparam("of_key"), api_key.c.last_used_ms < bindparam("now_ms"))
    .values(last_used_ms=bindparam("now_ms"))
)


def add(connection: Connection, key: ApiKey, digest: str) -> None:
    values = {
        "key_id": key.key_id,
        "digest": digest,
        "shown": key.shown,
        "account": key.account,
        "name": key.name,
        "scopes": " ".join(sorted(key.scopes)),
        "created_at_ms": key.created_at_ms,
        "expires_at_ms": key.expires_at_ms,
        "budget_picousd": key.budget_picousd,
        "rpm": key.rpm,
    }
    connection.execute(_ADD, values)


def find(connection: Connection, digest: str) -> ApiKey | None:
    row = connection.execute(_FIND, {"of_digest": digest}).one_or_none()
    return None if row is None else _key(row)


def listed(connection: Connection, account: str) -> list[ApiKey]:
    statement = _LIST.where(api_key.c.account == account) if account else _LIST
    return [_key(row) for row in connection.execute(statement)]


def revoke(connection: Connection, key_id: str, now_ms: int) -> bool:
    return connection.execute(_REVOKE, {"of_key": key_id, "now_ms": now_ms}).rowcount > 0


def touch(connection: Connection, used: Mapping[str, int]) -> None:
    if used:
        connection.execute(_TOUCH, [{"of_key": key_id, "now_ms": now_ms} for key_id, now_ms in sorted(used.items())])


def _key(row: Row[Any]) -> ApiKey:
    return ApiKey(
        key_id=row.key_id,
        shown=row.shown,
        account=row.account,
        name=row.name,
        scopes=frozenset(Scope(word) for word in row.scopes.split()),
        created_at_ms=row.created_at_ms,
        expires_at_ms=row.expires_at_ms,
        revoked_at_ms=row.revoked_at_ms,
        last_used_ms=row.last_used_ms,
        budget_picousd=row.budget_picousd,
        rpm=row.rpm,
    )
