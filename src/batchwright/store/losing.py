"""A batch whose rows cannot be read, because bytes that they lie in are gone or damaged, is paused with that reason.

Else whoever claims from it would end with it, again and again, and no other batch would have its turn. Once a person
has put back what is missing, `resume` goes on; without it, `cancel` ends the batch.
"""

from __future__ import annotations

from functools import partial

from sqlalchemy import Connection

from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.errors import BodyLost
from batchwright.store import batches, turning
from batchwright.store.bodies import Bodies


def pause_for(bodies: Bodies, lost: BodyLost, now_ms: int) -> None:
    """In a transaction of its own. `lost` names the batch; one that has ended meanwhile stays as it is."""
    fact = Pause(cause=PauseCause.BODIES, reason=str(lost), since_ms=now_ms)
    bodies.connections.transact(partial(_pause, batch_id=lost.batch_id, fact=fact))


def _pause(connection: Connection, *, batch_id: str, fact: Pause) -> None:
    row = batches.lock(connection, (batch_id,)).get(batch_id)
    if row is not None and row.phase != "settled":
        turning.add_pause(connection, batch_id, fact)
