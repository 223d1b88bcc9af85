"""`batchwright keys`: made, listed, bounded and revoked on the machine that serves."""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.assemble.machine import Machine, open_machine
from batchwright.core.errors import UsageError
from batchwright.core.tenants import SHOWN_CHARS
from batchwright.ports.keys import ApiKey
from batchwright.ports.stored import Share
from batchwright.server.new_key import KeyWish, make_key
from batchwright.settings import Settings


def new_key(machine: Machine, wish: KeyWish) -> tuple[str, ApiKey]:
    return make_key(wish, machine.store, machine.clock, machine.chance)


async def create_key(settings: Settings, wish: KeyWish) -> tuple[str, ApiKey, list[str]]:
    """The key itself, which is shown once and never stored, what is kept of it, and the ids of keys that hold and have
    its name already."""
    async with open_machine(settings) as machine:
        held = [key for key in machine.store.list_keys() if not key.revoked_at_ms]
        twins = [key.key_id for key in held if wish.name and key.name == wish.name]
        return *new_key(machine, wish), twins


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedKey:
    key: ApiKey
    spent_picousd: int
    share: Share
    """Its account's."""


async def list_keys(settings: Settings) -> tuple[list[ListedKey], list[Share]]:
    """Of every account, oldest first; and the shares of accounts that have no key."""
    async with open_machine(settings) as machine:
        shares = {share.account: share for share in machine.store.shares()}
        keys = machine.store.list_keys()
        spent: dict[str, int] = {}
        for account in {key.account for key in keys}:
            spent |= machine.store.key_spending(account)
        listed = [
            ListedKey(
                key=key,
                spent_picousd=spent.get(key.key_id, 0),
                share=shares.get(key.account, Share(account=key.account)),
            )
            for key in keys
        ]
        with_keys = {key.account for key in keys}
        return listed, [share for share in shares.values() if share.account not in with_keys]


async def revoke_key(settings: Settings, text: str) -> ApiKey:
    """By its name, its id or a unique prefix of that, or the key's shown characters. Raises UsageError."""
    async with open_machine(settings) as machine:
        key = _named(machine, text)
        machine.store.revoke_key(key.key_id, machine.clock.now_ms())
        return key


async def budget(settings: Settings, text: str, picousd: int | None) -> tuple[ApiKey, int]:
    """The key's budget after it was set, or as it is (None); `text` as for `revoke_key`; -1: no bound. Raises
    UsageError."""
    async with open_machine(settings) as machine:
        key = _named(machine, text)
        if picousd is None:
            return key, key.budget_picousd
        machine.store.set_key_budget(key.key_id, picousd)
        return key, picousd


async def share(settings: Settings, account: str, *, weight: int | None, in_flight: int | None) -> Share:
    """The account's share, after what is given of it was changed."""
    async with open_machine(settings) as machine:
        present = next((each for each in machine.store.shares() if each.account == account), Share(account=account))
        wish = Share(
            account=account,
            weight=present.weight if weight is None else weight,
            in_flight=present.in_flight if in_flight is None else in_flight,
        )
        if wish != present:
            machine.store.set_share(wish)
        return wish


def _named(machine: Machine, text: str) -> ApiKey:
    """A name that was given again after its key was revoked means the key that holds."""
    keys = machine.store.list_keys()
    found = [key for key in keys if text and (key.key_id.startswith(text) or key.shown == text[:SHOWN_CHARS])]
    named = [key for key in keys if text and key.name == text and key not in found]
    found += [key for key in named if not key.revoked_at_ms] or named
    if not found:
        # Whatever was typed may be a whole key.
        raise UsageError(f"no key has that name or id: {text[:SHOWN_CHARS]!r}; `batchwright keys list` shows them")
    if len(found) > 1:
        ids = ", ".join(key.key_id for key in found)
        raise UsageError(f"{len(found)} keys have that name or id: {ids}; name one by its id")
    return found[0]
