"""A service's result item -> the `Answer` that a row's vendor would have given. No I/O.

A service of ours says which failure kind a row ended with, after its own attempts: that is final. Infrai says
`VENDOR_DOWN` 503 for an unknown model as for an outage, so its messages are read too: an unknown model must not be sent
five times.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from batchwright.client.fields import Fields
from batchwright.client.values import RowResult
from batchwright.core.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from batchwright.core.failures import FailureKind
from batchwright.core.money import picousd_from_usd
from batchwright.core.records import UNKNOWN
from batchwright.ports.vendor import Answer

ReadAnswer = Callable[[int, bytes, str], Answer]
"""(status, body, endpoint) of what a vendor would have sent -> what it means (`vendors.classify`)."""
MAX_COST_PICOUSD = 10**15
"""A thousand USD for a row is a slip, and counts as not known."""
MAX_MESSAGE_CHARS = 1_000
_SAID: tuple[tuple[re.Pattern[str], FailureKind], ...] = (
    (
        re.compile(
            r"model\b.{0,80}\b(not exist|not found|unknown|not supported|invalid)|(unknown|no such|invalid) model"
            r"|模型不存在"
        ),
        FailureKind.MODEL_NOT_FOUND,
    ),
    (re.compile(r"(context|prompt|input).{0,40}(too long|length|exceed)"), FailureKind.CONTEXT_TOO_LONG),
    (re.compile(r"content.{0,20}(filter|policy|polic)|sensitive"), FailureKind.CONTENT_FILTERED),
)
"""What is a row's own fault, in the words of vendors that stand behind a generic code."""
_TAKEN_HERE = {
    FailureKind.INVALID_ROW: FailureKind.INVALID_REQUEST,
    FailureKind.UNROUTABLE: FailureKind.MODEL_NOT_FOUND,
}
"""What the service refused when it read the row. Here the row was read well, and may be sent again: it is as if a
vendor had refused it."""


def answer_of(item: RowResult, endpoint: str, read: ReadAnswer) -> Answer:
    """Of an item that has ended."""
    answer = _success(item, endpoint, read) if item.ok else _failure(item, endpoint, read)
    answer.cost_picousd = _cost(item)
    return answer


def missing(batch_id: str) -> Answer:
    return Answer(
        kind=FailureKind.MISSING_FROM_UPSTREAM,
        code="missing_from_upstream",
        message=f"the service's results of {batch_id} have no item for this row",
    )


def closed(state: str, batch_id: str) -> Answer | None:
    """For a row without an outcome of its own in a batch that was ended; None: the batch was not."""
    kind = {"cancelled": FailureKind.CANCELLED, "expired": FailureKind.EXPIRED}.get(state)
    if kind is None:
        return None
    return Answer(kind=kind, code=f"batch_{kind.value}", message=f"the service's {batch_id} was {kind.value}")


def _success(item: RowResult, endpoint: str, read: ReadAnswer) -> Answer:
    answer = read(200, item.response or _body_of(item, endpoint), endpoint)
    if answer.prompt_tokens == UNKNOWN and item.usage.prompt_tokens is not None:
        answer.prompt_tokens = item.usage.prompt_tokens
    if answer.completion_tokens == UNKNOWN and item.usage.completion_tokens is not None:
        answer.completion_tokens = item.usage.completion_tokens
    return answer


def _body_of(item: RowResult, endpoint: str) -> bytes:
    """The answer of a service that keeps only its text: in a vendor's shape, of the very bytes that came."""
    result = Fields(item.raw).fields("result")
    write = _BODIES.get(endpoint)
    if write is None:
        return result.raw
    return write(*(result.bytes_of(name) or b"null" for name in ("model", "content", "finish_reason", "usage")))


def _chat(model: bytes, content: bytes, finish_reason: bytes, usage: bytes) -> bytes:
    return (
        b'{"object":"chat.completion","model":%b,"choices":[{"index":0,"message":{"role":"assistant","content":%b},'
        b'"finish_reason":%b}],"usage":%b}' % (model, content, finish_reason, usage)
    )


def _completion(model: bytes, content: bytes, finish_reason: bytes, usage: bytes) -> bytes:
    return (
        b'{"object":"text_completion","model":%b,"choices":[{"index":0,"text":%b,"finish_reason":%b}],"usage":%b}'
        % (
            model,
            content,
            finish_reason,
            usage,
        )
    )


def _response(model: bytes, content: bytes, finish_reason: bytes, usage: bytes) -> bytes:
    """Of an answer that was cut off the reason is kept in place of its status."""
    parts = b"" if content == b"null" else b'{"type":"output_text","text":%b}' % content
    ended = b'"completed","incomplete_details":null'
    if finish_reason not in (b"null", b'"completed"'):
        ended = b'"incomplete","incomplete_details":{"reason":%b}' % finish_reason
    return (
        b'{"object":"response","model":%b,"status":%b,"output":[{"type":"message","role":"assistant","content":[%b]}],'
        b'"usage":%b}' % (model, ended, parts, usage)
    )


def _embeddings(model: bytes, content: bytes, finish_reason: bytes, usage: bytes) -> bytes:
    """One vector, or a list of them."""
    several = content.startswith(b"[") and content[1:].lstrip()[:1] in (b"[", b'"')
    vectors = msgspec.json.decode(content, type=list[msgspec.Raw]) if several else [msgspec.Raw(content)]
    data = b",".join(
        b'{"object":"embedding","index":%d,"embedding":%b}' % (at, bytes(one)) for at, one in enumerate(vectors)
    )
    return b'{"object":"list","model":%b,"data":[%b],"usage":%b}' % (model, data, usage)


_BODIES: dict[str, Callable[[bytes, bytes, bytes, bytes], bytes]] = {
    CHAT: _chat,
    COMPLETIONS: _completion,
    RESPONSES: _response,
    EMBEDDINGS: _embeddings,
}


def _failure(item: RowResult, endpoint: str, read: ReadAnswer) -> Answer:
    error = item.error
    if error is None:
        return Answer(kind=FailureKind.BAD_RESPONSE, message="the service's item has neither a result nor an error")
    message = error.message[:MAX_MESSAGE_CHARS] or f"the service says {error.code[:100] or 'nothing'} and no more"
    if error.kind in tuple(FailureKind):
        return Answer(
            kind=_TAKEN_HERE.get(FailureKind(error.kind), FailureKind(error.kind)),
            http_status=error.http_status,
            code=error.code,
            message=message,
            body=item.response,
            final=item.attempts > 0,
        )
    kind = next((kind for pattern, kind in _SAID if pattern.search(message.lower())), None)
    body = msgspec.json.encode({"error": {"code": error.code, "message": message}})
    status = error.http_status if 400 <= error.http_status <= 599 else 503
    answer = read(status, body, endpoint)
    if kind is not None:
        answer.kind = kind
    answer.body = b""
    return answer


def _cost(item: RowResult) -> int:
    if item.cost_usd is None:
        return UNKNOWN
    picousd = picousd_from_usd(item.cost_usd)
    return picousd if 0 <= picousd <= MAX_COST_PICOUSD else UNKNOWN
