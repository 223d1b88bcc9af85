"""`/v1/account/keys/*`: an admin's key makes, lists, bounds and revokes the keys of its own account."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import TypeVar

from starlette.responses import Response

from batchwright.ports.keys import ApiKey
from batchwright.server.asking import Ask
from batchwright.server.bodies import read_json
from batchwright.server.envelope import usd
from batchwright.server.faults import Fault, of_bad_body
from batchwright.server.infrai.status_view import moment
from batchwright.server.new_key import KeyWish, make_key
from batchwright.wire.bad_body import BadBody
from batchwright.wire.infrai_keys import read_budget_body, read_key_body

MAX_BODY_BYTES = 64 * 1024
KEY_ID = re.compile(r"key_[0-9a-f]{16}")
T = TypeVar("T")


async def create_key(ask: Ask) -> Response:
    asked = await _read(ask, read_key_body)
    wish = KeyWish(
        account=ask.tenant.account,
        name=asked.name,
        scopes=asked.scopes,
        expires_s=asked.expires_s,
        budget_picousd=asked.budget_picousd,
        rpm=asked.rpm,
    )
    service = ask.service
    text, key = await asyncio.to_thread(make_key, wish, service.keys, service.clock, service.chance)
    return ask.answer({"key": text, **key_view(key, spent_picousd=0)})


async def list_keys(ask: Ask) -> Response:
    account = ask.tenant.account
    keys = await asyncio.to_thread(ask.service.keys.list_keys, account)
    spent = await asyncio.to_thread(ask.service.keys.key_spending, account)
    return ask.answer({"items": [key_view(key, spent_picousd=spent.get(key.key_id, 0)) for key in keys]})


async def revoke_key(ask: Ask) -> Response:
    """Harmless when asked twice."""
    key = await _own_key(ask)
    await asyncio.to_thread(ask.service.keys.revoke_key, key.key_id, ask.service.clock.now_ms())
    return ask.answer({"key_id": key.key_id, "revoked": True})


async def set_budget(ask: Ask) -> Response:
    key = await _own_key(ask)
    picousd = await _read(ask, read_budget_body)
    await asyncio.to_thread(ask.service.keys.set_key_budget, key.key_id, picousd)
    return ask.answer({"key_id": key.key_id, "budget_usd": _amount(picousd)})


def key_view(key: ApiKey, *, spent_picousd: int) -> dict[str, object]:
    return {
        "key_id": key.key_id,
        "shown": key.shown,
        "name": key.name,
        "scopes": sorted(key.scopes),
        "budget_usd": _amount(key.budget_picousd),
        "spent_usd": usd(spent_picousd),
        "rpm": key.rpm or None,
        "created_at": moment(key.created_at_ms),
        "expires_at": moment(key.expires_at_ms),
        "revoked_at": moment(key.revoked_at_ms),
        "last_used_at": moment(key.last_used_ms),
    }


def _amount(picousd: int) -> object:
    return usd(picousd) if picousd >= 0 else None


async def _read(ask: Ask, read: Callable[[bytes], T]) -> T:
    body = await read_json(ask.request, MAX_BODY_BYTES)
    try:
        return read(body)
    except BadBody as error:
        raise of_bad_body(error) from None


async def _own_key(ask: Ask) -> ApiKey:
    """The path's. Another account's is one that is not there."""
    text = str(ask.request.path_params["key_id"])
    if KEY_ID.fullmatch(text):
        for key in await asyncio.to_thread(ask.service.keys.list_keys, ask.tenant.account):
            if key.key_id == text:
                return key
    raise Fault("NOT_FOUND", "There is no such key in this account.", param="key_id")
