"""Reads what a vendor says went wrong, in any of the shapes that are in use, into one `ErrorView`.

{"error": {"message", "type", "param", "code"}}            OpenAI and most others; `code` may be a number
{"error": {"code": 429, "message", "status", "details"}}   Gemini, also wrapped in an array
{"error": {"code": 502, "message", "metadata"}}            OpenRouter
{"type": "error", "error": {"type", "message"}}            Anthropic
{"object": "error", "message", "type", "param", "code"}    Mistral, older vLLM
{"detail": "..."} or {"detail": [{"loc", "msg", "type"}]}  FastAPI servers
{"error": "..."}                                           small servers
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from batchwright.vendors.valid_text import one_line

MAX_MESSAGE_CHARS = 1000
"""Enough for a sentence with its hint; a vendor that echoes the prompt does not fill the state file."""
MAX_CODE_CHARS = 100
MAX_PARAM_CHARS = 200
MAX_DETAILS = 20
"""How many entries of a list of details are looked at."""
QUOTA_PER_DAY = "quota_per_day"
DETAIL_CODES = ("code", "error_code", "reason")

JsonObject = dict[str, object]


class ErrorView(msgspec.Struct, frozen=True, gc=False, kw_only=True):
    code: str = ""
    """The vendor's own code; where it has none its status word or error type."""
    param: str = ""
    message: str = ""
    marks: tuple[str, ...] = ()
    """Everything by which a profile may know the error, lower case, the most telling first."""
    status: int = 0
    """An HTTP status that the body itself names; 0: none."""
    delay: str = ""
    """A wait the body asks for, in one of the forms of `waits.py`."""
    structured: bool = False
    """It came as an error object, which a server that does not know the path rarely has."""


def read_error(value: object) -> ErrorView | None:
    """`value` is the decoded body of an answer that failed; None where it says nothing that can be read."""
    found = unwrap(value)
    if found is None:
        return None
    error = found.get("error")
    if isinstance(error, dict) and error:
        return _from_object(error, structured=True)
    if isinstance(error, str) and error:
        text = found.get("message")
        view = _from_object(
            {"code": error, "message": text if isinstance(text, str) and text else error}, structured=True
        )
        return msgspec.structs.replace(view, structured=error.lower() != "not found")
    if any(key in found for key in ("message", "detail", "errors", "code", "type")):
        return _from_object(found, structured=found.get("object") == "error")
    return None


def error_in_success(value: object) -> ErrorView | None:
    """The error object of a body that came with status 200; None where there is none."""
    found = unwrap(value)
    if found is None:
        return None
    if found.get("error") or found.get("object") == "error" or found.get("type") == "error":
        return read_error(found)
    return None


def unwrap(value: object) -> JsonObject | None:
    """The object, or the first object of an array that wraps it."""
    if isinstance(value, list):
        value = next((item for item in value[:1] if isinstance(item, dict)), None)
    return value if isinstance(value, dict) else None


def _from_object(error: JsonObject, *, structured: bool) -> ErrorView:
    code, status_word, kind_word = (_word(error.get(key)) for key in ("code", "status", "type"))
    number = int(code) if code.isdecimal() and len(code) == 3 else 0
    details = list(_details(error))
    own_code = "" if 100 <= number <= 599 else code
    shown = own_code or status_word or kind_word or code
    marks = [own_code, status_word, *(_word(item.get(key)) for item in details for key in DETAIL_CODES)]
    marks += [kind_word, _word(error.get("error_type"))]
    if any(_is_daily(item) for item in details):
        marks.insert(0, QUOTA_PER_DAY)
    message, param = _prose(error)
    return ErrorView(
        code=one_line(shown, MAX_CODE_CHARS),
        param=one_line(param, MAX_PARAM_CHARS),
        message=one_line(message, MAX_MESSAGE_CHARS),
        marks=tuple(mark.lower() for mark in marks if mark),
        status=number if 100 <= number <= 599 else 0,
        delay=next((delay for item in details if (delay := _word(item.get("retryDelay")))), ""),
        structured=structured,
    )


def _word(value: object) -> str:
    """A code as text; numbers count, true and false do not."""
    if isinstance(value, str):
        return value
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def _prose(error: JsonObject) -> tuple[str, str]:
    """(message, param), the first finding of a list of them."""
    param = _word(error.get("param"))
    for key in ("message", "msg", "detail", "errors"):
        value = error.get(key)
        if isinstance(value, str) and value:
            return value, param
        if isinstance(value, dict):
            return _prose(value)
        if isinstance(value, list) and value and isinstance(value[0], dict):
            message, inner = _prose(value[0])
            return message, param or inner or _location(value[0].get("loc"))
    return "", param


def _location(loc: object) -> str:
    """FastAPI's ["body", "messages", 0, "role"] as `messages.0.role`."""
    if not isinstance(loc, list):
        return ""
    return ".".join(str(part) for part in (loc[1:] if loc[:1] == ["body"] else loc))


def _details(error: JsonObject) -> Iterator[JsonObject]:
    """Objects in which vendors put what the code does not say: `details`, `metadata`, `innererror`, violations."""
    for key in ("details", "metadata", "innererror", "violations"):
        value = error.get(key)
        for item in value[:MAX_DETAILS] if isinstance(value, list) else [value]:
            if isinstance(item, dict):
                yield item
                if key == "details":
                    yield from _details(item)


def _is_daily(detail: JsonObject) -> bool:
    """A Gemini quota violation whose `quotaId` says that it is counted by the day."""
    return "perday" in _word(detail.get("quotaId")).lower()
