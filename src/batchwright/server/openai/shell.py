"""The shell around every route of OpenAI's face: as that of the native routes, with errors in OpenAI's shape."""

from __future__ import annotations

import re

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from batchwright.ports.file_batches import Files
from batchwright.server.asking import Ask, Shell, request_id
from batchwright.server.envelope import JSON
from batchwright.server.faults import Fault, fault_of, retry_after
from batchwright.server.service import Service
from batchwright.wire.error_codes import CALL_CODES

FILE_ID = re.compile(r"file-[0-9a-f]{24}(?:[0-9a-f]{4,12}[oe])?")
PATHS = (
    *("/v1/files", "/v1/batches", "/v1/models"),
    *("/v1/chat/", "/v1/completions", "/v1/embeddings", "/v1/responses"),
)

CODES: dict[str, str] = {
    "UNAUTHORIZED": "invalid_api_key",
    "RATE_LIMITED": "rate_limit_exceeded",
    "INSUFFICIENT_CREDIT": "insufficient_quota",
    "FORBIDDEN": "insufficient_permissions",
}
"""`error.code` where OpenAI has a word of its own; else it is ours, in small letters."""

_encode = msgspec.json.Encoder().encode


class OpenAIShell(Shell):
    def refuse(self, error: Exception, ask: Ask) -> Response:
        fault = fault_of(error)
        if fault is None or fault.code == "UNAVAILABLE":
            self._service.report(f"request {ask.request_id}: {type(error).__name__}: {error}")
        if fault is None:
            fault = Fault("INTERNAL", "A fault of the service itself; its log has more under this x-request-id.")
        return failure(fault, ask.request_id)


def no_route(service: Service, fault: Fault) -> Response:
    """404 and 405 of the router itself."""
    return failure(fault, request_id(service.clock, service.chance))


def is_ours(request: Request) -> bool:
    return request.url.path.startswith(PATHS)


def failure(fault: Fault, request_id_: str) -> Response:
    status = fault.http_status
    message = f"{fault.message} {fault.hint}".strip()
    error = {
        "message": message,
        "type": error_type(status),
        "param": fault.param or None,
        "code": CODES.get(fault.code, fault.code.lower()),
    }
    # The SDK sends every 409 again unless it is told not to.
    should_retry = "true" if CALL_CODES[fault.code].retryable else "false"
    headers = {"X-Request-Id": request_id_, "X-Should-Retry": should_retry}
    if fault.retry_after_s:
        headers["Retry-After"] = retry_after(fault.retry_after_s)
    if fault.code == "UNAUTHORIZED":
        headers["WWW-Authenticate"] = "Bearer"
    return Response(_encode({"error": error}), status_code=status, media_type=JSON, headers=headers)


def error_type(status: int) -> str:
    match status:
        case 402:
            return "insufficient_quota"
        case 429:
            return "rate_limit_error"
        case _ if status >= 500:
            return "server_error"
        case _:
            return "invalid_request_error"


def answer(ask: Ask, data: object, headers: dict[str, str] | None = None) -> Response:
    return Response(_encode(data), media_type=JSON, headers={**(headers or {}), "X-Request-Id": ask.request_id})


def files(ask: Ask) -> Files:
    return ask.service.files_of(ask.tenant)


def file_id(ask: Ask) -> str:
    """The path's. What cannot be an id is one that is not there."""
    text = str(ask.request.path_params["file_id"])
    if not FILE_ID.fullmatch(text):
        raise Fault("NOT_FOUND", "There is no such file in this account.", param="file_id")
    ask.said["file_id"] = text
    return text
