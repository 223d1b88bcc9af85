"""The routes of keys, `/v1/account/keys/*`, as rows of the table."""

from __future__ import annotations

from batchwright.core.tenants import Scope
from batchwright.server.capabilities import AMOUNT, MOMENT, TEXT, USD, Capability, Param, Place, Schema, field, shape
from batchwright.server.infrai.batch_capabilities import DURATION
from batchwright.server.infrai.keys import create_key, list_keys, revoke_key, set_budget
from batchwright.wire.infrai_keys import MAX_NAME_CHARS, MAX_RPM

BASE = "/v1/account/keys"
KEY_ID = Param(
    name="key_id",
    place=Place.PATH,
    schema={"type": "string", "pattern": "^key_[0-9a-f]{16}$"},
    about="The key, by its id.",
    required=True,
)
OR_NONE: Schema = {"anyOf": [*AMOUNT["anyOf"], {"type": "null"}]}
FIELDS = {
    "key_id": TEXT,
    "shown": TEXT,
    "name": TEXT,
    "scopes": {"type": "array", "items": {"enum": [scope.value for scope in Scope]}},
    "budget_usd": USD,
    "spent_usd": USD,
    "rpm": {"type": ["integer", "null"], "minimum": 1},
    "created_at": MOMENT,
    "expires_at": MOMENT,
    "revoked_at": MOMENT,
    "last_used_at": MOMENT,
}
KEY = shape(FIELDS)

KEYS: tuple[Capability, ...] = (
    Capability(
        id="account.keys.create",
        method="POST",
        path=f"{BASE}/create",
        summary="Make a key of the account; it is shown in this answer alone.",
        handler=create_key,
        scope=Scope.ADMIN,
        params=(
            field("name", {"type": "string", "maxLength": MAX_NAME_CHARS}, "Your word for it."),
            field("scopes", {**FIELDS["scopes"], "minItems": 1}, "What it may do. Default submit and read."),
            field("expires", DURATION, "How long it holds, in seconds, or as 90d."),
            field("budget_usd", OR_NONE, "What may be spent under it in all. Default: no bound."),
            field("rpm", {"type": "integer", "minimum": 1, "maximum": MAX_RPM}, "Requests a minute, at most."),
        ),
        body=True,
        response=shape({"key": TEXT, **FIELDS}),
        idempotent=False,
    ),
    Capability(
        id="account.keys.list",
        method="GET",
        path=f"{BASE}/list",
        summary="The account's keys, oldest first, with what was spent under each.",
        handler=list_keys,
        scope=Scope.ADMIN,
        response=shape({"items": {"type": "array", "items": KEY}}),
    ),
    Capability(
        id="account.keys.revoke",
        method="POST",
        path=f"{BASE}/revoke/{{key_id}}",
        summary="Revoke a key; within a second it is refused everywhere.",
        handler=revoke_key,
        scope=Scope.ADMIN,
        params=(KEY_ID,),
        response=shape({"key_id": TEXT, "revoked": {"const": True}}),
    ),
    Capability(
        id="account.keys.budget",
        method="POST",
        path=f"{BASE}/budget/{{key_id}}",
        summary="Set what may be spent under a key in all; null: no bound.",
        handler=set_budget,
        scope=Scope.ADMIN,
        params=(KEY_ID, field("budget_usd", OR_NONE, "In USD; null: no bound.", required=True)),
        response=shape({"key_id": TEXT, "budget_usd": USD}),
    ),
)
