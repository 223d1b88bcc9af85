"""The body of a webhook's registration: bytes -> what was asked."""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from batchwright.core.webhooks import EVERY_EVENT, EventType, check_secret
from batchwright.wire.bad_body import BadBody
from batchwright.wire.infrai_submit import MAX_KEY_CHARS, param_of, sentence_of

EVERY = "*"
"""In `events`: all of them, later ones too."""
MAX_DESCRIPTION_CHARS = 500
MAX_HEADERS = 20
MAX_HEADER_CHARS = 2048

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,100}")
_VALUE = re.compile(r"[\x20-\x7e]*")
_OURS = frozenset(
    {
        *("host", "content-length", "transfer-encoding", "connection", "expect", "accept-encoding", "upgrade", "te"),
        *("content-type", "trailer", "webhook-id", "webhook-timestamp", "webhook-signature", "x-infrai-signature"),
    }
)
"""Headers that frame or sign the message."""


class WebhookWish(msgspec.Struct, kw_only=True, frozen=True):
    """What was asked, checked but for where the URL leads."""

    url: str
    events: frozenset[EventType]
    description: str
    secret: str
    """Empty: one is to be made."""
    headers: dict[str, str]
    idempotency_key: str


class _Body(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    url: str | None = None
    events: list[str] | None = None
    description: str | None = None
    secret: str | None = None
    headers: dict[str, str] | None = None
    idempotency_key: str | None = None


_body = msgspec.json.Decoder(_Body)


def read_register(body: bytes) -> WebhookWish:
    """Raises BadBody."""
    try:
        found = _body.decode(body)
    except msgspec.ValidationError as error:
        raise BadBody(sentence_of(error, _Body.__struct_fields__), param_of(error)) from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadBody(f"the body is not JSON: {error}", json=False) from None
    if not found.url:
        raise BadBody("url is missing; expected where to send, such as https://example.com/hook", "url")
    key = found.idempotency_key or ""
    if len(key) > MAX_KEY_CHARS:
        raise BadBody(f"idempotency_key has {len(key)} characters; at most {MAX_KEY_CHARS}", "idempotency_key")
    description = found.description or ""
    if len(description) > MAX_DESCRIPTION_CHARS:
        raise BadBody(f"description has {len(description)} characters; at most {MAX_DESCRIPTION_CHARS}", "description")
    return WebhookWish(
        url=found.url,
        events=_events(found.events),
        description=description,
        secret=_secret(found.secret),
        headers=_headers(found.headers or {}),
        idempotency_key=key,
    )


def _secret(value: str | None) -> str:
    if value is None:
        return ""
    try:
        return check_secret(value)
    except ValueError as error:
        raise BadBody(f"secret: {error}", "secret") from None


def _events(names: list[str] | None) -> frozenset[EventType]:
    if names is None or EVERY in names:
        return EVERY_EVENT
    known = {event.value: event for event in EventType}
    for name in names:
        if name not in known:
            raise BadBody(f"events: there is no {name[:80]!r}; known are {', '.join(known)} and {EVERY}", "events")
    if not names:
        raise BadBody(f"events is empty; expected some of {', '.join(known)}, or {EVERY}", "events")
    return frozenset(known[name] for name in names)


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Values may be secrets: never repeated."""
    if len(headers) > MAX_HEADERS:
        raise BadBody(f"headers has {len(headers)} entries; at most {MAX_HEADERS}", "headers")
    for name, value in headers.items():
        if not _NAME.fullmatch(name):
            raise BadBody(f"headers: {name[:80]!r} is no header name", "headers")
        if name.lower() in _OURS:
            raise BadBody(f"headers: {name} is written by the service itself; leave it away", "headers")
        if len(value) > MAX_HEADER_CHARS or not _VALUE.fullmatch(value):
            raise BadBody(
                f"headers: the value of {name} has a control character, one outside ASCII, or more than "
                f"{MAX_HEADER_CHARS} characters",
                "headers",
            )
    return dict(headers)
