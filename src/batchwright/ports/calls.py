"""Single calls: one request of somebody who waits for its answer, passed through the lanes that batches use.

- A call waits for room in its lane, before every row of a batch, and is sent once: whoever asked tries again.
- The vendor's answer goes through as it came, whatever its status: no key of a vendor is ever in it.
- What a call cost is durable before its answer is given, or before the end of one that is streamed. A call whose cost
  nobody can tell (no usage, nobody there any more) is counted as such.
- Cancelling `send` withdraws a call that waits; one that is out already is let finish, because it is paid for, unless
  it is streamed: then it is dropped at the vendor too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from batchwright.core.errors import BatchwrightError
from batchwright.core.records import UNKNOWN
from batchwright.core.tenants import Tenant


class Pieces(Protocol):
    """A streamed answer as it comes. While nobody asks for more, no more is read from the vendor."""

    def __aiter__(self) -> Pieces: ...

    async def __anext__(self) -> bytes:
        """What has come. Raises CallBroken if the vendor's answer broke off."""

    def close(self) -> None:
        """To be called in the end, whatever happened: drops the call at the vendor if it is still out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallReply:
    """What the vendor answered."""

    status: int
    headers: tuple[tuple[str, str], ...]
    """Those that are passed on, in lower case: content-type, x-request-id, rate limits and waits."""
    body: bytes = b""
    """Empty for one that is streamed."""
    pieces: Pieces | None = None
    """Of a streamed answer."""
    vendor: str
    """As bills name it."""
    cost_picousd: int = UNKNOWN
    """Of a streamed answer it is not known yet."""


class CallRefused(BatchwrightError):
    """The call was not answered by a vendor. Its text is for whoever asked."""

    def __init__(
        self, message: str, *, code: str, http_status: int, param: str = "", retry_after_s: float = 0.0
    ) -> None:
        super().__init__(message)
        self.code = code
        """In small letters: `invalid_json`, `model_not_found`, `rate_limit_exceeded`, `vendor_...`, a failure kind."""
        self.http_status = http_status
        self.param = param
        self.retry_after_s = retry_after_s
        """0: nothing says when."""


class CallBroken(BatchwrightError):
    """A streamed answer ended before its end."""


class Calls(Protocol):
    async def send(self, tenant: Tenant, endpoint: str, body: bytes) -> CallReply:
        """`endpoint` is a path below a vendor's base URL (`core.endpoints`); the body's `model` says which vendor, and
        `stream` whether the answer comes in pieces. Raises CallRefused; CreditSpent where the tenant's key has
        spent its budget."""
