"""The outbox: claims due deliveries of webhooks, sends each, and says how it ended. Any number of processes may.

At least once: what was sent and not yet written down when its process died is sent again, under the same event id.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from batchwright.core.errors import BatchwrightError
from batchwright.core.targets import TargetRefused
from batchwright.core.webhooks import RETRY_AFTER_S, EventType, next_attempt, signed_headers
from batchwright.engine.batch_views import status_of
from batchwright.engine.outages import Outages, Who
from batchwright.engine.writer import Writer
from batchwright.ports.batches import BatchStatus
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.http import HttpEnd, HttpFault, PinnedClient, Timeouts
from batchwright.ports.locks import Locks
from batchwright.ports.store import BatchRow
from batchwright.ports.webhooks import (
    AttemptEnd,
    ClaimedDelivery,
    DeliveryState,
    DeliveryWish,
    Targets,
    Webhook,
    Webhooks,
)
from batchwright.wire.http_head import header
from batchwright.wire.waits import parse_wait

TIMEOUTS = Timeouts(connect_s=5.0, first_byte_s=15.0, total_s=15.0)
ATTEMPT_S = 30.0
"""One attempt, its look-up included."""
LEASE_MS = 60_000
"""Well above an attempt: a lease that runs out while its sender lives would make a second sender."""
LOOK_EVERY_S = 0.5
MAX_OUT = 64
"""Attempts under way in one process."""
PER_URL = 4
"""To one address at once: a receiver that hangs leaves room for the others,"""
PER_ACCOUNT = 8
"""and an account with many such ones leaves room for other accounts."""
ERROR_CHARS = 300

Render = Callable[[EventType, int, BatchStatus], bytes]
"""A message's body, from (type, when the batch turned so, the batch as it was then)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxParts:
    store: Webhooks
    writer: Writer
    http: PinnedClient
    targets: Targets
    clock: Clock
    chance: Chance
    locks: Locks
    render: Render
    report: Callable[[str], None]
    outages: Outages


def outbox_lock_name(host: str, incarnation: str) -> str:
    """The lock a delivering process holds for as long as it lives."""
    return f"{_prefix(host)}{incarnation}"


def _prefix(host: str) -> str:
    return f"outbox-{host}-"


class Outbox:
    """`incarnation`: fresh for each; the lock of `outbox_lock_name` is held while it runs."""

    def __init__(self, parts: OutboxParts, *, host: str, incarnation: str) -> None:
        self._parts = parts
        self._host = host
        self._owner = outbox_lock_name(host, incarnation)
        self._out: list[Webhook] = []
        """Those with an attempt under way, once for each."""
        self._ended = asyncio.Event()

    async def run(self) -> None:
        """Until it is cancelled; then gives back what it holds."""
        try:
            with suppress(BatchwrightError):  # leases end by themselves
                await self._take_over()
            async with asyncio.TaskGroup() as group:
                while True:
                    self._ended.clear()
                    for claimed in await self._claim_quietly():
                        group.create_task(self._deliver(claimed), name=f"deliver {claimed.delivery.delivery_id}")
                    with suppress(TimeoutError):
                        async with asyncio.timeout(LOOK_EVERY_S):
                            await self._ended.wait()
        finally:
            with suppress(BatchwrightError):
                await self._write(lambda now_ms: self._parts.store.release_deliveries(self._owner, now_ms))

    async def _take_over(self) -> None:
        """What processes of this machine held that have ended is due at once."""
        parts = self._parts
        owners = await asyncio.to_thread(parts.store.delivery_owners)
        gone = [owner for owner in owners if owner.startswith(_prefix(self._host)) and parts.locks.is_free(owner)]

        def release(now_ms: int) -> None:
            for owner in gone:
                parts.store.release_deliveries(owner, now_ms)

        await self._write(release)

    async def _claim_quietly(self) -> list[ClaimedDelivery]:
        parts = self._parts
        try:
            claimed = await self._claim()
        except BatchwrightError as error:
            text = f"Webhooks are not delivered now; a look follows each {LOOK_EVERY_S:g} s: {error}"
            if line := parts.outages.met(Who.OUTBOX, error, text, now_s=parts.clock.now_s()):
                parts.report(line)
            return []
        if over := parts.outages.passed(Who.OUTBOX, parts.clock.now_s()):
            parts.report(f"{over}; webhooks are delivered")
        return claimed

    async def _claim(self) -> list[ClaimedDelivery]:
        parts, room = self._parts, MAX_OUT - len(self._out)
        now_ms = parts.clock.now_ms()
        if room <= 0 or not await asyncio.to_thread(parts.store.has_due_deliveries, now_ms):
            return []
        of_account = Counter(webhook.account for webhook in self._out)
        wish = DeliveryWish(
            owner=self._owner,
            now_ms=now_ms,
            lease_ms=LEASE_MS,
            limit=room,
            per_url=PER_URL,
            per_account=PER_ACCOUNT,
            but_urls=frozenset(webhook.url for webhook in self._out),
            but_accounts=frozenset(account for account, count in of_account.items() if count >= PER_ACCOUNT),
        )
        claimed = await parts.writer.do(lambda: parts.store.claim_deliveries(wish))
        self._out += [one.webhook for one in claimed]
        return claimed

    async def _deliver(self, claimed: ClaimedDelivery) -> None:
        try:
            end = self._end_of(claimed, await self._attempt(claimed))
            await self._write(lambda now_ms: self._parts.store.finish_delivery(claimed, end, now_ms))
        except BatchwrightError as error:
            self._parts.report(
                f"What became of delivery {claimed.delivery.delivery_id} could not be written down; it will be sent "
                f"again: {error}"
            )
        finally:
            self._out.remove(claimed.webhook)
            self._ended.set()

    async def _attempt(self, claimed: ClaimedDelivery) -> _Met:
        try:
            async with asyncio.timeout(ATTEMPT_S):
                return _judge(await self._send(claimed), self._parts.clock.now_ms())
        except TimeoutError:
            return _Met(0, f"no answer within {ATTEMPT_S:g} s")
        except TargetRefused as error:
            return _Met(0, str(error))
        except OSError as error:
            return _Met(0, f"the host was not found: {error.strerror or error}")
        except Exception as error:
            # A snapshot of another version, a header the transport refuses: it must end as a failed attempt, or it
            # would be claimed for ever.
            self._parts.report(f"delivery {claimed.delivery.delivery_id}: {type(error).__name__}: {error}")
            return _Met(0, "a fault of the service itself; its log has more under this delivery's id")

    async def _send(self, claimed: ClaimedDelivery) -> HttpEnd:
        parts, webhook, delivery = self._parts, claimed.webhook, claimed.delivery
        row = msgspec.msgpack.decode(claimed.snapshot, type=BatchRow)
        body = parts.render(delivery.type, delivery.created_at_ms, status_of(row, live=None))
        addresses = await parts.targets.resolve(parts.targets.read(webhook.url))
        signed = signed_headers(delivery.event_id, parts.clock.now_ms() // 1000, webhook.secret, body)
        headers = {**webhook.headers, "content-type": "application/json", **signed}
        target = parts.http.target("POST", webhook.url, headers, addresses=addresses)
        ended: asyncio.Future[HttpEnd] = asyncio.get_running_loop().create_future()
        flight = target.send(body, lambda end: None if ended.done() else ended.set_result(end))
        try:
            return await ended
        finally:
            flight.abort()

    def _end_of(self, claimed: ClaimedDelivery, met: _Met) -> AttemptEnd:
        error = met.error[:ERROR_CHARS]
        if not error:
            return AttemptEnd(state=DeliveryState.DELIVERED, status=met.status, error="")
        again = next_attempt(claimed.delivery.waits_used, self._parts.chance.random(), met.asked_s)
        if again is None:
            return AttemptEnd(state=DeliveryState.GIVEN_UP, status=met.status, error=error)
        return AttemptEnd(
            state=DeliveryState.PENDING,
            due_ms=self._parts.clock.now_ms() + int(again.wait_s * 1000),
            waits_used=again.waits_used,
            status=met.status,
            error=error,
        )

    async def _write(self, work: Callable[[int], object]) -> None:
        now_ms = self._parts.clock.now_ms()
        await self._parts.writer.do(lambda: work(now_ms))


class _Met(NamedTuple):
    """What an attempt met."""

    status: int
    """0: no answer came."""
    error: str
    """Why it failed; empty: it did not."""
    asked_s: float = 0.0
    """`Retry-After` of an answer that refused it."""


def _judge(end: HttpEnd, now_ms: int) -> _Met:
    if isinstance(end, HttpFault):
        return _Met(0, end.detail)
    if 200 <= end.status < 300:
        return _Met(end.status, "")
    if 300 <= end.status < 400:
        return _Met(
            end.status, f"it answered {end.status}, and redirects are not followed: register the URL it leads to"
        )
    asked_s = parse_wait(header(end.head, "retry-after") or "", now_ms, sum(RETRY_AFTER_S))
    return _Met(end.status, f"it answered {end.status}; expected 200 to 299", asked_s)
