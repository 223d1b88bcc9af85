"""`GET /models`: what a vendor says when it is asked for its models. It costs nothing."""

from __future__ import annotations

import msgspec

from batchwright.ports.http import HttpEnd, HttpReply
from batchwright.ports.vendor import Answer
from batchwright.vendors.valid_text import one_line
from batchwright.wire.http_head import header

MODELS = "/models"
MAX_MODEL_CHARS = 200


class Listing(msgspec.Struct, frozen=True, kw_only=True):
    answer: Answer
    """As of a row: the kind of a failure, its message without the key."""
    models: tuple[str, ...] | None
    """None: what came is no list of models."""
    date: str
    """The Date header, of an answer that comes from no cache; empty: none came."""


def read_listing(end: HttpEnd, answer: Answer) -> Listing:
    """`answer`: the same end, classified, with the key hidden."""
    head = end.head if isinstance(end, HttpReply) else b""
    fresh = header(head, "age") is None
    return Listing(
        answer=answer,
        models=_names(answer.body) if answer.kind is None else None,
        date=(header(head, "date") or "") if fresh else "",
    )


def _names(body: bytes) -> tuple[str, ...] | None:
    """`{"data": [{"id"}]}`; also a bare list of such objects, and `{"models": [{"name"}]}`."""
    try:
        value = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None
    if isinstance(value, dict):
        value = value.get("data", value.get("models"))
    if not isinstance(value, list):
        return None
    names = []
    for each in value:
        name = (each.get("id") or each.get("name")) if isinstance(each, dict) else each
        if isinstance(name, str) and name:
            names.append(one_line(name, MAX_MODEL_CHARS))
    return tuple(dict.fromkeys(names))
