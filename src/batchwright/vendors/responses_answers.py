"""Reads a 200 of /responses: which flag it ends with. Its body says so in `status`, not in a finish reason."""

from __future__ import annotations

from typing import Any

import msgspec

from batchwright.core.failures import FailureKind, Flag
from batchwright.vendors.usage import Charge, Usage, charge_from, usage_from
from batchwright.vendors.valid_text import one_line


class Incomplete(msgspec.Struct, gc=False):
    reason: str | None = None


class ResponsesAnswer(msgspec.Struct, gc=False):
    status: str | None = None
    output: Any = None
    """A list of items; read without types, since each tool brings items of its own."""
    incomplete_details: Incomplete | None = None
    usage: Usage | None = None
    error: Any = None
    object: str | None = None
    type: str | None = None
    infrai: Charge | None = None


RESPONSES_DECODER = msgspec.json.Decoder(ResponsesAnswer)
MAX_STATUS_CHARS = 40
UNFINISHED = frozenset({"queued", "in_progress"})
"""What a request with `background` gets at once: the answer would have to be fetched later."""


def ending(answer: ResponsesAnswer) -> tuple[Flag | FailureKind, str]:
    """How a 200 without an error object ended, and for a failure a sentence."""
    said = f"the answer's status is {one_line(str(answer.status), MAX_STATUS_CHARS)}"
    if answer.status in UNFINISHED:
        return FailureKind.INVALID_REQUEST, f"{said}: it would have to be fetched later; leave `background` out"
    if answer.status not in ("completed", "incomplete") or not isinstance(answer.output, list):
        return FailureKind.BAD_RESPONSE, f"{said}; expected completed or incomplete, with a list as output"
    return _flag_of(answer, answer.output), ""


def _flag_of(answer: ResponsesAnswer, output: list[object]) -> Flag:
    reason = answer.incomplete_details.reason if answer.incomplete_details is not None else None
    if reason == "content_filter":
        return Flag.FILTERED
    items = [item for item in output if isinstance(item, dict)]
    parts = [part for item in items if item.get("type") == "message" for part in _parts(item)]
    if any(part.get("refusal") for part in parts):
        return Flag.REFUSED
    called = any(str(item.get("type")).endswith("_call") for item in items)
    if not called and not any(str(part.get("text") or "").strip() for part in parts):
        return Flag.EMPTY
    return Flag.TRUNCATED if answer.status == "incomplete" else Flag.PLAIN


def _parts(item: dict[str, object]) -> list[dict[str, object]]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


def loose_responses(value: dict[str, object]) -> ResponsesAnswer:
    """An answer whose fields are not of the types they should be: what fits is taken, the rest counts as absent."""
    status, details = value.get("status"), value.get("incomplete_details")
    reason = details.get("reason") if isinstance(details, dict) else None
    return ResponsesAnswer(
        status=status if isinstance(status, str) else None,
        output=value.get("output"),
        incomplete_details=Incomplete(reason if isinstance(reason, str) else None),
        usage=usage_from(value.get("usage")),
        error=value.get("error"),
        infrai=charge_from(value.get("infrai")),
    )
