"""Opens vendors by destination, each once, for all lanes of a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import PackageNotFoundError, version

from batchwright.core.batch_spec import Destination
from batchwright.core.errors import UsageError, VendorUnavailable
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient
from batchwright.ports.vendor import Vendor
from batchwright.vendors.openai import OpenAIVendor
from batchwright.vendors.profiles import find_profile
from batchwright.vendors.simulated import SimulatedVendor

OpenLocal = Callable[[Destination], Awaitable[Vendor]]
"""Starts the local model's server; handed in, since it needs a process and a folder."""


class OpenVendors:
    """Implements `ports.vendor.Vendors`. To be made and used inside one running loop.

    The HTTP client stays its maker's: `close` ends the vendors opened here, not the connections they shared.
    """

    def __init__(self, http: HttpClient, environ: Mapping[str, str], clock: Clock, *, local: OpenLocal) -> None:
        self._http = http
        self._environ = environ
        self._clock = clock
        self._local = local
        self._opening: dict[Destination, asyncio.Task[Vendor]] = {}

    def missing_key(self, destination: Destination) -> str:
        name = destination.key_env
        return name if name and not self._environ.get(name, "").strip() else ""

    async def open(self, destination: Destination) -> Vendor:
        """Raises VendorUnavailable; a later call tries again."""
        task = self._opening.get(destination)
        if task is None:
            task = asyncio.create_task(self._start(destination), name=f"open vendor {destination.vendor}")
            self._opening[destination] = task
        try:
            # Whoever asked first may be cancelled; the others still wait for the same vendor.
            return await asyncio.shield(task)
        finally:
            failed = task.done() and (task.cancelled() or task.exception() is not None)
            if failed and self._opening.get(destination) is task:
                del self._opening[destination]

    async def close(self) -> None:
        tasks = list(self._opening.values())
        self._opening.clear()
        for task in tasks:
            task.cancel()  # nothing happens to one that is done
        for opened in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(opened, BaseException):
                await opened.close()

    async def _start(self, destination: Destination) -> Vendor:
        match destination.protocol:
            case "openai":
                return self._open_openai(destination)
            case "local":
                return await self._local(destination)
            case "simulated":
                return SimulatedVendor()
            case other:
                raise VendorUnavailable(
                    f"vendor {destination.vendor!r} has protocol {other!r}; there are openai, local and simulated"
                )

    def _open_openai(self, destination: Destination) -> OpenAIVendor:
        if missing := self.missing_key(destination):
            raise VendorUnavailable(f"the key of vendor {destination.vendor!r} is missing: set {missing}")
        key = self._environ.get(destination.key_env, "").strip() if destination.key_env else ""
        if not key.isascii() or not key.isprintable() or " " in key:
            raise VendorUnavailable(
                f"the value of {destination.key_env} is no key: it has blanks or characters that no header can carry"
            )
        try:
            return OpenAIVendor(
                self._http,
                base_url=destination.base_url,
                key=key,
                profile=find_profile(destination.profile, destination.base_url),
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
