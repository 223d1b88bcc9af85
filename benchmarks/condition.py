"""How a database stands while it is claimed from: its plans of a claim's statements, and what churn has left behind.

It goes below the store's contract, to its connections, which is what the silenced checks are for.
"""

from __future__ import annotations

import re
from typing import Any

from sqlalchemy import Connection

from batchwright.ports.store import Store
from batchwright.store import backlog, claiming, parts, queueing
from batchwright.store.blobs import DAY_MS
from batchwright.store.prepared import Prepared

STATEMENTS: dict[str, Prepared] = {
    "sets of lanes": queueing._LANE_SETS,
    "first accounts": queueing._FIRST,
    "places": queueing._PLACES,
    "picks": queueing._PICKS,
    "head": claiming._HEAD,
    "take": claiming._TAKE,
    "fewer waiting": backlog._LOWER_IN_TURN,
    "charge": queueing._CHARGE,
    "frames": parts._FRAMES,
}
ORDERED = ("sets of lanes", "first accounts", "picks", "head")
"""Read in the order of an index: nothing is sorted."""
TABLES = ("segment", "pick", "queue", "batch", "blob", "part")
"""That churn rewrites; the tables of all days together."""
SCANNED_ROWS = 10_000
"""A server rightly reads a smaller table whole, and sorts fewer rows than `SORTED_ROWS`."""
SORTED_ROWS = 100
RETIRED = 50
"""Batches that are deleted after a window, at most."""
GROWTH_AFTER_MIN = 10.0
"""A server vacuums once a minute: growth over less says nothing."""
GROWTH = 2.0
_ROWS = re.compile(r"rows=(\d+)")
_SCANNED = re.compile(r"Seq Scan on (\w+)")
_SIZES = """
    SELECT regexp_replace(relname, '^blob_.*', 'blob') AS name, sum(n_live_tup), sum(n_dead_tup),
        sum(pg_total_relation_size(relid)), sum(autovacuum_count)
    FROM pg_stat_user_tables GROUP BY 1
"""


def plans(store: Store, lanes: str) -> dict[str, list[str]]:
    """How the database goes about a claim's statements now, step by step."""

    def read(connection: Connection) -> dict[str, list[str]]:
        return {name: _plan(connection, statement, lanes) for name, statement in STATEMENTS.items()}

    return store._connections.transact(read)  # type: ignore[attr-defined, no-any-return]


def _plan(connection: Connection, statement: Prepared, lanes: str) -> list[str]:
    text = statement._text(connection)
    if not _is_server(connection):
        values = tuple(1 for _ in text._order or ())
        return [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {text.sql}", values)]
    names = set(re.findall(r"%\((\w+)\)s", text.sql)) - set(text._fixed)
    bound = text.bound({name: lanes if "lanes" in name else _value(name) for name in names})
    driver: Any = connection.connection.dbapi_connection
    return [row[0] for row in driver.execute(f"EXPLAIN {text.sql}", bound).fetchall()]


def _value(name: str) -> object:
    some = {
        "accounts": ["account_0"],
        "of_account": "account_0",
        "of_batch": "batch_0",
        "batch_id": "batch_0",
        "blob_keys": ["00000/part/claimer0/1/2"],
    }
    return some.get(name, 1)


def faults(store: Store, found: dict[str, list[str]]) -> list[str]:
    """A sentence for each step that reads a whole table, or sorts what an index has in order."""
    large = store._connections.look(_large)  # type: ignore[attr-defined]
    wrong = []
    for name, steps in found.items():
        for step in steps:
            scanned = _SCANNED.search(step)
            whole = scanned[1].partition("_")[0] if scanned else ""
            if step.startswith("SCAN ") and " INDEX " not in step:
                whole = step.split()[1]
            if whole in large:
                wrong.append(f"{name} reads all of {whole}: {step.strip()}")
            if name in ORDERED and _sorts(step):
                wrong.append(f"{name} sorts: {step.strip()}")
    return wrong


def _sorts(step: str) -> bool:
    rows = _ROWS.search(step)
    return "TEMP B-TREE" in step or ("Sort  (" in step and rows is not None and int(rows[1]) > SORTED_ROWS)


def _large(connection: Connection) -> set[str]:
    if not _is_server(connection):
        return set(TABLES)
    return {name for name, live, *_ in connection.exec_driver_sql(_SIZES) if name in TABLES and live > SCANNED_ROWS}


def left_behind(store: Store) -> dict[str, Any]:
    """Of a server by table: rows, dead rows, MB with indexes, how often it was vacuumed. Of a state file: MB in all and
    MB that are free."""

    def read(connection: Connection) -> dict[str, Any]:
        if not _is_server(connection):
            pages, free, size = (
                connection.exec_driver_sql(f"PRAGMA {name}").scalar()
                for name in ("page_count", "freelist_count", "page_size")
            )
            return {"mb": _mb(pages * size), "free_mb": _mb(free * size)}
        return {
            name: {"rows": int(live), "dead": int(dead), "mb": _mb(size), "vacuumed": int(times)}
            for name, live, dead, size, times in connection.exec_driver_sql(_SIZES)
            if name in TABLES
        }

    return store._connections.look(read)  # type: ignore[attr-defined, no-any-return]


def _mb(size: float) -> float:
    return round(float(size) / 1e6, 1)


def _is_server(connection: Connection) -> bool:
    return connection.dialect.name == "postgresql"


class Soak:
    """What is looked at between the parts of a soak."""

    def __init__(self, store: Store, lanes: str, now_ms: int) -> None:
        self._store = store
        self._lanes = lanes
        self._now_ms = now_ms
        self._wrong: dict[str, None] = {}
        self._left: list[dict[str, Any]] = []

    def look(self) -> dict[str, Any]:
        wrong = faults(self._store, plans(self._store, self._lanes))
        self._wrong.update(dict.fromkeys(wrong))
        self._left.append(left_behind(self._store))
        return {"plans": wrong or "by index", "left_behind": self._left[-1], "retired": self._retire()}

    def _retire(self) -> int:
        old = self._store.ended_before(self._now_ms + 1, RETIRED)
        for batch_id in old:
            self._store.drop_batch(batch_id, with_day=True)
        self._store.sweep_step(self._now_ms + DAY_MS)
        return len(old)

    def verdict(self, minutes: float) -> list[str]:
        """What is wrong; empty: nothing."""
        grown = []
        middle, last = self._left[len(self._left) // 2], self._left[-1]
        for name in middle if minutes >= GROWTH_AFTER_MIN and "mb" not in middle else ():
            before, now = (each[name]["mb"] / max(1, each[name]["rows"]) for each in (middle, last))
            if now > GROWTH * before:
                grown.append(f"{name} takes {now / before:.1f} times the room a row that it took at half of the time")
        return [*self._wrong, *grown]
