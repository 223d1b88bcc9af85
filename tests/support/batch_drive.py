"""Opens a vendor's batch API over a real transport, for tests."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing, asynccontextmanager
from typing import Any, TypeVar

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.endpoints import CHAT
from batchwright.fabric.own_process import fast_loop_factory
from batchwright.http.open import open_http_client
from batchwright.ports.http import Timeouts
from batchwright.ports.vendor_batches import BatchLine, BatchOrder, BatchView, ResultLine, VendorBatches
from batchwright.vendors.registry import OpenVendors
from support.loop_clock import LoopClock
from support.vendor_drive import no_groups, no_local_model, no_service, row

T = TypeVar("T")
KEY = "sk-scripted-key"
DAY_S = 86_400
TAG = "b1.s3-5.e1"


@asynccontextmanager
async def batches_at(
    base_url: str,
    *,
    profile: str,
    transport: str = "own",
    protocol: VendorProtocol = VendorProtocol.OPENAI,
    key: str = KEY,
) -> AsyncIterator[VendorBatches]:
    http = open_http_client(Timeouts(), transport=transport, environ={})
    vendors = OpenVendors(
        lambda timeout_s: http,
        {"SCRIPTED_KEY": key},
        LoopClock(),
        local=no_local_model,
        service=no_service,
        grouping=no_groups,
    )
    place = Destination(
        vendor="scripted", base_url=base_url, key_env="SCRIPTED_KEY", profile=profile, protocol=protocol
    )
    try:
        yield vendors.open_batches(place)
    finally:
        await vendors.close()
        await http.close()


def drive(base_url: str, steps: Callable[[VendorBatches], Awaitable[T]], **options: str) -> T:
    """What the steps give, of the vendor there."""
    profile = options.pop("profile", "openai")
    protocol = VendorProtocol(options.pop("protocol", "openai"))

    async def run() -> T:
        async with batches_at(base_url, profile=profile, protocol=protocol, **options) as batches:
            return await steps(batches)

    with asyncio.Runner(loop_factory=fast_loop_factory()) as runner:  # the loop that rows are sent on
        return runner.run(run())


def lines(*words: str, **fields: Any) -> list[BatchLine]:
    """Rows r0, r1, ... that say these words."""
    return [BatchLine(f"r{number}", row(word, **fields)) for number, word in enumerate(words)]


def order(tag: str = TAG, endpoint: str = CHAT, window_s: int = DAY_S) -> BatchOrder:
    return BatchOrder(tag=tag, endpoint=endpoint, model="m-small", window_s=window_s)


async def read(batches: VendorBatches, view: BatchView) -> list[ResultLine]:
    async with aclosing(batches.results(view)) as results:
        return [line async for line in results]
