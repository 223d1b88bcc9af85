"""Which vendors rows can go to from here, with which keys, over which connections."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from batchwright.assemble.home import has_batch, store_mark
from batchwright.assemble.machine import Machine
from batchwright.core.batch_spec import Destination
from batchwright.core.errors import StoreError
from batchwright.engine.writer import StoreThread
from batchwright.fabric.hosting import Say
from batchwright.fabric.system import SystemChance, SystemClock
from batchwright.http.open import open_http_client
from batchwright.ports.groups import Groups
from batchwright.ports.http import HttpClient, Timeouts
from batchwright.ports.vendor import Vendor
from batchwright.ports.vendor_batches import VendorBatches
from batchwright.settings import Settings
from batchwright.store.file_locks import FileLocks, HeldLock
from batchwright.vendors.registry import OpenVendors

SERVICE_FOLDER = "service-chunks"


class ProcessKeeper:
    """Implements `vendors.grouping.Keeper`: this process, known by a lock that it holds in the folder of locks."""

    def __init__(self, locks: FileLocks, host: str) -> None:
        self._locks, self._host = locks, host
        self._held: HeldLock | None = None
        self._name = ""

    def name(self) -> str:
        if self._held is None:
            self._name = f"groups-{SystemChance().hex_id(16)}"
            self._held = self._locks.take(self._name, holder=f"process {os.getpid()}")
        return f"{self._host}/{self._name}"

    def close(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None

    def is_dead(self, name: str) -> bool:
        host, _, lock = name.rpartition("/")
        if not name or host != self._host:
            return not name
        with suppress(StoreError):  # then nobody can tell
            return self._locks.is_free(lock)
        return False


@dataclass(frozen=True, slots=True)
class GroupSeat:
    """What of this process a batch API needs, to be a vendor of rows."""

    groups: Groups
    thread: StoreThread
    keeper: ProcessKeeper


def group_seat(machine: Machine) -> GroupSeat:
    return GroupSeat(machine.store, machine.writer, ProcessKeeper(machine.locks, machine.host))


@asynccontextmanager
async def open_vendors(
    settings: Settings, clock: SystemClock, *, say: Say, seat: GroupSeat | None, only_simulates: bool = False
) -> AsyncIterator[OpenVendors]:
    """Every vendor and client that is opened is closed at the end, the local model's server with them. `seat`: None
    where no rows are sent. `only_simulates`: nothing is to be sent, whatever a batch says."""
    keys, environ = settings.key_values(), settings.process_environment()
    variables = settings.variables

    def open_http(timeout_s: float) -> HttpClient:
        timeouts = Timeouts(first_byte_s=timeout_s, total_s=timeout_s) if timeout_s else Timeouts()
        return open_http_client(timeouts, transport=settings.transport.value, environ=environ)

    async def open_local(destination: Destination, http: HttpClient) -> Vendor:
        from batchwright.vendors.local_vendor import open_local_vendor  # 11 ms that other vendors are spared

        cache = settings.cache_dir
        return await open_local_vendor(destination, http=http, environ=environ, cache=cache, clock=clock)

    async def open_service(destination: Destination, http: HttpClient, key: str) -> Vendor:
        from batchwright.assemble.client import ServiceSeat, open_service_vendor  # only where one is used
        from batchwright.client.service_vendor import Home

        locks = FileLocks(settings.state_dir)
        seat = ServiceSeat(
            folder=settings.state_dir / SERVICE_FOLDER,
            take_lock=lambda name: locks.take(name, holder=f"process {os.getpid()}"),
            report=say,
            home=Home(mark=store_mark(settings), has=lambda batch_id: has_batch(settings, batch_id)),
        )
        return await open_service_vendor(destination, http, key, seat)

    def open_groups(destination: Destination, api: VendorBatches) -> Vendor:
        from batchwright.vendors.grouping import GroupingVendor  # only where one is used

        assert seat is not None, "rows are sent"
        return GroupingVendor(
            api,
            seat.groups,
            batch_id=destination.group,
            vendor=destination.vendor,
            live_too=destination.live_too,
            attached=destination.attached,
            clock=clock,
            chance=SystemChance(),
            thread=seat.thread,
            keeper=seat.keeper,
            report=say,
        )

    vendors = OpenVendors(
        open_http,
        keys,
        clock,
        local=open_local,
        service=open_service,
        grouping=open_groups,
        dotenv_keys=variables.dotenv,
        dotenv_file=variables.dotenv_file,
        only_simulates=only_simulates,
    )
    try:
        yield vendors
    finally:
        await vendors.close()
        if seat is not None:
            seat.keeper.close()
