"""`batchwright keys`: made, listed, bounded and revoked on the machine that serves."""

from __future__ import annotations

from batchwright.assemble import Machine, open_machine
from batchwright.core.errors import UsageError
from batchwright.core.tenants import SHOWN_CHARS
from batchwright.ports.keys import ApiKey
from batchwright.server.new_key import KeyWish, make_key
from batchwright.settings import Settings


def new_key(machine: Machine, wish: KeyWish) -> tuple[str, ApiKey]:
    return make_key(wish, machine.store, machine.clock, machine.chance)


async def create_key(settings: Settings, wish: KeyWish) -> tuple[str, ApiKey]:
    """The key itself, which is shown once and never stored, and what is kept of it."""
    async with open_machine(settings) as machine:
        return new_key(machine, wish)


async def list_keys(settings: Settings) -> list[ApiKey]:
    async with open_machine(settings) as machine:
        return machine.store.list_keys()


async def revoke_key(settings: Settings, text: str) -> ApiKey:
    """By its id or a unique prefix of it, or of the key's shown characters. Raises UsageError."""
    async with open_machine(settings) as machine:
        key = _named(machine, text)
        machine.store.revoke_key(key.key_id, machine.clock.now_ms())
        return key


async def set_budget(settings: Settings, text: str, picousd: int) -> ApiKey:
    """`text` as for `revoke_key`; -1: no bound. Raises UsageError."""
    async with open_machine(settings) as machine:
        key = _named(machine, text)
        machine.store.set_key_budget(key.key_id, picousd)
        return key


def _named(machine: Machine, text: str) -> ApiKey:
    keys = machine.store.list_keys()
    found = [key for key in keys if text and (key.key_id.startswith(text) or key.shown == text[:SHOWN_CHARS])]
    if len(found) != 1:
        many = "no key" if not found else f"{len(found)} keys"
        raise UsageError(f"{many} of that name: {text[:SHOWN_CHARS]!r}; `batchwright keys list` shows them")
    return found[0]
