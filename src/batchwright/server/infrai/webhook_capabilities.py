"""The routes of webhooks, `/v1/account/webhooks/*`, as rows of the table."""

from __future__ import annotations

from batchwright.core.tenants import Scope
from batchwright.core.webhooks import EventType
from batchwright.ports.webhooks import DeliveryState
from batchwright.server.capabilities import (
    COUNT,
    FLAG,
    MOMENT,
    TEXT,
    Capability,
    Param,
    Place,
    field,
    header,
    query,
    shape,
    with_field,
)
from batchwright.server.infrai.schemas import TEXT_OR_NULL
from batchwright.server.infrai.webhooks import MAX_PAGE, delete, deliveries, list_webhooks, register, replay
from batchwright.wire.infrai_webhooks import EVERY

BASE = "/v1/account/webhooks"
EVENT_NAMES = [event.value for event in EventType]

WEBHOOK = shape(
    {
        "id": TEXT,
        "url": TEXT,
        "events": {"type": "array", "items": {"enum": EVENT_NAMES}},
        "description": TEXT_OR_NULL,
        "headers": {"type": "array", "items": TEXT},
        "created_at": MOMENT,
    }
)
DELIVERY = shape(
    {
        "id": TEXT,
        "webhook_id": TEXT,
        "event_id": TEXT,
        "type": {"enum": EVENT_NAMES},
        "batch_id": TEXT,
        "round": COUNT,
        "state": {"enum": [state.value for state in DeliveryState]},
        "attempts": COUNT,
        "http_status": {"type": ["integer", "null"]},
        "error": TEXT_OR_NULL,
        "created_at": MOMENT,
        "last_attempt_at": MOMENT,
        "next_attempt_at": MOMENT,
    }
)


def _in_path(name: str, prefix: str, about: str) -> Param:
    pattern = f"^{prefix}_[0-9a-f]{{24}}$"
    return Param(name=name, place=Place.PATH, schema=TEXT | {"pattern": pattern}, about=about, required=True)


WEBHOOK_ID = _in_path("webhook_id", "wh", "The webhook.")

WEBHOOKS: tuple[Capability, ...] = (
    Capability(
        id="account.webhooks.register",
        method="POST",
        path=f"{BASE}/register",
        summary="Tells a URL when batches of the account end or pause; messages are signed.",
        handler=register,
        scope=Scope.ADMIN,
        params=(
            header("Idempotency-Key", "The same key makes no second webhook."),
            field("url", TEXT, "Where to send: http or https, at a public address.", required=True),
            field("events", {"type": "array", "items": {"enum": [*EVENT_NAMES, EVERY]}}, "Of these; default all."),
            field("description", TEXT | {"maxLength": 500}, "For people."),
            field("secret", TEXT | {"minLength": 8, "maxLength": 256}, "What messages are signed with; default: made."),
            field("headers", {"type": "object", "additionalProperties": TEXT}, "Sent with each message."),
            field("idempotency_key", TEXT | {"maxLength": 255}, "As the header; kept for 24 hours."),
        ),
        response=with_field(WEBHOOK, "secret", TEXT_OR_NULL),
        errors=("IDEMPOTENCY_CONFLICT", "WRONG_STATE"),
        idempotent=False,
    ),
    Capability(
        id="account.webhooks.list",
        method="GET",
        path=f"{BASE}/list",
        summary="The account's webhooks, oldest first, without those of single batches.",
        handler=list_webhooks,
        scope=Scope.READ,
        response=shape({"items": {"type": "array", "items": WEBHOOK}}),
    ),
    Capability(
        id="account.webhooks.delete",
        method="POST",
        path=f"{BASE}/delete/{{webhook_id}}",
        summary="Nothing more is sent; what was told can no longer be read.",
        handler=delete,
        scope=Scope.ADMIN,
        params=(WEBHOOK_ID,),
        response=shape({"id": TEXT, "deleted": FLAG}),
    ),
    Capability(
        id="account.webhooks.deliveries",
        method="GET",
        path=f"{BASE}/deliveries/{{webhook_id}}",
        summary="What was told to a webhook and what became of it, newest first; kept for 30 days.",
        handler=deliveries,
        scope=Scope.READ,
        params=(
            WEBHOOK_ID,
            query("limit", {"type": "integer", "minimum": 1, "maximum": MAX_PAGE}, "Default 100."),
            query("cursor", TEXT | {"pattern": "^[0-9]{1,18}$"}, "The next_cursor of the page before."),
        ),
        response=shape({"items": {"type": "array", "items": DELIVERY}, "next_cursor": TEXT_OR_NULL}),
    ),
    Capability(
        id="account.webhooks.replay",
        method="POST",
        path=f"{BASE}/replay/{{delivery_id}}",
        summary="Sends a delivery again, under the same event id.",
        handler=replay,
        scope=Scope.ADMIN,
        params=(_in_path("delivery_id", "dlv", "The delivery."),),
        response=DELIVERY,
        idempotent=False,
    ),
)
