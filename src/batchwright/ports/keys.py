"""Keys of the service: who may ask for what. The key itself is shown once and never stored (`core.tenants`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from batchwright.core.tenants import Scope


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    key_id: str
    """`key_` and 16 hex digits: names it to people and in usage; no secret."""
    shown: str
    """Its first characters."""
    account: str
    name: str
    """A person's own word for it."""
    scopes: frozenset[Scope]
    created_at_ms: int
    expires_at_ms: int = 0
    """0: never."""
    revoked_at_ms: int = 0
    """0: it holds."""
    last_used_ms: int = 0
    """To within a minute; 0: never."""
    budget_picousd: int = -1
    """What may be spent under it, in all; -1: no bound."""
    rpm: int = 0
    """Requests a minute, at most; 0: no bound."""

    def usable(self, now_ms: int) -> bool:
        return not self.revoked_at_ms and not (self.expires_at_ms and self.expires_at_ms <= now_ms)


class Keys(Protocol):
    """Synchronous; safe to call from any thread. Errors: StoreError."""

    def add_key(self, key: ApiKey, digest: str) -> None: ...

    def find_key(self, digest: str) -> ApiKey | None:
        """By `core.tenants.digest_of_key`; revoked and expired ones too."""

    def list_keys(self, account: str = "") -> list[ApiKey]:
        """Oldest first; those of one account, or all."""

    def revoke_key(self, key_id: str, now_ms: int) -> bool:
        """False: there is none of that id, or it was revoked before."""

    def touch_keys(self, used: Mapping[str, int]) -> None:
        """When keys were last used: milliseconds since the epoch, by key id. An earlier moment changes nothing."""
