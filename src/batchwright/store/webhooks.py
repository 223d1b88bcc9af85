"""Webhooks as rows, and the outbox: a delivery is one event for one webhook, claimed under a lease until it has ended.

The lease is the row's own: a claim raises its epoch and puts `due_ms` off to the lease's end, so that a delivery whose
sender died is due again by itself.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, bindparam, delete, exists, func, insert, select, text, update

from batchwright.core.webhooks import EventType
from batchwright.ports.store import BatchRow
from batchwright.ports.webhooks import AttemptEnd, ClaimedDelivery, Delivery, DeliveryState, DeliveryWish, Webhook
from batchwright.store import dialect
from batchwright.store.schema import PENDING, batch, delivery, webhook

KEPT_MS = 30 * 86_400_000
"""How long what became of a delivery can be read."""
DELETE_STEP = 1_000
"""Deliveries that one transaction deletes."""

_ADD = insert(webhook)
_FIND = select(webhook).where(
    webhook.c.webhook_id == bindparam("of_webhook"), webhook.c.account == bindparam("of_account")
)
_LIST = (
    select(webhook)
    .where(webhook.c.account == bindparam("of_account"), webhook.c.batch_id == "")
    .order_by(webhook.c.created_at_ms, webhook.c.webhook_id)
)
_DELETE = delete(webhook).where(
    webhook.c.webhook_id == bindparam("of_webhook"), webhook.c.account == bindparam("of_account")
)


def add(connection: Connection, new: Webhook) -> None:
    values = {
        "webhook_id": new.webhook_id,
        "account": new.account,
        "batch_id": new.batch_id,
        "url": new.url,
        "events": " ".join(sorted(new.events)),
        "secret": new.secret,
        "description": new.description,
        "headers": msgspec.json.encode(new.headers).decode(),
        "created_at_ms": new.created_at_ms,
    }
    connection.execute(_ADD, values)


def find(connection: Connection, account: str, webhook_id: str) -> Webhook | None:
    row = connection.execute(_FIND, {"of_webhook": webhook_id, "of_account": account}).one_or_none()
    return None if row is None else _webhook(row)


def listed(connection: Connection, account: str) -> list[Webhook]:
    return [_webhook(row) for row in connection.execute(_LIST, {"of_account": account})]


def remove(connection: Connection, account: str, webhook_id: str) -> bool:
    """Its deliveries are dead from here on; `drop_deliveries` removes them."""
    return connection.execute(_DELETE, {"of_webhook": webhook_id, "of_account": account}).rowcount > 0


def _webhook(row: Row[Any]) -> Webhook:
    return Webhook(
        webhook_id=row.webhook_id,
        account=row.account,
        batch_id=row.batch_id,
        url=row.url,
        events=frozenset(EventType(word) for word in row.events.split()),
        secret=row.secret,
        description=row.description,
        headers=msgspec.json.decode(row.headers, type=dict[str, str]),
        created_at_ms=row.created_at_ms,
    )


# ---------------------------------------------------------------------------------------------------------- events

_LISTENING = (
    select(webhook.c.webhook_id, webhook.c.account, webhook.c.events)
    .select_from(batch.join(webhook, webhook.c.account == batch.c.account))
    .where(batch.c.batch_id == bindparam("of_batch"), webhook.c.batch_id.in_(("", bindparam("of_batch"))))
)
_ANNOUNCE = dialect.insert_or_keep(delivery)


def listening(connection: Connection, batch_id: str) -> Sequence[Row[*tuple[Any, ...]]]:
    """The webhooks that are told of the batch: one look by index where there is none."""
    return connection.execute(_LISTENING, {"of_batch": batch_id}).all()


def announce(
    connection: Connection, listeners: Sequence[Row[*tuple[Any, ...]]], event: EventType, turned: tuple[BatchRow, int]
) -> None:
    """`turned` is (the batch as it stands, when it turned so). The same turn is announced once."""
    row, moment_ms = turned
    turn = "paused" if event is EventType.PAUSED else "settled"
    event_id = "evt_" + _digest(row.batch_id, row.round, turn, moment_ms)
    snapshot = msgspec.msgpack.encode(row)
    values = [
        {
            "delivery_id": "dlv_" + _digest(event_id, listener.webhook_id),
            "webhook_id": listener.webhook_id,
            "account": listener.account,
            "event_id": event_id,
            "type": event.value,
            "batch_id": row.batch_id,
            "round": row.round,
            "snapshot": snapshot,
            "state": DeliveryState.PENDING.value,
            "due_ms": moment_ms,
            "created_at_ms": moment_ms,
        }
        for listener in listeners
        if event.value in listener.events.split()
    ]
    if values:
        connection.execute(_ANNOUNCE, values)


def _digest(*parts: object) -> str:
    return hashlib.blake2s("\n".join(map(str, parts)).encode(), digest_size=12).hexdigest()


# ------------------------------------------------------------------------------------------------------- deliveries

_PAGE = (
    select(delivery)
    .where(delivery.c.webhook_id == bindparam("of_webhook"), delivery.c.seq < bindparam("before"))
    .order_by(delivery.c.seq.desc())
    .limit(bindparam("at_most"))
)
_OF_ACCOUNT = select(delivery).where(
    delivery.c.delivery_id == bindparam("of_delivery"),
    delivery.c.account == bindparam("of_account"),
    exists().where(webhook.c.webhook_id == delivery.c.webhook_id),
)
_REPLAY = (
    update(delivery)
    .where(delivery.c.delivery_id == bindparam("of_delivery"))
    .values(
        state=DeliveryState.PENDING.value,
        waits_used=0,
        due_ms=bindparam("now_ms"),
        epoch=delivery.c.epoch + 1,
        owner="",
    )
)
_DUE = select(delivery.c.seq).where(text(PENDING), delivery.c.due_ms <= bindparam("now_ms")).limit(1)


def page(connection: Connection, webhook_id: str, before: int, limit: int) -> list[Delivery]:
    values = {"of_webhook": webhook_id, "before": before or 2**62, "at_most": limit}
    return [_delivery(row) for row in connection.execute(_PAGE, values)]


def replay(connection: Connection, account: str, delivery_id: str, now_ms: int) -> Delivery | None:
    names = {"of_delivery": delivery_id, "of_account": account}
    if connection.execute(_OF_ACCOUNT, names).one_or_none() is None:
        return None
    # The epoch too: an attempt that is under way must not end the replay.
    connection.execute(_REPLAY, {"of_delivery": delivery_id, "now_ms": now_ms})
    return _delivery(connection.execute(_OF_ACCOUNT, names).one())


def has_due(connection: Connection, now_ms: int) -> bool:
    return connection.execute(_DUE, {"now_ms": now_ms}).first() is not None


def claim(connection: Connection, wish: DeliveryWish) -> list[ClaimedDelivery]:
    rows = connection.execute(_chosen(wish)).all()
    if not rows:
        return []
    statement = (
        update(delivery)
        .where(delivery.c.seq == bindparam("of_seq"))
        .values(owner=wish.owner, due_ms=wish.now_ms + wish.lease_ms, epoch=delivery.c.epoch + 1)
    )
    connection.execute(statement, [{"of_seq": row.seq} for row in rows])
    hooks = {
        row.webhook_id: _webhook(row)
        for row in connection.execute(select(webhook).where(webhook.c.webhook_id.in_({row.webhook_id for row in rows})))
    }
    for webhook_id in {row.webhook_id for row in rows} - hooks.keys():
        drop_deliveries(connection, webhook_id)  # removed, and whoever did so ended before its deliveries were
    return [
        ClaimedDelivery(
            delivery=_delivery(row), webhook=hooks[row.webhook_id], epoch=row.epoch + 1, snapshot=row.snapshot
        )
        for row in rows
        if row.webhook_id in hooks
    ]


def _chosen(wish: DeliveryWish) -> Any:
    due: list[ColumnElement[bool]] = [text(PENDING), delivery.c.due_ms <= wish.now_ms]  # type: ignore[list-item]  # text is one too
    # Of a webhook that was removed the deliveries may still be there (`claim`): each is an address of its own.
    url = func.coalesce(webhook.c.url, delivery.c.webhook_id)
    account = func.coalesce(webhook.c.account, delivery.c.webhook_id)
    wanted = list(due)
    if wish.but_urls:
        wanted.append(url.not_in(wish.but_urls))
    if wish.but_accounts:
        wanted.append(account.not_in(wish.but_accounts))
    in_order = (delivery.c.due_ms, delivery.c.seq)
    of_url = func.row_number().over(partition_by=url, order_by=in_order)
    ranked = (
        select(delivery.c.seq, account.label("account"), of_url.label("of_url"), delivery.c.due_ms)
        .outerjoin_from(delivery, webhook, webhook.c.webhook_id == delivery.c.webhook_id)
        .where(*wanted)
        .subquery()
    )
    of_account = func.row_number().over(partition_by=ranked.c.account, order_by=(ranked.c.due_ms, ranked.c.seq))
    chosen = select(ranked.c.seq, of_account.label("of_account")).where(ranked.c.of_url <= wish.per_url).subquery()
    return (
        select(delivery)
        .join(chosen, chosen.c.seq == delivery.c.seq)
        .where(*due, chosen.c.of_account <= wish.per_account)
        .order_by(delivery.c.due_ms, delivery.c.seq)
        .limit(wish.limit)
        # What another sender claims at this moment is left to it; it was due when it was chosen, and is asked again.
        .with_for_update(of=delivery, skip_locked=True)
    )


_FINISH = (
    update(delivery)
    .where(delivery.c.seq == bindparam("of_seq"), delivery.c.epoch == bindparam("of_epoch"), text(PENDING))
    .values(
        state=bindparam("new_state"),
        due_ms=bindparam("new_due"),
        owner="",
        attempts=delivery.c.attempts + 1,
        waits_used=bindparam("waits"),
        last_status=bindparam("status"),
        last_error=bindparam("error"),
        last_attempt_ms=bindparam("now_ms"),
    )
)
_OWNERS = select(delivery.c.owner).where(text(PENDING), delivery.c.owner != "").distinct()
_RELEASE = (
    update(delivery)
    .where(text(PENDING), delivery.c.owner == bindparam("of_owner"))
    .values(owner="", due_ms=bindparam("now_ms"))
)


def finish(connection: Connection, claimed: ClaimedDelivery, end: AttemptEnd, now_ms: int) -> bool:
    values = {
        "of_seq": claimed.delivery.seq,
        "of_epoch": claimed.epoch,
        "new_state": end.state.value,
        "new_due": end.due_ms,
        "waits": end.waits_used,
        "status": end.status,
        "error": end.error,
        "now_ms": now_ms,
    }
    written = connection.execute(_FINISH, values).rowcount > 0
    if written and claimed.webhook.batch_id and end.state is not DeliveryState.PENDING:
        connection.execute(_FORGET_OF_GONE_BATCH, {"of_webhook": claimed.webhook.webhook_id})
    return written


def owners(connection: Connection) -> frozenset[str]:
    return frozenset(connection.execute(_OWNERS).scalars())


def release(connection: Connection, owner: str, now_ms: int) -> int:
    return connection.execute(_RELEASE, {"of_owner": owner, "now_ms": now_ms}).rowcount


def _delivery(row: Row[Any]) -> Delivery:
    return Delivery(
        seq=row.seq,
        delivery_id=row.delivery_id,
        webhook_id=row.webhook_id,
        event_id=row.event_id,
        type=EventType(row.type),
        batch_id=row.batch_id,
        round=row.round,
        state=DeliveryState(row.state),
        attempts=row.attempts,
        waits_used=row.waits_used,
        due_ms=row.due_ms,
        last_status=row.last_status,
        last_error=row.last_error,
        created_at_ms=row.created_at_ms,
        last_attempt_ms=row.last_attempt_ms,
    )


# ------------------------------------------------------------------------------------------------------------ the end

_DROP_DELIVERIES = delete(delivery).where(
    delivery.c.seq.in_(
        select(delivery.c.seq).where(delivery.c.webhook_id == bindparam("of_webhook")).limit(DELETE_STEP)
    )
)
_FORGET_OLD = delete(delivery).where(
    delivery.c.seq.in_(
        select(delivery.c.seq).where(delivery.c.created_at_ms < bindparam("since_ms")).limit(DELETE_STEP)
    )
)
_NOTHING_PENDING = ~exists().where(delivery.c.webhook_id == webhook.c.webhook_id, text(PENDING))
_FORGET_OF_BATCH = delete(webhook).where(
    webhook.c.account == select(batch.c.account).where(batch.c.batch_id == bindparam("of_batch")).scalar_subquery(),
    webhook.c.batch_id == bindparam("of_batch"),
    _NOTHING_PENDING,
)
_FORGET_OF_GONE_BATCH = delete(webhook).where(
    webhook.c.webhook_id == bindparam("of_webhook"),
    ~exists().where(batch.c.batch_id == webhook.c.batch_id),
    _NOTHING_PENDING,
)


def drop_deliveries(connection: Connection, webhook_id: str) -> bool:
    """Some of those of a webhook that was removed; true while there may be more."""
    return connection.execute(_DROP_DELIVERIES, {"of_webhook": webhook_id}).rowcount == DELETE_STEP


def forget_old(connection: Connection, now_ms: int) -> None:
    connection.execute(_FORGET_OLD, {"since_ms": now_ms - KEPT_MS})


def forget_of_batch(connection: Connection, batch_id: str) -> None:
    """Before the batch itself goes: its own webhook, unless that has something to send yet (`finish` removes it)."""
    connection.execute(_FORGET_OF_BATCH, {"of_batch": batch_id})
