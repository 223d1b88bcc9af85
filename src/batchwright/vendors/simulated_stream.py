"""The simulated vendor's answer to a call: after its latency, in events a moment apart where a stream was asked for."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from batchwright.core.endpoints import COMPLETIONS, RESPONSES
from batchwright.ports.http import HttpEnd, HttpReply
from batchwright.vendors.relay import EVENT_STREAM, Relay

PAUSE_S = 0.02
"""Between two events."""
HEAD = f"HTTP/1.1 200 OK\r\ncontent-type: {EVENT_STREAM}".encode()
_words = re.compile(r"\s*\S+").findall


class SimulatedCall:
    """Implements `ports.vendor.RelayedCall`. To be made on the loop's thread."""

    __slots__ = ("_events", "_handle", "_held", "_loop", "_relay")

    def __init__(self, relay: Relay, end: HttpEnd, latency_s: float, events: Iterator[bytes] | None) -> None:
        """`events` None: the answer is whole."""
        self._loop = asyncio.get_running_loop()
        self._relay = relay
        self._events = events
        self._held = False
        first: Callable[[], None] = self._begin if events is not None else lambda: relay.end(end)
        self._handle: asyncio.TimerHandle | None = self._loop.call_later(latency_s, first)

    def abort(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
        self._events = None

    def hold(self, held: bool) -> None:
        if self._held and not held and self._events is not None:
            self._handle = self._loop.call_later(PAUSE_S, self._go_on)
        self._held = held

    def _begin(self) -> None:
        self._relay.begin(HEAD)
        self._go_on()

    def _go_on(self) -> None:
        if self._held or self._events is None:
            return
        event = next(self._events, None)
        if event is None:
            self._events = None
            self._relay.end(HttpReply(200, HEAD, b""))
            return
        self._relay.take(event)
        self._handle = self._loop.call_later(PAUSE_S, self._go_on)


def stream_events(endpoint: str, answer: bytes, body: bytes) -> Iterator[bytes]:
    """The events of an answer that the simulator would have given whole; `body` is the request."""
    whole: dict[str, Any] = msgspec.json.decode(answer)
    if endpoint == RESPONSES:
        yield from _response_events(whole)
        return
    asked = msgspec.json.decode(body).get("stream_options")
    events = _completion_events if endpoint == COMPLETIONS else _chat_events
    yield from events(whole, with_usage=isinstance(asked, dict) and asked.get("include_usage") is True)


def _completion_events(whole: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    usage = whole.pop("usage")
    choices = whole.pop("choices")
    for choice in choices:
        for word in _words(choice["text"]):
            yield _data(whole | {"choices": [choice | {"text": word, "finish_reason": None}]})
        yield _data(whole | {"choices": [choice | {"text": ""}]})
    if with_usage:
        yield _data(whole | {"choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _chat_events(whole: dict[str, Any], *, with_usage: bool) -> Iterator[bytes]:
    usage = whole.pop("usage")
    choice = whole.pop("choices")[0]
    chunk = whole | {"object": "chat.completion.chunk"}
    refusal = choice["message"].get("refusal")
    name, text = ("refusal", refusal) if refusal else ("content", choice["message"]["content"])
    deltas: list[dict[str, object]] = [{"role": "assistant", name: ""}, *({name: word} for word in _words(text))]
    for delta in deltas:
        yield _data(chunk | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
    yield _data(chunk | {"choices": [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}]})
    if with_usage:
        yield _data(chunk | {"choices": [], "usage": usage})
    yield b"data: [DONE]\n\n"


def _response_events(whole: dict[str, Any]) -> Iterator[bytes]:
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    item = whole["output"][0] | {"id": "msg_simulated"}
    part = item["content"][0]
    kind, field = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
    at, there = {"output_index": 0}, {"item_id": item["id"], "output_index": 0, "content_index": 0}
    extra: dict[str, object] = {"logprobs": []} if kind == "output_text" else {}
    events: list[tuple[str, dict[str, Any]]] = [
        ("response.created", {"response": begun}),
        ("response.output_item.added", at | {"item": item | {"status": "in_progress", "content": []}}),
        ("response.content_part.added", there | {"part": part | {field: ""}}),
        *((f"response.{kind}.delta", there | extra | {"delta": word}) for word in _words(part[field])),
        (f"response.{kind}.done", there | extra | {field: part[field]}),
        ("response.content_part.done", there | {"part": part}),
        ("response.output_item.done", at | {"item": item}),
        (f"response.{whole['status']}", {"response": whole | {"output": [item]}}),
    ]
    for number, (name, event) in enumerate(events):
        yield f"event: {name}\n".encode() + _data({"type": name, "sequence_number": number} | event)


def _data(event: object) -> bytes:
    return b"data: " + msgspec.json.encode(event) + b"\n\n"
