"""What to do about rows that have nowhere to go: for the command and the library alike."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from batchwright.core.errors import Finding

if TYPE_CHECKING:
    from batchwright.settings import Settings


def endpoint_help_text(settings: Settings, findings: Iterable[Finding]) -> str:
    """Empty where no row lacks a place to go, or where the finding says it all."""
    unroutable = [finding.message for finding in findings if finding.code == "unroutable"]
    remedies = [
        text for reason, text in settings.remedies.items() if text and any(reason in message for message in unroutable)
    ]
    if remedies:
        return "\n".join(dict.fromkeys(remedies))
    if not unroutable or settings.destinations:
        return ""
    return "\n".join(("Where rows can go:", *(f"  {line}" for line in settings.endpoint_help())))
