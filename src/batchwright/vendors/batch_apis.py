"""Which batch API a destination has, and how it is opened."""

from __future__ import annotations

from typing import assert_never

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.errors import UsageError, VendorUnavailable
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient
from batchwright.ports.vendor_batches import BatchLimits, VendorBatches
from batchwright.vendors.batch_calls import BatchCalls
from batchwright.vendors.file_batches import FileBatches, FileProtocol, limits_of
from batchwright.vendors.openai_batches import OpenAIFiles
from batchwright.vendors.profiles import BatchApi, BatchProtocol, find_profile


def batch_limits(destination: Destination) -> BatchLimits | None:
    """None: no batch API is known there."""
    api = _api(destination)
    return limits_of(api, _protocol(api).tag_kept) if api is not None else None


def open_batches(destination: Destination, http: HttpClient, *, key: str, clock: Clock, agent: str) -> VendorBatches:
    """Raises VendorUnavailable."""
    api = _api(destination)
    if api is None:
        raise VendorUnavailable(
            f"no batch API of {destination.vendor!r} is known: name its kind as `profile` in its table, or go live"
        )
    headers = {"user-agent": agent}
    if key:
        headers["authorization"] = f"Bearer {key}"
    try:
        calls = BatchCalls(
            http,
            base_url=destination.base_url,
            key=key,
            headers=headers,
            profile=find_profile(destination.profile, destination.base_url),
            clock=clock,
        )
    except ValueError as error:
        raise VendorUnavailable(
            f"vendor {destination.vendor!r} at {destination.base_url!r} cannot be opened: {error}"
        ) from error
    return FileBatches(calls, api, _protocol(api))


def _api(destination: Destination) -> BatchApi | None:
    match destination.protocol:
        case VendorProtocol.OPENAI:
            try:
                return find_profile(destination.profile, destination.base_url).batches
            except UsageError:
                return None
        case VendorProtocol.SERVICE | VendorProtocol.LOCAL | VendorProtocol.SIMULATED:
            return None
        case _:
            assert_never(destination.protocol)


def _protocol(api: BatchApi) -> FileProtocol:
    match api.protocol:
        case BatchProtocol.OPENAI:
            return OpenAIFiles()
        case _:
            assert_never(api.protocol)
