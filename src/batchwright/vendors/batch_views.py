"""What every vendor's batch is read with: fields that may be missing, null, empty or of another type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from batchwright.core.endpoints import BadEndpoint, normal_endpoint
from batchwright.core.records import UNKNOWN
from batchwright.ports.vendor_batches import MAX_ERRORS, VendorBatchError
from batchwright.vendors.valid_text import one_line

JsonObject = dict[str, object]

TAG_NAME = "batchwright_tag"
"""In a batch's metadata."""
MAX_TEXT_CHARS = 500
MAX_MESSAGE_CHARS = 1000
MAX_COUNT = 10**9
_EPOCH_MS = 1e11
"""A moment from here on is told in milliseconds."""


def text_of(value: Mapping[str, object], *names: str) -> str:
    """The first of these fields that is a text with something in it; an object's own id where it is one. Else empty."""
    for name in names:
        found = value.get(name)
        if isinstance(found, dict):
            found = found.get("id")
        if isinstance(found, str) and found:
            return one_line(found, MAX_TEXT_CHARS)
    return ""


def object_of(value: Mapping[str, object], name: str) -> JsonObject:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def objects_of(value: object) -> list[JsonObject]:
    """The objects of a list: bare, or in `data`."""
    if isinstance(value, dict):
        value = value.get("data")
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def count(value: object) -> int:
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and isinstance(value, int) and 0 <= value <= MAX_COUNT else UNKNOWN


def moment_ms(value: object) -> int:
    """Seconds or milliseconds since the epoch, or RFC 3339; 0 for anything else."""
    if isinstance(value, bool):
        return 0
    if isinstance(value, (int, float)) and 0 < value < 1e15:
        return int(value if value >= _EPOCH_MS else value * 1000)
    if not isinstance(value, str) or not value:
        return 0
    try:
        moment = datetime.fromisoformat(value)
        return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        return 0


def first_ms(value: Mapping[str, object], *names: str) -> int:
    return next((ms for name in names if (ms := moment_ms(value.get(name)))), 0)


def endpoint_of(value: Mapping[str, object]) -> str:
    try:
        return normal_endpoint(text_of(value, "endpoint"))
    except BadEndpoint:
        return ""


def errors_of(value: object) -> tuple[VendorBatchError, ...]:
    """A list of error objects, bare or in `data`; one object; a text."""
    if isinstance(value, str):
        return (VendorBatchError(message=one_line(value, MAX_MESSAGE_CHARS)),) if value.strip() else ()
    if isinstance(value, dict) and not isinstance(value.get("data"), list):
        value = [value] if value else []
    if isinstance(value, dict):
        value = value.get("data")
    if not isinstance(value, list):
        return ()
    return tuple(error for each in value[:MAX_ERRORS] for error in _error(each))


def _error(value: object) -> tuple[VendorBatchError, ...]:
    if isinstance(value, str):
        return errors_of(value)
    if not isinstance(value, dict):
        return ()
    line = count(value.get("line"))
    message = text_of(value, "message", "error", "detail")
    code = text_of(value, "code", "type")
    if not message and not code:
        return ()
    return (
        VendorBatchError(
            code=code,
            message=one_line(message, MAX_MESSAGE_CHARS),
            line=max(0, line),
            param=text_of(value, "param"),
        ),
    )
