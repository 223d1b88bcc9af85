"""Asks a vendor one row at a time, over a real transport, for tests."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.http.open import open_http_client
from batchwright.ports.http import HttpClient, Timeouts
from batchwright.ports.vendor import Answer, Vendor
from batchwright.ports.vendor_batches import VendorBatches
from batchwright.vendors.registry import OpenVendors
from support.loop_clock import LoopClock

CHAT = "/chat/completions"
ANSWER_WITHIN_S = 10.0


async def no_local_model(destination: Destination, http: HttpClient) -> Vendor:
    raise AssertionError("the local model was not asked for")


async def no_service(destination: Destination, http: HttpClient, key: str) -> Vendor:
    raise AssertionError("no service was asked for")


def no_groups(destination: Destination, api: VendorBatches) -> Vendor:
    raise AssertionError("no batch API was asked for")


@asynccontextmanager
async def vendor_at(
    base_url: str,
    transport: str,
    *,
    timeouts: Timeouts | None = None,
    profile: str = "",
    protocol: VendorProtocol = VendorProtocol.OPENAI,
) -> AsyncIterator[Vendor]:
    http = open_http_client(timeouts or Timeouts(), transport=transport, environ={})
    vendors = OpenVendors(
        lambda timeout_s: http,
        {"SCRIPTED_KEY": "sk-scripted"},
        LoopClock(),
        local=no_local_model,
        service=no_service,
        grouping=no_groups,
    )
    destination = Destination(
        vendor="scripted", base_url=base_url, key_env="SCRIPTED_KEY", profile=profile, protocol=protocol
    )
    try:
        yield await vendors.open(destination)
    finally:
        await vendors.close()
        await http.close()


def row(text: str, **body: Any) -> bytes:
    return json.dumps({"model": "m-small", "messages": [{"role": "user", "content": text}], **body}).encode()


async def ask(vendor: Vendor, body: bytes, endpoint: str = CHAT) -> Answer:
    ended: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    vendor.send(endpoint, body, ended.set_result)
    assert not ended.done(), "the end was told from inside send"
    return await asyncio.wait_for(ended, ANSWER_WITHIN_S)
