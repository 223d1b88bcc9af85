"""Webhooks of the service: who wants to be told of which events, and what has been told.

A delivery, one event for one webhook, is written in the very transaction that settles or pauses the batch: it is there
if and only if the batch has turned so. From then on it is due work like any other: claimed under a lease, by whichever
process delivers, until it was delivered or is given up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from batchwright.core.targets import Target
from batchwright.core.webhooks import EVERY_EVENT, EventType

if TYPE_CHECKING:
    from batchwright.ports.store import Idempotency, IdempotentBatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    webhook_id: str
    """`wh_` and 24 hex digits."""
    account: str
    url: str
    events: frozenset[EventType] = EVERY_EVENT
    secret: str = field(repr=False)
    """What messages are signed with. Kept because it is needed for that; shown once, never logged."""
    description: str = ""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """Sent with each message; values may be secrets."""
    batch_id: str = ""
    """The one batch that it is for (a submit's own webhook); empty: all of the account."""
    created_at_ms: int


class DeliveryState(StrEnum):
    PENDING = "pending"
    """To be sent, for the first time or again."""
    DELIVERED = "delivered"
    GIVEN_UP = "given_up"


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """One event for one webhook."""

    seq: int
    """Grows with each: a page's order."""
    delivery_id: str
    """`dlv_` and 24 hex digits."""
    webhook_id: str
    event_id: str
    """`evt_` and 24 hex digits: the same over all attempts, replays and webhooks."""
    type: EventType
    batch_id: str
    round: int
    state: DeliveryState
    attempts: int
    """Of all replays too."""
    waits_used: int
    """Of the schedule (`core.webhooks.RETRY_AFTER_S`), since it was made or replayed: what the next wait depends on."""
    due_ms: int
    """While pending: when it is sent next, or when the lease of who is sending it ends."""
    last_status: int
    """HTTP status of the last attempt; 0: none came."""
    last_error: str
    """Why the last attempt failed, in our own words; empty: it did not."""
    created_at_ms: int
    """When the batch turned."""
    last_attempt_ms: int
    """0: not yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedDelivery:
    delivery: Delivery
    webhook: Webhook
    epoch: int
    """Raised by each claim; what ends the attempt names it."""
    snapshot: bytes
    """msgpack of the `ports.store.BatchRow` as it was in the transaction of the event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptEnd:
    """How one attempt of a delivery ended."""

    state: DeliveryState
    due_ms: int = 0
    """For PENDING: when it is tried again."""
    waits_used: int = 0
    """The same: as in `Delivery`, by then."""
    status: int
    error: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryWish:
    """Which due deliveries a process wants."""

    owner: str
    """Who delivers; the lock of that name is held for as long as it lives."""
    now_ms: int
    lease_ms: int
    limit: int
    per_url: int
    """At most so many to one address, so that one that hangs does not hold up the others,"""
    per_account: int
    """and of one account, whatever its addresses."""
    but_urls: frozenset[str] = frozenset()
    but_accounts: frozenset[str] = frozenset()
    """Of these none is wanted."""


class Webhooks(Protocol):
    """Synchronous; safe to call from any thread. Errors: StoreError."""

    def add_webhook(self, webhook: Webhook, wish: Idempotency | None) -> None:
        """Raises KeyReused if the idempotency key of `wish` stands for something else by now."""

    def find_webhook(self, account: str, webhook_id: str) -> Webhook | None:
        """None also for another account's."""

    def find_idempotent(self, account: str, key: str, now_ms: int) -> IdempotentBatch | None:
        """As `ports.store.Store`'s; what a registration made has a webhook's id in the batch's place."""

    def list_webhooks(self, account: str) -> list[Webhook]:
        """Oldest first; those of single batches are left out."""

    def delete_webhook(self, account: str, webhook_id: str) -> bool:
        """With its deliveries: nothing more is sent. False: there is none."""

    def list_deliveries(self, webhook_id: str, *, before: int, limit: int) -> list[Delivery]:
        """Newest first, those with a lower `seq` than `before`; 0: from the newest."""

    def replay_delivery(self, account: str, delivery_id: str, now_ms: int) -> Delivery | None:
        """Makes it due now, whatever became of it; the event's id stays. None: the account has none of that id."""

    def has_due_deliveries(self, now_ms: int) -> bool:
        """A cheap look before a claim."""

    def claim_deliveries(self, wish: DeliveryWish) -> list[ClaimedDelivery]:
        """The longest due first. Each is the owner's until its lease ends: then it is due again for anybody."""

    def finish_delivery(self, claimed: ClaimedDelivery, end: AttemptEnd, now_ms: int) -> bool:
        """False: the lease had ended and another has it, or it was replayed or deleted; nothing was written."""

    def delivery_owners(self) -> frozenset[str]:
        """Who holds deliveries now."""

    def release_deliveries(self, owner: str, now_ms: int) -> int:
        """What it held is due at once; returns how many. For an owner that has ended."""


class Targets(Protocol):
    """Where webhooks may lead."""

    def read(self, url: str) -> Target:
        """What can be told without a look-up. Raises TargetRefused."""

    async def resolve(self, target: Target) -> Sequence[str]:
        """Addresses that were checked: one of these is connected to, and none is looked up again. Raises TargetRefused
        for one that may not be sent to, OSError where there is no such host."""
