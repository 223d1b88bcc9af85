"""Webhooks of the service: where they may lead, and the outbox beside the sweeper."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

from batchwright.assemble.beside import beside
from batchwright.assemble.machine import Machine
from batchwright.core.targets import read_allowed
from batchwright.engine.outbox import TIMEOUTS, Outbox, OutboxParts, outbox_lock_name
from batchwright.engine.targets import CheckedTargets
from batchwright.http.lookup import Lookups
from batchwright.http.pinned import OwnPinnedClient
from batchwright.server.infrai.webhooks import message
from batchwright.settings import Settings


@contextmanager
def webhook_targets(settings: Settings) -> Iterator[CheckedTargets]:
    lookups = Lookups()
    try:
        yield CheckedTargets(lookups, read_allowed(settings.serving.webhook_allow))
    finally:
        lookups.close()


@asynccontextmanager
async def delivering(machine: Machine, targets: CheckedTargets, say: Callable[[str], None]) -> AsyncIterator[None]:
    """The outbox runs on beside whatever serves, whether that works on rows or not."""
    incarnation = machine.chance.hex_id(16)
    # Taken before anything is claimed: a claim whose owner has no lock counts as a dead process's.
    lock = machine.locks.take(outbox_lock_name(machine.host, incarnation), holder=f"process {os.getpid()}")
    assert lock is not None, "a fresh incarnation's lock cannot be taken already"
    http = OwnPinnedClient(TIMEOUTS, machine.settings.process_environment())
    parts = OutboxParts(
        store=machine.store,
        writer=machine.writer,
        http=http,
        targets=targets,
        clock=machine.clock,
        chance=machine.chance,
        locks=machine.locks,
        render=message,
        report=say,
        outages=machine.outages,
    )
    outbox = Outbox(parts, host=machine.host, incarnation=incarnation)
    try:
        async with beside("delivery of webhooks", outbox.run, clock=machine.clock, say=say):
            yield
    finally:
        await http.close()
        lock.release()
