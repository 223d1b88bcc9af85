"""A batch service over HTTP, as one key sees it: the asker, over our outbound HTTP."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from batchwright.client.asking import MAX_RETRIES, Asker
from batchwright.client.batches import ServiceBatches
from batchwright.client.chunk_journal import ChunkJournal, TakeLock
from batchwright.client.service_vendor import Home, ServiceVendor
from batchwright.core.batch_spec import Destination, place_digest
from batchwright.core.errors import UsageError, VendorUnavailable
from batchwright.core.service_keys import KEY_VARIABLES
from batchwright.fabric.system import SystemChance, SystemClock
from batchwright.http.open import open_http_client
from batchwright.ports.batches import Batches
from batchwright.ports.http import HttpClient, HttpReply, Timeouts
from batchwright.ports.observer import WorkerView
from batchwright.ports.vendor import Answer, Vendor
from batchwright.runner.request import Pace
from batchwright.runner.seams import HeldElsewhere, HeldLock, RunningWorkers
from batchwright.settings import Settings
from batchwright.vendors.classify import classify
from batchwright.vendors.profiles import build_profile

TIMEOUT_S = 180.0
"""Of one call: a service that runs the rows before it answers a submit takes half a second for each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceAddress:
    base_url: str
    api_key: str | None = None
    """None: that of the environment (`KEY_VARIABLES`); empty: none is sent."""
    key_name: str = ""
    """The variable that `api_key` stood in, for people; empty: in none."""
    timeout_s: float = TIMEOUT_S
    max_retries: int = MAX_RETRIES
    transport: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenService:
    asker: Asker
    http: HttpClient

    async def close(self) -> None:
        await self.http.close()


def open_service(
    address: ServiceAddress, environ: Mapping[str, str] = os.environ, *, report: Callable[[str], None] | None = None
) -> OpenService:
    """To be called, and used, inside one running loop. Raises UsageError for an address or a key that cannot be used,
    and where there is no key."""
    timeouts = Timeouts(first_byte_s=address.timeout_s, total_s=address.timeout_s)
    http = open_http_client(timeouts, transport=address.transport, environ=environ)
    key, key_name = (address.api_key, address.key_name) if address.api_key is not None else _key_of_environment(environ)
    asker = Asker(
        http,
        base_url=address.base_url,
        api_key=key,
        key_name=key_name,
        clock=SystemClock(),
        chance=SystemChance(),
        agent=_agent(),
        max_retries=address.max_retries,
        report=report,
    )
    return OpenService(asker=asker, http=http)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceSeat:
    """What of this machine a service needs beside its address, to be a vendor of rows."""

    folder: Path
    """Of chunks that are at a service."""
    take_lock: TakeLock
    report: Callable[[str], None]
    home: Home


async def open_service_vendor(destination: Destination, http: HttpClient, key: str, seat: ServiceSeat) -> Vendor:
    """A batch service as the vendor of rows. Raises VendorUnavailable for an address that cannot be used."""
    clock, chance = SystemClock(), SystemChance()
    try:
        asker = Asker(
            http,
            base_url=destination.base_url,
            api_key=key,
            key_name=destination.key_env,
            clock=clock,
            chance=chance,
            agent=_agent(),
        )
    except UsageError as error:
        raise VendorUnavailable(str(error)) from error
    profile = build_profile("general")

    def read(status: int, body: bytes, endpoint: str) -> Answer:
        return classify(HttpReply(status, b"", body), profile, endpoint=endpoint, now_ms=clock.now_ms())

    journal = ChunkJournal(seat.folder / place_digest(destination), owner=chance.hex_id(16), take_lock=seat.take_lock)
    vendor = ServiceVendor(asker, journal, read=read, report=seat.report, home=seat.home)
    await vendor.open()
    return vendor


@asynccontextmanager
async def open_service_batches(
    settings: Settings, service: Destination, *, say: Callable[[str], None] | None = None
) -> AsyncIterator[Batches]:
    """A service's batches, as the commands see those of this machine. `say` hears of answers that
    are long in coming."""
    opened = open_service(
        ServiceAddress(
            base_url=service.base_url,
            api_key=settings.key(service.key_env).strip() if service.key_env else "",
            key_name=service.key_env,
            transport=settings.transport.value,
        ),
        settings.process_environment(),
        report=say,
    )
    try:
        yield ServiceBatches(opened.asker, service)
    finally:
        await opened.close()


class ServiceWorkers:
    """Implements the runner's `Workers` where the service has its own."""

    async def start(self, batch_id: str, pace: Pace) -> RunningWorkers:
        if pace != Pace():
            raise UsageError("a service sends at its own pace: leave out --concurrency, --rpm, --tpm and --timeout")
        return _TheirWorkers()


class _TheirWorkers:
    """They are not ours to wait for, nor to stop: leaving off watching is all there is."""

    def __init__(self) -> None:
        self._stopped = asyncio.Event()

    async def wait(self) -> None:
        await self._stopped.wait()

    async def stop(self, *, grace: bool) -> None:
        self._stopped.set()

    def view(self) -> WorkerView | None:
        return None


class NoLocks:
    """Implements the runner's `RunLocks` where no batch of this machine is worked on."""

    def take(self, name: str) -> HeldLock | HeldElsewhere:
        return _NoLock()


class _NoLock:
    def release(self) -> None:
        """There is nothing to release."""


def _key_of_environment(environ: Mapping[str, str]) -> tuple[str, str]:
    """The key and its variable's name."""
    for name in KEY_VARIABLES:
        if key := environ.get(name, "").strip():
            return key, name
    raise UsageError(f"the service's key is missing: give it as api_key, or set {' or '.join(KEY_VARIABLES)}")


def _agent() -> str:
    with suppress(PackageNotFoundError):
        return f"batchwright/{version('batchwright')}"
    return "batchwright/unpacked"  # run from a source tree that was never installed
