"""What goes from the object store: objects of superseded blobs, and those that nobody names.

An object nobody names was put for a transaction that never landed, or its blob's row went a moment before a crash. It
is found by listing, some names at a time from where the last step ended, and left alone until it is a day old: a put
comes before the commit that names it. Which store it is and where the listing stands are facts of the database, so that
every process goes on from there, one at a time under the sweeper's lease.
"""

from __future__ import annotations

from contextlib import suppress

from sqlalchemy import Connection

from batchwright.core.errors import StoreError
from batchwright.store import blobs, facts
from batchwright.store.bodies import Bodies

ORPHAN_MS = 24 * 3_600_000
"""So old an object has to be."""
LISTED_EVERY_MS = 24 * 3_600_000
"""From one beginning of the listing to the next."""
EXPORTS = "export"
"""Below the store's mark: what `object_exports` writes, below the batch's id."""
EXPORTS_MAX = 1000
"""Of one batch; there are two of each round and price."""
AFTER, BEGUN = "orphans after", "orphans begun at"
"""Facts: the name that the listing has come to, and when it began at the first one."""


def delete_superseded(bodies: Bodies, until_ms: int, limit: int) -> int:
    """Deletes up to `limit` objects superseded until then, then their rows; returns how many."""
    if bodies.objects is None:
        return 0
    found = bodies.connections.look(lambda connection: blobs.superseded_objects(connection, until_ms, limit))
    if found:
        bodies.tie()  # not elsewhere meanwhile: rows would go whose objects stay
        bodies.objects.delete(list(dict.fromkeys(found.values())))
        bodies.connections.transact(lambda connection: blobs.forget(connection, list(found)))
    return len(found)


def delete_orphans(bodies: Bodies, now_ms: int, limit: int) -> int:
    """One step; returns how many were deleted."""
    if bodies.objects is None or not bodies.sees_tie():
        return 0
    after, begun_ms = bodies.connections.look(_standing)
    if not after and now_ms - begun_ms < LISTED_EVERY_MS:
        return 0
    listed = bodies.objects.listed(bodies.under, after, limit)
    old = [each.name for each in listed if now_ms - each.modified_ms > ORPHAN_MS]
    named = bodies.connections.look(lambda connection: blobs.named(connection, old)) if old else frozenset()
    orphans = [name for name in old if name not in named]
    if orphans:
        bodies.objects.delete(orphans)

    def go_on(connection: Connection) -> None:
        facts.put(connection, AFTER, listed[-1].name if len(listed) == limit else "")
        if not after:
            facts.put(connection, BEGUN, str(now_ms))

    bodies.connections.transact(go_on)
    return len(orphans)


def delete_exports(bodies: Bodies, batch_id: str) -> None:
    """Of a batch that is removed: links to them end with it. No row names them, so what a store that is away keeps now
    goes as all orphans do."""
    if bodies.objects is None or not bodies.is_tied:
        return
    with suppress(StoreError):
        found = bodies.objects.listed(f"{bodies.under}/{EXPORTS}/{batch_id}", "", EXPORTS_MAX)
        bodies.objects.delete([each.name for each in found])


def _standing(connection: Connection) -> tuple[str, int]:
    return facts.get(connection, AFTER), int(facts.get(connection, BEGUN) or 0)
