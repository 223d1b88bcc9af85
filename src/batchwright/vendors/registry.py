"""Opens vendors by destination, each once, for all lanes of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import assert_never

from batchwright.core.batch_spec import Destination, VendorProtocol, live_place
from batchwright.core.errors import UsageError, VendorUnavailable
from batchwright.core.keys import can_be_sent
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient
from batchwright.ports.vendor import Vendor
from batchwright.ports.vendor_batches import BatchLimits, VendorBatches
from batchwright.vendors.anthropic import AnthropicVendor
from batchwright.vendors.batch_apis import batch_limits, open_batches
from batchwright.vendors.listing import Listing
from batchwright.vendors.openai import OpenAIVendor
from batchwright.vendors.profiles import LOCAL_PROFILE, find_profile, profile_of
from batchwright.vendors.simulated import SimulatedVendor

OpenLocal = Callable[[Destination, HttpClient], Awaitable[Vendor]]
"""Starts the local model's server; handed in, since it needs a process and a folder."""


OpenService = Callable[[Destination, HttpClient, str], Awaitable[Vendor]]
"""Opens a batch service with this key; handed in, since it needs a folder, and the client of services."""
SERVICE_TIMEOUT_S = 180.0
"""Of one call: a service that runs the rows before it answers a submit takes half a second for each."""

REMOTE = (VendorProtocol.OPENAI, VendorProtocol.ANTHROPIC)
"""Asked row by row, over HTTP."""
OpenGroups = Callable[[Destination, VendorBatches], Vendor]
"""Makes a vendor of rows of its batch API; handed in, since it needs the store."""

OpenHttp = Callable[[float], HttpClient]
"""Opens a client whose attempts may take so many seconds in all; 0: the default."""


class OpenVendors:
    """Implements `ports.vendor.Vendors` and `ports.vendor_batches.BatchVendors`. To be made and used inside one running
    loop; `close` ends what was opened."""

    def __init__(
        self,
        open_http: OpenHttp,
        keys: Mapping[str, str],
        clock: Clock,
        *,
        local: OpenLocal,
        service: OpenService,
        grouping: OpenGroups,
        dotenv_keys: Mapping[str, str] | None = None,
        dotenv_file: str = "",
        only_simulates: bool = False,
    ) -> None:
        """`keys`: by their variables' names; `dotenv_keys`: those that the `.env` of this absolute path holds, for
        destinations that may have no other. `only_simulates`: nothing is to be sent, whatever a batch says."""
        self._only_simulates = only_simulates
        self._open_http = open_http
        self._clients: dict[float, HttpClient] = {}
        self._keys = keys
        self._dotenv_keys = dotenv_keys or {}
        self._dotenv_file = dotenv_file
        self._clock = clock
        self._local = local
        self._service = service
        self._grouping = grouping
        self._opening: dict[tuple[Destination, float], asyncio.Task[Vendor]] = {}
        self._batches: dict[Destination, VendorBatches] = {}

    def lacks(self, destination: Destination) -> str:
        if self._only_simulates and destination.protocol is not VendorProtocol.SIMULATED:
            return f"this process simulates and sends nothing to {destination.vendor}"
        name = self._missing_key(destination)
        return f"the variable {name} with the key for {destination.vendor} is not set here" if name else ""

    def keeps_prefixes(self, destination: Destination) -> bool:
        match destination.protocol:
            case VendorProtocol.OPENAI | VendorProtocol.ANTHROPIC:
                try:
                    return profile_of(destination).keeps_prefixes
                except (ValueError, UsageError):
                    return False  # told when it is opened
            case VendorProtocol.LOCAL:
                return find_profile(LOCAL_PROFILE, "").keeps_prefixes
            case VendorProtocol.SERVICE | VendorProtocol.BATCH | VendorProtocol.SIMULATED:
                return False
            case _:
                assert_never(destination.protocol)

    def _missing_key(self, destination: Destination) -> str:
        """The name of a variable, with the file if only one will do; empty: none is missing."""
        name = destination.key_env
        if not name or self._key(destination):
            return ""
        if not destination.dotenv_file:
            return name
        return f"{name} (of {destination.dotenv_file} alone, where the address came from: go on in its folder)"

    def _key(self, destination: Destination) -> str:
        if not destination.dotenv_file:
            return self._keys.get(destination.key_env, "").strip()
        if destination.dotenv_file != self._dotenv_file:
            return ""  # what another folder's .env calls by this name is the key of another address
        return self._dotenv_keys.get(destination.key_env, "").strip()

    async def open(self, destination: Destination, *, timeout_s: float = 0.0) -> Vendor:
        """Raises VendorUnavailable; a later call tries again."""
        # One local server, whatever its batches' timeouts: two would share the same processors.
        key = (destination, 0.0 if destination.protocol is VendorProtocol.LOCAL else timeout_s)
        task = self._opening.get(key)
        if task is None:
            task = asyncio.create_task(self._start(destination, timeout_s), name=f"open vendor {destination.vendor}")
            self._opening[key] = task
        try:
            # Whoever asked first may be cancelled; the others still wait for the same vendor.
            return await asyncio.shield(task)
        finally:
            failed = task.done() and (task.cancelled() or task.exception() is not None)
            if failed and self._opening.get(key) is task:
                del self._opening[key]

    async def list_models(self, destination: Destination, *, timeout_s: float) -> Listing:
        """What an `openai` or `anthropic` destination answers when it is asked for its models. Raises VendorUnavailable
        where nothing can be asked: its key is missing or cannot be sent, its address is none."""
        done: asyncio.Future[Listing] = asyncio.get_running_loop().create_future()
        vendor = self._open_remote(destination, self._client(timeout_s))
        call = vendor.list_models(lambda listing: None if done.done() else done.set_result(listing))
        try:
            return await done
        finally:
            call.abort()

    def batch_limits(self, destination: Destination) -> BatchLimits | None:
        return batch_limits(destination)

    def open_batches(self, destination: Destination) -> VendorBatches:
        """Raises VendorUnavailable."""
        opened = self._batches.get(destination)
        if opened is None:
            key = self._sendable_key(destination)
            opened = open_batches(destination, self._client(0.0), key=key, clock=self._clock, agent=user_agent())
            self._batches[destination] = opened
        return opened

    def renew(self, keys: Mapping[str, str], dotenv_keys: Mapping[str, str], dotenv_file: str) -> None:
        """Other keys from now on: whoever opens a vendor again gets one that has them. What is out under an old one
        ends as it would have."""
        self._keys, self._dotenv_keys, self._dotenv_file = keys, dotenv_keys, dotenv_file
        self._batches.clear()
        for place in [place for place in self._opening if place[0].protocol in REMOTE]:
            del self._opening[place]  # these hold a key and nothing else: their connections are the client's

    async def close(self) -> None:
        tasks = list(self._opening.values())
        self._opening.clear()
        for task in tasks:
            task.cancel()  # nothing happens to one that is done
        for opened in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(opened, BaseException):
                await opened.close()
        for client in self._clients.values():
            await client.close()
        self._clients.clear()

    def _client(self, timeout_s: float) -> HttpClient:
        if timeout_s not in self._clients:
            self._clients[timeout_s] = self._open_http(timeout_s)
        return self._clients[timeout_s]

    async def _start(self, destination: Destination, timeout_s: float) -> Vendor:
        match destination.protocol:
            case VendorProtocol.OPENAI | VendorProtocol.ANTHROPIC:
                return self._open_remote(destination, self._client(timeout_s))
            case VendorProtocol.LOCAL:
                return await self._local(destination, self._client(timeout_s))
            case VendorProtocol.SERVICE:
                key = self._sendable_key(destination)
                return await self._service(destination, self._client(timeout_s or SERVICE_TIMEOUT_S), key)
            case VendorProtocol.BATCH:
                return self._grouping(destination, self.open_batches(live_place(destination)))
            case VendorProtocol.SIMULATED:
                return SimulatedVendor()
            case _:
                assert_never(destination.protocol)

    def _sendable_key(self, destination: Destination) -> str:
        """Empty: none is sent. Raises VendorUnavailable."""
        if missing := self._missing_key(destination):
            raise VendorUnavailable(f"the key of vendor {destination.vendor!r} is missing: set {missing}")
        key = self._key(destination) if destination.key_env else ""
        if key and not can_be_sent(key):
            raise VendorUnavailable(
                f"the value of {destination.key_env} is no key: it has blanks or characters that no header can carry"
            )
        return key

    def _open_remote(self, destination: Destination, http: HttpClient) -> OpenAIVendor | AnthropicVendor:
        key = self._sendable_key(destination)
        kind = AnthropicVendor if destination.protocol is VendorProtocol.ANTHROPIC else OpenAIVendor
        try:
            return kind(
                http,
                base_url=destination.base_url,
                key=key,
                profile=profile_of(destination),
                clock=self._clock,
                agent=user_agent(),
            )
        except (ValueError, UsageError) as error:
            raise VendorUnavailable(
                f"vendor {destination.vendor!r} at {destination.base_url!r} cannot be opened: {error}"
            ) from error


def user_agent() -> str:
    try:
        return f"batchwright/{version('batchwright')}"
    except PackageNotFoundError:
        return "batchwright/unpacked"  # run from a source tree that was never installed
