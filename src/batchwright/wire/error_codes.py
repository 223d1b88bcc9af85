"""Every error code of the native routes, in one table: what discovery, the documentation and the tests read.

A row's failure has the code of its kind (`core.failures.KINDS`); a call's has one of these or of those.
"""

from __future__ import annotations

from dataclasses import dataclass

from batchwright.core.failures import KINDS


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorCode:
    http_status: int
    retryable: bool
    """Whether the same call, unchanged, may succeed later."""
    meaning: str


def _code(http_status: int, meaning: str, *, retryable: bool = False) -> ErrorCode:
    return ErrorCode(http_status=http_status, retryable=retryable, meaning=meaning)


CALL_CODES: dict[str, ErrorCode] = {
    "INVALID_JSON": _code(400, "the body is not JSON"),
    "INVALID_REQUEST": _code(400, "a field or parameter is missing, unknown, or not what was expected"),
    "UNAUTHORIZED": _code(401, "no key was sent, or it is unknown, expired or revoked"),
    "INSUFFICIENT_CREDIT": _code(402, "the key's budget is spent"),
    "FORBIDDEN": _code(403, "the key lacks the scope for this call"),
    "NOT_FOUND": _code(404, "there is nothing of that name in this account, or no such route"),
    "METHOD_NOT_ALLOWED": _code(405, "the route exists, but not for this method"),
    "REQUEST_TIMEOUT": _code(408, "the body did not arrive in time", retryable=True),
    "IDEMPOTENCY_CONFLICT": _code(409, "the idempotency key was used for another request"),
    "WRONG_STATE": _code(409, "the batch's state does not allow the call"),
    "IN_USE": _code(409, "another call or process is at it now", retryable=True),
    "BATCH_REJECTED": _code(413, "the batch is above a ceiling; nothing of it was kept"),
    "BODY_TOO_LARGE": _code(413, "the body is above its ceiling; nothing of it was kept"),
    "HEAD_TOO_LARGE": _code(431, "the request's line and headers are above their ceiling"),
    "UNSUPPORTED_MEDIA_TYPE": _code(415, "the body's content type or encoding is none that is understood"),
    "RANGE_NOT_SATISFIABLE": _code(416, "the part that was asked for is past the end of the file"),
    "RATE_LIMITED": _code(429, "too many requests with this key; Retry-After says when", retryable=True),
    "INTERNAL": _code(500, "a fault of the service itself", retryable=True),
    "UNAVAILABLE": _code(503, "the service cannot work now: its store is full, locked or gone", retryable=True),
}

ROW_CODES: dict[str, ErrorCode] = {
    row.code: ErrorCode(
        http_status=row.http_status, retryable=row.retryable, meaning=f"a row ended as {kind.value.replace('_', ' ')}"
    )
    for kind, row in reversed(KINDS.items())
}
"""By the code; of kinds that share one, the first of the table speaks for it."""
