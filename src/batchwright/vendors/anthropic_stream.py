"""Anthropic's events of a streamed message -> chunks of a chat completion, as they go by.

    message_start          a chunk with the role                content_block_start    of a tool: its id and name
    content_block_delta    text, arguments, thoughts            message_delta          the finish reason
    message_stop           usage, where it was asked for; the end

What the stream says of its usage, or its error, is kept as `event_streams.Stream` has it.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from batchwright.ports.http import MAX_ANSWER_BYTES, HttpEnd, HttpFault, HttpReply
from batchwright.ports.vendor import Answer, CallListener
from batchwright.vendors.anthropic_answer import FINISH
from batchwright.vendors.batch_views import object_of, text_of
from batchwright.vendors.event_streams import DONE, Stream
from batchwright.vendors.key_hiding import KeyFilter, KeyHider
from batchwright.vendors.late_answer import internal_answer
from batchwright.vendors.relay import EVENT_STREAM
from batchwright.vendors.usage import CachedTokens, Usage
from batchwright.wire.call_headers import status_of
from batchwright.wire.http_head import header

JsonObject = dict[str, object]


class EventTranslator:
    """Feed it what arrives; it gives what goes on. Holds one unfinished line at most."""

    def __init__(self, created_s: int, *, tells_usage: bool) -> None:
        self._created_s = created_s
        self._tells_usage = tells_usage
        self._line = bytearray()
        self._id = self._model = ""
        self._tools: dict[object, int] = {}
        """Numbers of calls, by the number of their block."""
        self._unwritten: set[object] = set()
        """Blocks of calls whose arguments have not begun."""
        self._counts: dict[str, int] = {}
        self.error: JsonObject | None = None
        self.done = False

    def feed(self, piece: bytes) -> bytes:
        self._line += piece
        *lines, rest = self._line.split(b"\n")
        self._line = rest if len(rest) <= MAX_ANSWER_BYTES else bytearray()
        return b"".join(self._event(bytes(line[5:])) for line in lines if line.startswith(b"data:"))

    @property
    def cache_write_tokens(self) -> int:
        return self._counts.get("cache_creation_input_tokens", 0)

    def stream(self) -> Stream:
        counts = self._counts
        usage = None
        if "input_tokens" in counts:
            cached = counts.get("cache_read_input_tokens", 0)
            usage = Usage(
                prompt_tokens=counts["input_tokens"] + cached + self.cache_write_tokens,
                completion_tokens=counts.get("output_tokens"),
                prompt_tokens_details=CachedTokens(cached),
            )
        return Stream(usage=usage, error=self.error)

    def _event(self, data: bytes) -> bytes:
        try:
            event = msgspec.json.decode(data)
        except (msgspec.MsgspecError, RecursionError):
            return b""
        if not isinstance(event, dict) or self.done:
            return b""
        match event.get("type"):
            case "message_start":
                message = object_of(event, "message")
                self._id, self._model = text_of(message, "id"), text_of(message, "model")
                self._note(object_of(message, "usage"))
                return self._chunk({"role": "assistant", "content": ""})
            case "content_block_start":
                return self._block(event.get("index"), object_of(event, "content_block"))
            case "content_block_delta":
                return self._delta(event.get("index"), object_of(event, "delta"))
            case "content_block_stop":
                return self._arguments(event.get("index"), "{}") if event.get("index") in self._unwritten else b""
            case "message_delta":
                self._note(object_of(event, "usage"))
                reason = text_of(object_of(event, "delta"), "stop_reason")
                return self._chunk({}, FINISH.get(reason, reason)) if reason else b""
            case "message_stop":
                self.done = True
                return self._usage() + DONE + b"\n\n"
            case "error":
                self.error = {"error": event.get("error")}
                return _written(self.error)
            case _:
                return b""

    def _block(self, index: object, block: JsonObject) -> bytes:
        if block.get("type") != "tool_use":
            return b""
        number = self._tools[index] = len(self._tools)
        self._unwritten.add(index)
        function = {"name": text_of(block, "name"), "arguments": ""}
        call = {"index": number, "id": text_of(block, "id"), "type": "function", "function": function}
        return self._chunk({"tool_calls": [call]})

    def _delta(self, index: object, delta: JsonObject) -> bytes:
        for kind, name in (("text", "content"), ("thinking", "reasoning_content")):
            said = delta.get(kind)
            if delta.get("type") == f"{kind}_delta" and isinstance(said, str):
                return self._chunk({name: said})
        said = delta.get("partial_json")
        return self._arguments(index, said) if isinstance(said, str) and said else b""

    def _arguments(self, index: object, text: str) -> bytes:
        self._unwritten.discard(index)
        call = {"index": self._tools.get(index, 0), "function": {"arguments": text}}
        return self._chunk({"tool_calls": [call]})

    def _note(self, usage: JsonObject) -> None:
        for name, value in usage.items():
            if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
                self._counts[name] = value

    def _usage(self) -> bytes:
        usage = self.stream().usage
        if not self._tells_usage or usage is None:
            return b""
        prompt, completion = usage.prompt_tokens or 0, usage.completion_tokens or 0
        told = {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": usage.prompt_tokens_details,
        }
        return _written({**self._frame(), "choices": [], "usage": told})

    def _chunk(self, delta: JsonObject, reason: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return _written({**self._frame(), "choices": [choice]})

    def _frame(self) -> JsonObject:
        return {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created_s,
            "model": self._model,
        }


def _written(value: JsonObject) -> bytes:
    return b"data: %b\n\n" % msgspec.json.encode(value)


class StreamedMessage:
    """One call on its way through, translated. Hears the transport (`ports.http`), tells a `CallListener`."""

    def __init__(
        self,
        listener: CallListener,
        translator: EventTranslator,
        *,
        read: Callable[[HttpEnd], Answer],
        read_stream: Callable[[HttpEnd, EventTranslator], Answer],
        hider: KeyHider,
    ) -> None:
        """`read` reads an answer that is whole, `read_stream` the end of one that was streamed."""
        self._listener = listener
        self._translator = translator
        self._read = read
        self._read_stream = read_stream
        self._hider = hider
        self._filter = KeyFilter(hider)
        self._head = b""
        """Of an answer that is streamed; empty: none has begun."""
        self._is_events = False
        self._whole = bytearray()
        """Of an answer that is no event stream although one was asked for."""
        self._ended = False

    def begin(self, head: bytes) -> None:
        self._head = head
        self._is_events = EVENT_STREAM in (header(head, "content-type") or "").lower()
        self._listener.begin(self._hider.body(head))

    def take(self, piece: bytes) -> None:
        if self._ended:
            return
        if not self._is_events:
            if len(self._whole) <= MAX_ANSWER_BYTES:
                self._whole += piece
            return
        shown = self._filter.feed(self._translator.feed(piece))
        if self._translator.done:
            self._finish(HttpReply(status_of(self._head), self._head, b""), shown + self._filter.end())
        elif shown:
            self._listener.take(shown)

    def end(self, end: HttpEnd) -> None:
        if self._ended:
            return
        if self._head and not self._is_events and not isinstance(end, HttpFault):
            end = HttpReply(end.status, self._head, bytes(self._whole))
            answer = self._answer(lambda: self._read(end))
            self._tell(answer, None, answer.body)
        elif self._head:
            self._finish(end, self._filter.end())
        else:
            answer = self._answer(lambda: self._read(end))
            reply = None
            if isinstance(end, HttpReply):
                reply = HttpReply(end.status, self._hider.body(end.head), answer.body)
            self._tell(answer, reply, b"")

    def _finish(self, end: HttpEnd, last: bytes) -> None:
        self._tell(self._answer(lambda: self._read_stream(end, self._translator)), None, last)

    def _answer(self, read: Callable[[], Answer]) -> Answer:
        try:
            return read()
        except Exception as error:
            return internal_answer(error)

    def _tell(self, answer: Answer, reply: HttpReply | None, last: bytes) -> None:
        self._ended = True
        self._listener.end(answer, reply, last)
