"""`batchwright keys`: made, listed and revoked on the machine that serves."""

from __future__ import annotations

from collections.abc import Iterable

from batchwright.assemble import Machine, open_machine
from batchwright.core.errors import UsageError
from batchwright.core.tenants import KEY_DIGITS, KEY_PREFIX, SHOWN_CHARS, Scope, digest_of_key
from batchwright.ports.keys import ApiKey
from batchwright.settings import Settings


def new_key(
    machine: Machine,
    *,
    account: str,
    name: str,
    scopes: Iterable[Scope],
    expires_s: float = 0.0,
    budget_picousd: int = -1,
    rpm: int = 0,
) -> tuple[str, ApiKey]:
    """The key itself, which is shown once and never stored, and what is kept of it."""
    text = KEY_PREFIX + machine.chance.hex_id(KEY_DIGITS)
    now_ms = machine.clock.now_ms()
    key = ApiKey(
        key_id=f"key_{machine.chance.hex_id(16)}",
        shown=text[:SHOWN_CHARS],
        account=account,
        name=name,
        scopes=frozenset(scopes),
        created_at_ms=now_ms,
        expires_at_ms=now_ms + int(expires_s * 1000) if expires_s else 0,
        budget_picousd=budget_picousd,
        rpm=rpm,
    )
    machine.store.add_key(key, digest_of_key(text))
    return text, key


async def create_key(
    settings: Settings,
    *,
    account: str,
    name: str,
    scopes: Iterable[Scope],
    expires_s: float,
    budget_picousd: int,
    rpm: int,
) -> tuple[str, ApiKey]:
    async with open_machine(settings) as machine:
        return new_key(
            machine,
            account=account,
            name=name,
            scopes=scopes,
            expires_s=expires_s,
            budget_picousd=budget_picousd,
            rpm=rpm,
        )


async def list_keys(settings: Settings) -> list[ApiKey]:
    async with open_machine(settings) as machine:
        return machine.store.list_keys()


async def revoke_key(settings: Settings, text: str) -> ApiKey:
    """By its id or a unique prefix of it, or of the key's shown characters. Raises UsageError."""
    async with open_machine(settings) as machine:
        keys = machine.store.list_keys()
        found = [key for key in keys if text and (key.key_id.startswith(text) or key.shown == text[:SHOWN_CHARS])]
        if len(found) != 1:
            many = "no key" if not found else f"{len(found)} keys"
            raise UsageError(f"{many} of that name: {text[:SHOWN_CHARS]!r}; `batchwright keys list` shows them")
        machine.store.revoke_key(found[0].key_id, machine.clock.now_ms())
        return found[0]
