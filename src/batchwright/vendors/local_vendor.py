"""The local model as a vendor: rows go to a llama.cpp server that is this process's child."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from batchwright.core.batch_spec import Destination
from batchwright.core.routes import local_model
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient
from batchwright.ports.vendor import Answer, CallListener, RelayedCall, VendorCall
from batchwright.vendors.local_model import LocalServer, start_local_server
from batchwright.vendors.model_files import find_model
from batchwright.vendors.openai import OpenAIVendor
from batchwright.vendors.profiles import LOCAL_PROFILE, find_profile
from batchwright.vendors.registry import user_agent


class LocalVendor:
    """Implements `ports.vendor.Vendor`. `close` ends the server."""

    waiting = ""

    def __init__(self, server: LocalServer, vendor: OpenAIVendor) -> None:
        self._server = server
        self._vendor = vendor

    @property
    def max_in_flight(self) -> int:
        return self._server.slots

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> VendorCall:
        return self._vendor.send(endpoint, body, on_end)

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RelayedCall:
        return self._vendor.relay(endpoint, body, listener, stream=stream)

    async def close(self) -> None:
        await self._vendor.close()
        await self._server.close()


async def open_local_vendor(
    destination: Destination, *, http: HttpClient, environ: Mapping[str, str], cache: Path, clock: Clock
) -> LocalVendor:
    """Finds the model, starts the server and waits until it can answer. Raises VendorUnavailable, with what to do."""
    explicit = Path(destination.model_file) if destination.model_file else None
    model_file = await asyncio.to_thread(find_model, explicit=explicit, environ=environ, cache=cache)
    server = await start_local_server(model_file=model_file, environ=environ, alias=local_model([destination]))
    vendor = OpenAIVendor(
        http,
        base_url=server.base_url,
        key=server.key,
        profile=find_profile(LOCAL_PROFILE, server.base_url),
        clock=clock,
        agent=user_agent(),
    )
    return LocalVendor(server, vendor)
