"""The files of a service, and what takes their rows in beside it."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from batchwright.assemble.beside import beside
from batchwright.assemble.machine import Machine
from batchwright.assemble.shared_locks import open_locks
from batchwright.core.tenants import Tenant
from batchwright.core.worker_id import WorkerId
from batchwright.engine.file_intake import FileIntakeParts, FileIntakes
from batchwright.engine.files import StoreFiles
from batchwright.ports.file_batches import Files
from batchwright.server.service import Ceilings, Offers


@asynccontextmanager
async def open_files(
    machine: Machine, offers: Offers, ceilings: Ceilings, say: Callable[[str], None]
) -> AsyncIterator[Callable[[Tenant], Files]]:
    """Each account's files. What other processes left half taken in is gone on with; what this one has not finished at
    the end is left to the next."""
    owner = WorkerId(f"{machine.host}-{os.getpid()}", machine.chance.hex_id(8))
    holder = f"process {os.getpid()}"
    upload_lock = f"uploads-{owner.name}-{owner.incarnation}"
    held = machine.locks.take(upload_lock, holder=holder)
    assert held is not None, "a fresh incarnation's lock cannot be taken already"
    async with AsyncExitStack() as stack:
        stack.callback(held.release)
        locks = await stack.enter_async_context(open_locks(machine, say))
        intakes = FileIntakes(
            FileIntakeParts(
                store=machine.store,
                writer=machine.writer,
                clock=machine.clock,
                locks=locks,
                holder=holder,
                find_price=machine.find_price,
                model_of=lambda: offers.model,
                max_rows=ceilings.rows,
                max_row_bytes=ceilings.row_bytes,
                claimable=machine.batches.claimable,
                report=say,
                outages=machine.outages,
            )
        )

        def files_of(tenant: Tenant) -> Files:
            batches = machine.batches.of(tenant)
            return StoreFiles(
                machine.store,
                tenant=tenant,
                batches=batches,
                check_credit=batches.check_credit,
                writer=machine.writer,
                clock=machine.clock,
                chance=machine.chance,
                owner=owner,
                upload_lock=upload_lock,
                intakes=intakes,
            )

        async with beside("intake of files", intakes.run, clock=machine.clock, say=say):
            yield files_of
