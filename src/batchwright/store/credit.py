"""Budgets of the service's keys: what was spent under one, and what stands still once that is all it may spend.

Spent is the sum of usage under the key, of every batch it submitted and every day. Drawn is what workers hold of it for
rows that are out, as allowances of its batches, and for single calls, as allowances under the key's own id: so spent
and drawn together never pass the budget, as long as no answer costs more than is known of its request beforehand.

A worker that has gone holds nothing of it: what its rows may have cost is in doubt, and doubt counts for no key. Were
its draws waited for, until others have taken over all it left, those who wait would be the ones to take it over: they
have rows enough, for which they lack just that money.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from sqlalchemy import Connection, bindparam, func, select, text, update

from batchwright.core.batch_state import Pause, PauseCause
from batchwright.core.spent_out import reason_kept
from batchwright.store import funds, ledger, turning
from batchwright.store.prepared import Prepared
from batchwright.store.schema import HAS_KEY, UNSETTLED_OF_KEY, api_key, batch, usage

_SPENDING = (
    select(usage.c.key_id, func.sum(usage.c.cost_picousd))
    .where(usage.c.tenant == bindparam("of_account"), text(HAS_KEY))
    .group_by(usage.c.key_id)
)
_SET_BUDGET = update(api_key).where(api_key.c.key_id == bindparam("of_key")).values(budget_picousd=bindparam("picousd"))
_MOVING = (
    select(batch.c.batch_id, batch.c.segments_open)
    .where(batch.c.key_id == bindparam("of_key"), text(UNSETTLED_OF_KEY), batch.c.paused == 0)
    .order_by(batch.c.batch_id)
    .with_for_update()
)
# Of a key that has a budget: two that spend the last of it at once would each find some left.
_LOCK_BUDGET = Prepared(
    select(api_key.c.key_id)
    .where(api_key.c.key_id == bindparam("of_key"), api_key.c.budget_picousd >= 0)
    .with_for_update()
)


def lock(connection: Connection, key_ids: Iterable[str]) -> list[str]:
    """Those of the keys that have a budget: from here on nobody else draws from it or finds it spent, until this
    transaction ends. The empty id is no key."""
    return [
        key_id
        for key_id in sorted(key_ids)
        if key_id and _LOCK_BUDGET.first(connection, {"of_key": key_id}) is not None
    ]


def with_budget(connection: Connection, key_ids: Collection[str]) -> frozenset[str]:
    """Those of the keys that have one; the empty id is no key."""
    found = [funds.BUDGET.first(connection, {"of_key": key_id}) for key_id in sorted(key_ids) if key_id]
    return frozenset(row.key_id for row in found if row is not None and row.budget_picousd >= 0)


def hold(connection: Connection, key_id: str, worker_id: int, wish: tuple[int, int]) -> int:
    """Draws for a call, under the key in place of a batch; `wish` is (picousd, the least that is of use)."""
    picousd, least_picousd = wish
    lock(connection, (key_id,))
    credit = funds.of_key(connection, key_id)
    if credit is not None and credit.budget_picousd >= 0:
        picousd = min(picousd, credit.left_picousd)
    if picousd < least_picousd:
        return 0
    ledger.draw_allowance(connection, key_id, worker_id, picousd)
    return picousd


def spending(connection: Connection, account: str) -> dict[str, int]:
    return {key_id: int(picousd) for key_id, picousd in connection.execute(_SPENDING, {"of_account": account})}


def set_budget(connection: Connection, key_id: str, picousd: int) -> bool:
    return connection.execute(_SET_BUDGET, {"of_key": key_id, "picousd": picousd}).rowcount > 0


def pause_spent(connection: Connection, key_ids: Iterable[str], settling: Mapping[str, int], now_ms: int) -> set[str]:
    """Pauses what moves under those of the keys whose budget is spent; returns the batches. Part of the transaction
    that wrote their usage: no later claim hands out another row of such a batch. `settling`: segments that end with
    this transaction, by batch; a batch that ends with it has nothing left to pause."""
    paused: set[str] = set()
    for key_id in lock(connection, key_ids):
        credit = funds.of_key(connection, key_id)
        if credit is None or not credit.is_spent:
            continue
        fact = Pause(cause=PauseCause.KEY_BUDGET, reason=reason_kept(0), since_ms=now_ms)
        for row in connection.execute(_MOVING, {"of_key": key_id}).all():
            if row.segments_open > settling.get(row.batch_id, 0):
                turning.add_pause(connection, row.batch_id, fact)
                paused.add(row.batch_id)
    return paused
