"""What was spent and drawn under a key, and why a batch is paused whose cap, or key, leaves too little. Reads alone."""

from __future__ import annotations

from dataclasses import replace

from sqlalchemy import Connection, bindparam, exists, func, or_, select, text

from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.records import Tally
from batchwright.core.spent_out import cap_reason, key_reason
from batchwright.ports.keys import KeyCredit
from batchwright.store import batches, ledger, pausing
from batchwright.store.prepared import Prepared, StoredRow
from batchwright.store.schema import HAS_KEY, UNSETTLED_OF_KEY, allowance, api_key, batch, usage, worker

BUDGET = Prepared(
    select(api_key.c.key_id, api_key.c.shown, api_key.c.budget_picousd).where(api_key.c.key_id == bindparam("of_key"))
)
_SPENT = select(func.coalesce(func.sum(usage.c.cost_picousd), 0)).where(
    usage.c.key_id == bindparam("of_key"), text(HAS_KEY)
)
_DRAWN = select(func.coalesce(func.sum(allowance.c.picousd), 0)).where(
    or_(
        allowance.c.batch_id == bindparam("of_key"),
        allowance.c.batch_id.in_(
            select(batch.c.batch_id).where(batch.c.key_id == bindparam("of_key"), text(UNSETTLED_OF_KEY))
        ),
    ),
    ~exists().where(worker.c.id == allowance.c.worker_id, (worker.c.dead != 0) | (worker.c.ended != 0)),
)
# In one statement: a cost that leaves an allowance at that moment is counted there or here.
_TAKEN = Prepared(select(_SPENT.scalar_subquery().label("spent"), _DRAWN.scalar_subquery().label("drawn")))
_OF_MONEY = (PauseCause.BUDGET, PauseCause.KEY_BUDGET)


def of_key(connection: Connection, key_id: str) -> KeyCredit | None:
    """None: there is no such key."""
    key = {"of_key": key_id}
    row = BUDGET.first(connection, key)
    if row is None:
        return None
    spent = drawn = 0
    if row.budget_picousd >= 0:
        ((spent, drawn),) = _TAKEN.all(connection, key)
    return KeyCredit(
        key_id=key_id,
        shown=row.shown,
        budget_picousd=row.budget_picousd,
        spent_picousd=int(spent),
        drawn_picousd=int(drawn),
    )


def pauses_of(connection: Connection, row: StoredRow, tally: Tally) -> tuple[Pause, ...]:
    """A batch's pause facts, the oldest first, with their reasons in words. `tally`: of its present round."""
    return tuple(_in_words(connection, row, (fact, tally)) for fact in pausing.facts_of(connection, row.batch_id))


def batch_pauses(connection: Connection, limit: int) -> list[tuple[str, Pause]]:
    found = []
    for batch_id, fact in pausing.batch_pauses(connection, limit):
        row = batches.find(connection, batch_id) if fact.cause in _OF_MONEY else None
        tally = ledger.sum_tally(connection, batch_id, row.round) if row is not None else Tally()
        found.append((batch_id, _in_words(connection, row, (fact, tally)) if row is not None else fact))
    return found


def _in_words(connection: Connection, row: StoredRow, what: tuple[Pause, Tally]) -> Pause:
    """With the reason in words: of a spent budget in those that are true now."""
    fact, tally = what
    if fact.cause is PauseCause.KEY_BUDGET:
        key = of_key(connection, row.key_id)
        if key is None:
            return fact
        reason = key_reason(fact.reason, key.key_id, budget_picousd=key.budget_picousd, spent_picousd=key.spent_picousd)
    elif fact.cause is PauseCause.BUDGET:
        aside_picousd = tally.possible_picousd + tally.orphan_picousd
        reason = cap_reason(
            fact.reason,
            cap_picousd=row.cap_picousd,
            spent_picousd=tally.cost_picousd,
            aside_picousd=aside_picousd,
            held_picousd=tally.allowance_picousd,
        )
    else:
        return fact
    return replace(fact, reason=reason)
