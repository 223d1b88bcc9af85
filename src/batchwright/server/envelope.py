"""The envelope of the native routes: `{ok, data, error, metadata}`, also around every error."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.responses import Response

from batchwright.core.money import usd_text
from batchwright.server.faults import Fault, retry_after
from batchwright.wire.error_codes import CALL_CODES

JSON = "application/json"
_encode = msgspec.json.Encoder().encode


def usd(picousd: int) -> msgspec.Raw:
    """A JSON number of USD, exact to 1e-12."""
    return msgspec.Raw(usd_text(picousd).encode())


def known_usd(picousd: int, *, unknown: int) -> msgspec.Raw | None:
    """The sum of what is known, beside so many answers of which nothing is; None: nothing is known of any."""
    return usd(picousd) if picousd or not unknown else None


def success(data: object, *, request_id: str, latency_ms: int, headers: Mapping[str, str] | None = None) -> Response:
    """`data` is anything msgspec can encode; `msgspec.Raw` goes in as it is."""
    body = {"ok": True, "data": data, "error": None, "metadata": _metadata(request_id, latency_ms)}
    return Response(_encode(body), media_type=JSON, headers=_with_id(headers, request_id))


def failure(fault: Fault, *, request_id: str, latency_ms: int) -> Response:
    body = {
        "ok": False,
        "data": None,
        "error": error_object(fault),
        "metadata": _metadata(request_id, latency_ms),
    }
    headers = _with_id(None, request_id)
    if fault.retry_after_s:
        headers["Retry-After"] = retry_after(fault.retry_after_s)
    if fault.code == "UNAUTHORIZED":
        headers["WWW-Authenticate"] = "Bearer"
    return Response(_encode(body), status_code=fault.http_status, media_type=JSON, headers=headers)


def error_object(fault: Fault) -> dict[str, Any]:
    error: dict[str, Any] = {"code": fault.code, "message": fault.message, "hint": fault.hint or None}
    error["retryable"] = CALL_CODES[fault.code].retryable
    if fault.param:
        error["param"] = fault.param
    return error


def _metadata(request_id: str, latency_ms: int) -> dict[str, object]:
    # No call of these is answered by a vendor or costs anything by itself; what rows cost stands with the rows.
    return {"request_id": request_id, "latency_ms": latency_ms, "cost_usd": 0, "vendor": None, "cache_hit": False}


def _with_id(headers: Mapping[str, str] | None, request_id: str) -> dict[str, str]:
    return {**(headers or {}), "X-Request-Id": request_id}
