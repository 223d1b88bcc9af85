"""URLs that a caller names for the service to send to."""

from __future__ import annotations

from batchwright.core.targets import Target, TargetRefused
from batchwright.server.asking import Ask
from batchwright.server.faults import Fault


def read_url(ask: Ask, url: str, param: str) -> Target:
    """Refuses what can be told to lead where nothing may be sent, without a look-up."""
    try:
        return ask.service.targets.read(url)
    except TargetRefused as error:
        raise Fault("INVALID_REQUEST", f"{param}: {error}"[:500], param=param) from None
