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
    """To within some seconds; 0: never."""
    budget_picousd: int = -1
    """What may be spent under it, in all; -1: no bound."""
    rpm: int = 0
    """Requests a minute, at most; 0: no bound."""

    def usable(self, now_ms: int) -> bool:
        return not self.revoked_at_ms and not (self.expires_at_ms and self.expires_at_ms <= now_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCredit:
    key_id: str
    shown: str
    budget_picousd: int
    """-1: no bound; then `spent_picousd` is not summed, and 0."""
    spent_picousd: int
    """All usage under the key: known cost of answers, to the picousd."""
    drawn_picousd: int = 0
    """Held for what is out under it, or about to be, by workers that have not gone: the most that may cost, as far as
    it is known."""

    @property
    def is_spent(self) -> bool:
        return 0 <= self.budget_picousd <= self.spent_picousd

    @property
    def left_picousd(self) -> int:
        """Of a budget, what nobody has spent or drawn."""
        return self.budget_picousd - self.spent_picousd - self.drawn_picousd

    def holds_back(self, picousd: int) -> bool:
        """So much is only wanting for what has been drawn, which may come back."""
        return self.budget_picousd - self.spent_picousd >= picousd


class Keys(Protocol):
    """Synchronous; safe to call from any thread. Errors: StoreError."""

    def add_key(self, key: ApiKey, digest: str) -> None: ...

    def find_key(self, digest: str) -> ApiKey | None:
        """By `core.tenants.digest_of_key`; revoked and expired ones too."""

    def list_keys(self, account: str = "") -> list[ApiKey]:
        """Oldest first; those of one account, or all."""

    def revoke_key(self, key_id: str, now_ms: int) -> bool:
        """False: there is none of that id, or it was revoked before."""

    def key_credit(self, key_id: str) -> KeyCredit | None:
        """None: there is no such key."""

    def key_spending(self, account: str) -> dict[str, int]:
        """All usage under each key of the account, in 1e-12 USD, by key id; keys without any are left out."""

    def set_key_budget(self, key_id: str, picousd: int) -> bool:
        """-1: no bound. False: there is no such key. Batches paused for a spent budget stay so until resumed."""

    def touch_keys(self, used: Mapping[str, int]) -> None:
        """When keys were last used: milliseconds since the epoch, by key id. An earlier moment changes nothing."""
