"""A new key of the service: made of chance, shown once, and only its hash kept."""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.core.tenants import KEY_DIGITS, KEY_PREFIX, SHOWN_CHARS, Scope, digest_of_key
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.keys import ApiKey, Keys


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyWish:
    account: str
    name: str = ""
    scopes: frozenset[Scope]
    expires_s: float = 0.0
    """From now; 0: never."""
    budget_picousd: int = -1
    rpm: int = 0


def make_key(wish: KeyWish, keys: Keys, clock: Clock, chance: Chance) -> tuple[str, ApiKey]:
    """The key itself, which is stored nowhere, and what is kept of it. Writes: not on the loop."""
    text = KEY_PREFIX + chance.hex_id(KEY_DIGITS)
    now_ms = clock.now_ms()
    key = ApiKey(
        key_id=f"key_{chance.hex_id(16)}",
        shown=text[:SHOWN_CHARS],
        account=wish.account,
        name=wish.name,
        scopes=wish.scopes,
        created_at_ms=now_ms,
        expires_at_ms=now_ms + int(wish.expires_s * 1000) if wish.expires_s else 0,
        budget_picousd=wish.budget_picousd,
        rpm=wish.rpm,
    )
    keys.add_key(key, digest_of_key(text))
    return text, key
