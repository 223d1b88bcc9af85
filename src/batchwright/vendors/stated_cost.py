"""Whether a stored answer's cost may be the vendor's own figure, asked long after it came: its head is not kept."""

from __future__ import annotations

from batchwright.core.batch_spec import Destination, VendorProtocol
from batchwright.core.records import UNKNOWN
from batchwright.ports.http import HttpReply
from batchwright.vendors.classify import classify
from batchwright.vendors.profiles import profile_of


def may_state_cost(destination: Destination, endpoint: str, body: bytes) -> bool:
    """True where the body states one, and at a vendor that states costs in a header."""
    if destination.protocol in (VendorProtocol.SIMULATED, VendorProtocol.SERVICE):
        return True
    profile = profile_of(destination)
    if profile.states_cost_in_head:
        return True
    answer = classify(HttpReply(200, b"", body), profile, endpoint=endpoint, now_ms=0)
    return answer.cost_picousd != UNKNOWN
