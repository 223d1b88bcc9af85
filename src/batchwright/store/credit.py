"""Budgets of the service's keys: what was spent under one, and what stands still once that is all it may spend.

Spent is the sum of usage under the key, of every batch it submitted and every day; nothing beside it is kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, func, select, text, update

from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.money import usd_text
from batchwright.ports.keys import KeyCredit
from batchwright.store import turning
from batchwright.store.schema import HAS_KEY, UNSETTLED_OF_KEY, api_key, batch, usage

_BUDGET = select(api_key.c.key_id, api_key.c.shown, api_key.c.budget_picousd).where(
    api_key.c.key_id == bindparam("of_key")
)
_SPENT = select(func.coalesce(func.sum(usage.c.cost_picousd), 0)).where(
    usage.c.key_id == bindparam("of_key"), text(HAS_KEY)
)
_SPENDING = (
    select(usage.c.key_id, func.sum(usage.c.cost_picousd))
    .where(usage.c.tenant == bindparam("of_account"), text(HAS_KEY))
    .group_by(usage.c.key_id)
)
_SET_BUDGET = update(api_key).where(api_key.c.key_id == bindparam("of_key")).values(budget_picousd=bindparam("picousd"))
_MOVING = select(batch.c.batch_id, batch.c.segments_open).where(
    batch.c.key_id == bindparam("of_key"), text(UNSETTLED_OF_KEY), batch.c.paused == 0
)


def of_key(connection: Connection, key_id: str) -> KeyCredit | None:
    """None: there is no such key."""
    row = connection.execute(_BUDGET, {"of_key": key_id}).one_or_none()
    if row is None:
        return None
    spent = int(connection.execute(_SPENT, {"of_key": key_id}).scalar_one()) if row.budget_picousd >= 0 else 0
    return KeyCredit(key_id=key_id, shown=row.shown, budget_picousd=row.budget_picousd, spent_picousd=spent)


def spending(connection: Connection, account: str) -> dict[str, int]:
    return {key_id: int(picousd) for key_id, picousd in connection.execute(_SPENDING, {"of_account": account})}


def set_budget(connection: Connection, key_id: str, picousd: int) -> bool:
    return connection.execute(_SET_BUDGET, {"of_key": key_id, "picousd": picousd}).rowcount > 0


def pause_spent(connection: Connection, key_ids: Iterable[str], settling: Mapping[str, int], now_ms: int) -> set[str]:
    """Pauses what moves under those of the keys whose budget is spent; returns the batches. Part of the transaction
    that wrote their usage: no later claim hands out another row of such a batch. `settling`: segments that end with
    this transaction, by batch; a batch that ends with it has nothing left to pause."""
    paused: set[str] = set()
    for key_id in sorted(key_ids):
        credit = of_key(connection, key_id) if key_id else None
        if credit is None or not credit.is_spent:
            continue
        fact = Pause(cause=PauseCause.BUDGET, reason=_sentence(credit), since_ms=now_ms)
        for row in connection.execute(_MOVING, {"of_key": key_id}).all():
            if row.segments_open > settling.get(row.batch_id, 0):
                turning.add_pause(connection, row.batch_id, fact)
                paused.add(row.batch_id)
    return paused


def _sentence(credit: KeyCredit) -> str:
    return (
        f"the budget of {credit.key_id} is spent (${usd_text(credit.spent_picousd)} of "
        f"${usd_text(credit.budget_picousd)}); `batchwright keys budget {credit.key_id} USD` gives it more, then resume"
    )
