"""Figures of the whole store for whoever watches the service: a few sums, read in one transaction."""

from __future__ import annotations

from sqlalchemy import Connection, case, func, select, text

from batchwright.ports.observer import Backlog, Spent
from batchwright.store import pausing, queueing, workers
from batchwright.store.schema import LIVES, PICKABLE, batch, pick, usage, worker

_BATCHES = (
    select(
        case((batch.c.phase != "open", "accepting"), (batch.c.paused != 0, "paused"), else_="open").label("state"),
        func.count().label("batches"),
    )
    .where(batch.c.phase.in_(("accepting", "reopening", "open")))
    .group_by("state")
)
_WAITING_SINCE = select(func.coalesce(func.min(pick.c.created_at_ms), 0)).where(text(PICKABLE))
_WORKERS = select(func.count()).select_from(worker).where(text(LIVES))
_SPENT = select(
    usage.c.vendor,
    usage.c.model,
    func.sum(usage.c.answers).label("answers"),
    func.sum(usage.c.prompt_tokens).label("prompt_tokens"),
    func.sum(usage.c.completion_tokens).label("completion_tokens"),
    func.sum(usage.c.cost_picousd).label("cost_picousd"),
).group_by(usage.c.vendor, usage.c.model)


def backlog(connection: Connection) -> Backlog:
    return Backlog(
        batches={row.state: int(row.batches) for row in connection.execute(_BATCHES)},
        waiting_since_ms=int(connection.execute(_WAITING_SINCE).scalar_one()),
        fairness=queueing.fairness(connection),
        workers=int(connection.execute(_WORKERS).scalar_one()),
        waits=workers.waits(connection),
        quarantines=tuple(pausing.quarantines(connection)),
        spent=tuple(
            Spent(
                vendor=row.vendor,
                model=row.model,
                answers=int(row.answers),
                prompt_tokens=int(row.prompt_tokens),
                completion_tokens=int(row.completion_tokens),
                cost_picousd=int(row.cost_picousd),
            )
            for row in connection.execute(_SPENT)
        ),
    )
