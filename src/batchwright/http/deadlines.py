"""When a request that was written has waited long enough. Decided alike for all transports."""

from __future__ import annotations

from batchwright.http.faults import timeout
from batchwright.ports.http import HttpFault, Timeouts


def overdue(timeouts: Timeouts, out_s: float, *, heard: bool) -> HttpFault | None:
    """What a request ends with that was written `out_s` ago; `heard`: a byte of its answer has come."""
    if not heard and out_s >= timeouts.first_byte_s:
        return timeout(f"no first byte within {timeouts.first_byte_s:g} s")
    if out_s >= timeouts.total_s:
        return timeout(f"no whole answer within {timeouts.total_s:g} s")
    return None


def silent(timeouts: Timeouts, quiet_s: float) -> HttpFault | None:
    """The same for a streamed answer of which nothing has come for `quiet_s`."""
    limit_s = timeouts.first_byte_s
    return timeout(f"nothing of the answer came for {limit_s:g} s") if quiet_s >= limit_s else None
