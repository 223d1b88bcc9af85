"""Which batch API a destination has, and how it is opened."""

from __future__ import annotations

from typing import assert_never

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.errors import UsageError, VendorUnavailable
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient
from batchwright.ports.vendor_batches import BatchLimits, TagKept, VendorBatches
from batchwright.vendors.anthropic import AnswerReader, anthropic_headers
from batchwright.vendors.anthropic_batches import AnthropicBatches
from batchwright.vendors.batch_calls import BatchCalls
from batchwright.vendors.file_batches import FileBatches, FileProtocol, limits_of
from batchwright.vendors.mistral_batches import MistralJobs
from batchwright.vendors.openai_batches import OpenAIFiles
from batchwright.vendors.profiles import BatchApi, BatchProtocol, profile_of
from batchwright.vendors.together_batches import TogetherFiles
from batchwright.vendors.urls import with_version


def batch_limits(destination: Destination) -> BatchLimits | None:
    """None: no batch API is known there."""
    api = _api(destination)
    if api is None:
        return None
    if api.protocol is BatchProtocol.ANTHROPIC:
        return limits_of(api, TagKept.ROW_IDS)
    return limits_of(api, FILE_PROTOCOLS[api.protocol].tag_kept)


def open_batches(destination: Destination, http: HttpClient, *, key: str, clock: Clock, agent: str) -> VendorBatches:
    """Raises VendorUnavailable."""
    api = _api(destination)
    if api is None:
        raise VendorUnavailable(
            f"no batch API of {destination.vendor!r} is known: name its kind as `profile` in its table, or go live"
        )
    is_native = api.protocol is BatchProtocol.ANTHROPIC
    base_url = with_version(destination.base_url) if is_native else destination.base_url
    headers = anthropic_headers(key, agent) if is_native else bearer_headers(key, agent)
    profile = profile_of(destination)
    try:
        calls = BatchCalls(http, base_url=base_url, key=key, headers=headers, profile=profile, clock=clock)
    except ValueError as error:
        raise VendorUnavailable(
            f"vendor {destination.vendor!r} at {destination.base_url!r} cannot be opened: {error}"
        ) from error
    if is_native:
        return AnthropicBatches(calls, api, AnswerReader(profile, key, clock))
    return FileBatches(calls, api, FILE_PROTOCOLS[api.protocol])


def bearer_headers(key: str, agent: str) -> dict[str, str]:
    return {"user-agent": agent, **({"authorization": f"Bearer {key}"} if key else {})}


def _api(destination: Destination) -> BatchApi | None:
    match destination.protocol:
        case VendorProtocol.OPENAI | VendorProtocol.ANTHROPIC:
            try:
                api = profile_of(destination).batches
            except UsageError:
                return None
            is_native = api is not None and api.protocol is BatchProtocol.ANTHROPIC
            return api if is_native is (destination.protocol is VendorProtocol.ANTHROPIC) else None
        case VendorProtocol.SERVICE | VendorProtocol.BATCH | VendorProtocol.LOCAL | VendorProtocol.SIMULATED:
            return None
        case _:
            assert_never(destination.protocol)


FILE_PROTOCOLS: dict[BatchProtocol, FileProtocol] = {
    BatchProtocol.OPENAI: OpenAIFiles(),
    BatchProtocol.MISTRAL: MistralJobs(),
    BatchProtocol.TOGETHER: TogetherFiles(),
}
"""Those to which rows go as a file."""
