"""Which vendors rows can go to from here, with which keys, over which connections."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from batchwright.assemble.home import has_batch, store_mark
from batchwright.core.batch_spec import Destination
from batchwright.fabric.hosting import Say
from batchwright.fabric.system import SystemClock
from batchwright.http.open import open_http_client
from batchwright.ports.http import HttpClient, Timeouts
from batchwright.ports.vendor import Vendor
from batchwright.settings import Settings
from batchwright.store.file_locks import FileLocks
from batchwright.vendors.registry import OpenVendors

SERVICE_FOLDER = "service-chunks"


@asynccontextmanager
async def open_vendors(
    settings: Settings, clock: SystemClock, *, say: Say, only_simulates: bool = False
) -> AsyncIterator[OpenVendors]:
    """Every vendor and client that is opened is closed at the end, the local model's server with them.
    `only_simulates`: nothing is to be sent, whatever a batch says."""
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

    vendors = OpenVendors(
        open_http,
        keys,
        clock,
        local=open_local,
        service=open_service,
        dotenv_keys=variables.dotenv,
        dotenv_file=variables.dotenv_file,
        only_simulates=only_simulates,
    )
    try:
        yield vendors
    finally:
        await vendors.close()
