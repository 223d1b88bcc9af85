"""Facts of the whole store: a name and a text each."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, select

from batchwright.store import dialect
from batchwright.store.schema import fact

_GET = select(fact.c.value).where(fact.c.name == bindparam("of_name"))
_PUT = dialect.insert_or_replace(fact, ("value",))


def get(connection: Connection, name: str) -> str:
    """Empty: nobody has said."""
    return connection.execute(_GET, {"of_name": name}).scalar_one_or_none() or ""


def put(connection: Connection, name: str, value: str) -> None:
    """In place of what was said before."""
    connection.execute(_PUT, {"name": name, "value": value})
