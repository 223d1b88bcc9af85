"""`/v1/account/webhooks/*`: who is told when batches end or pause, what was told, and telling it again."""

from __future__ import annotations

import asyncio
import hashlib
import re

import msgspec
from starlette.responses import Response

from batchwright.core.errors import KeyReused
from batchwright.core.targets import Target, TargetRefused
from batchwright.core.webhooks import SECRET_DIGITS, EventType, new_secret
from batchwright.ports.batches import BatchStatus
from batchwright.ports.store import Idempotency
from batchwright.ports.webhooks import Delivery, DeliveryState, Webhook
from batchwright.server.asking import Ask
from batchwright.server.bodies import read_body
from batchwright.server.faults import Fault, of_bad_body
from batchwright.server.infrai.status_view import moment, status_view
from batchwright.server.infrai.submit import REPLAYED, idempotency_key
from batchwright.server.infrai.targets import read_url
from batchwright.server.pace import Paces
from batchwright.wire.bad_body import BadBody
from batchwright.wire.infrai_submit import BatchOptions
from batchwright.wire.infrai_webhooks import read_register

BODY_BYTES = 64 * 1024
MAX_WEBHOOKS = 100
"""Of one account, those of single batches not counted: each is a delivery an event."""
PAGE = 100
MAX_PAGE = 1_000
LOOKUP_S = 10.0

WEBHOOK_ID = re.compile(r"wh_[0-9a-f]{24}")
DELIVERY_ID = re.compile(r"dlv_[0-9a-f]{24}")


async def register(ask: Ask) -> Response:
    body = await read_body(ask.request, BODY_BYTES)
    try:
        wish = read_register(body)
    except BadBody as error:
        raise of_bad_body(error) from None
    account, store = ask.tenant.account, ask.service.webhooks
    key = idempotency_key(ask, BatchOptions(idempotency_key=wish.idempotency_key))
    idempotency = Idempotency(key, hashlib.sha256(body).hexdigest()) if key else None
    first = await _first(ask, idempotency)
    if first is not None:
        return ask.answer(_view(first) | {"secret": None}, {REPLAYED: "true"})
    await _check_leads(ask, read_url(ask, wish.url, "url"))
    if len(await asyncio.to_thread(store.list_webhooks, account)) >= MAX_WEBHOOKS:
        raise Fault(
            "WRONG_STATE", f"The account has {MAX_WEBHOOKS} webhooks, and more are not kept.", hint="Delete one first."
        )
    webhook = Webhook(
        webhook_id=f"wh_{ask.service.chance.hex_id(24)}",
        account=account,
        url=wish.url,
        events=wish.events,
        secret=wish.secret or new_secret(ask.service.chance.hex_id(SECRET_DIGITS)),
        description=wish.description,
        headers=wish.headers,
        created_at_ms=ask.service.clock.now_ms(),
    )
    try:
        await asyncio.to_thread(store.add_webhook, webhook, idempotency)
    except KeyReused:
        # Another registration with the key came first, after it was looked for.
        first = await _first(ask, idempotency)
        if first is None:
            raise
        return ask.answer(_view(first) | {"secret": None}, {REPLAYED: "true"})
    return ask.answer(_view(webhook) | {"secret": None if wish.secret else webhook.secret})


async def _first(ask: Ask, wish: Idempotency | None) -> Webhook | None:
    """What an earlier registration with the key made. Raises KeyReused."""
    if wish is None:
        return None
    account = ask.tenant.account
    found = await asyncio.to_thread(ask.service.webhooks.find_idempotent, account, wish.key, ask.service.clock.now_ms())
    if found is None:
        return None
    webhook = await asyncio.to_thread(ask.service.webhooks.find_webhook, account, found.batch_id)
    if found.digest != wish.digest or webhook is None:
        raise KeyReused(f"the idempotency key {wish.key!r} was used for another request; use another key")
    return webhook


async def _check_leads(ask: Ask, target: Target) -> None:
    """For whoever registers to learn of it at once; it is checked again, and for good, at each delivery."""
    try:
        async with asyncio.timeout(LOOKUP_S):
            await ask.service.targets.resolve(target)
    except TargetRefused as error:
        raise Fault("INVALID_REQUEST", f"url: {error}"[:500], param="url") from None
    except OSError:  # TimeoutError too
        raise Fault("INVALID_REQUEST", f"url: the host {target.host} was not found", param="url") from None


async def list_webhooks(ask: Ask) -> Response:
    found = await asyncio.to_thread(ask.service.webhooks.list_webhooks, ask.tenant.account)
    return ask.answer({"items": [_view(webhook) for webhook in found]})


async def delete(ask: Ask) -> Response:
    webhook_id = _id(ask, "webhook_id", WEBHOOK_ID)
    if not await asyncio.to_thread(ask.service.webhooks.delete_webhook, ask.tenant.account, webhook_id):
        raise _no_webhook()
    return ask.answer({"id": webhook_id, "deleted": True})


async def deliveries(ask: Ask) -> Response:
    webhook_id = _id(ask, "webhook_id", WEBHOOK_ID)
    limit = ask.number("limit", PAGE, least=1, most=MAX_PAGE)
    before = ask.number("cursor", 0, least=0, most=10**18 - 1)
    store = ask.service.webhooks
    if await asyncio.to_thread(store.find_webhook, ask.tenant.account, webhook_id) is None:
        raise _no_webhook()

    def read() -> list[Delivery]:
        return store.list_deliveries(webhook_id, before=before, limit=limit)

    found = await asyncio.to_thread(read)
    return ask.answer(
        {
            "items": [_delivery_view(delivery) for delivery in found],
            "next_cursor": str(found[-1].seq) if len(found) == limit else None,
        }
    )


async def replay(ask: Ask) -> Response:
    delivery_id = _id(ask, "delivery_id", DELIVERY_ID)
    now_ms = ask.service.clock.now_ms()
    store = ask.service.webhooks
    found = await asyncio.to_thread(store.replay_delivery, ask.tenant.account, delivery_id, now_ms)
    if found is None:
        raise Fault("NOT_FOUND", "There is no such delivery in this account.", param="delivery_id")
    return ask.answer(_delivery_view(found))


def message(event: EventType, turned_at_ms: int, status: BatchStatus) -> bytes:
    """What a webhook is sent: the status as it was when the batch turned."""
    # No other look at it counts: each attempt is to send the very same.
    data = status_view(status, Paces().observe(status, turned_at_ms))
    return msgspec.json.encode({"type": event.value, "timestamp": moment(turned_at_ms), "data": data})


def _id(ask: Ask, name: str, shape: re.Pattern[str]) -> str:
    text = str(ask.request.path_params[name])
    if not shape.fullmatch(text):
        what = name.removesuffix("_id")
        raise Fault("NOT_FOUND", f"There is no such {what} in this account.", param=name)
    return text


def _no_webhook() -> Fault:
    return Fault("NOT_FOUND", "There is no such webhook in this account.", param="webhook_id")


def _view(webhook: Webhook) -> dict[str, object]:
    """Without the secret, and without the values of headers, which may be some."""
    return {
        "id": webhook.webhook_id,
        "url": webhook.url,
        "events": sorted(webhook.events),
        "description": webhook.description or None,
        "headers": sorted(webhook.headers),
        "created_at": moment(webhook.created_at_ms),
    }


def _delivery_view(delivery: Delivery) -> dict[str, object]:
    pending = delivery.state is DeliveryState.PENDING
    return {
        "id": delivery.delivery_id,
        "webhook_id": delivery.webhook_id,
        "event_id": delivery.event_id,
        "type": delivery.type.value,
        "batch_id": delivery.batch_id,
        "round": delivery.round,
        "state": delivery.state.value,
        "attempts": delivery.attempts,
        "http_status": delivery.last_status or None,
        "error": delivery.last_error or None,
        "created_at": moment(delivery.created_at_ms),
        "last_attempt_at": moment(delivery.last_attempt_ms),
        "next_attempt_at": moment(delivery.due_ms) if pending else None,
    }
