"""How a vendor of the settings is spoken to, where its table does not say."""

from __future__ import annotations

from urllib.parse import urlsplit

from batchwright.core.batch_spec import VendorProtocol

ANTHROPIC_HOST = "api.anthropic.com"


def protocol_of(said: VendorProtocol | None, *, base_url: str, profile: str) -> VendorProtocol:
    """What was said; else Anthropic's own at its address, and at any whose profile is Anthropic's."""
    if said is not None:
        return said
    is_anthropic = profile == "anthropic" or (not profile and urlsplit(base_url).hostname == ANTHROPIC_HOST)
    return VendorProtocol.ANTHROPIC if is_anthropic else VendorProtocol.OPENAI
