"""Anthropic's Messages API: rows are chat bodies, and are answered with chat completions.

`anthropic_request` maps a row, `anthropic_answer` its answer; both then go through what any vendor's do. A row that
cannot be mapped never leaves: it fails with the name of what has no counterpart.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from batchwright.core.endpoints import CHAT
from batchwright.core.failures import FailureKind
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient, HttpEnd, HttpReply, HttpTarget
from batchwright.ports.vendor import Answer, CallListener, RelayedCall, VendorCall
from batchwright.vendors.anthropic_answer import ChatBody, to_chat, without_input_count
from batchwright.vendors.anthropic_request import Unmapped, to_messages
from batchwright.vendors.anthropic_stream import EventTranslator, StreamedMessage
from batchwright.vendors.classify import classify, classify_stream
from batchwright.vendors.key_hiding import KeyHider
from batchwright.vendors.late_answer import LateAnswer, internal_answer
from batchwright.vendors.listing import MODELS, Listing, read_listing
from batchwright.vendors.openai import LIMITS_SAMPLE
from batchwright.vendors.profiles import Profile
from batchwright.vendors.urls import join_url, with_version
from batchwright.vendors.valid_text import repair
from batchwright.wire.http_head import header

MESSAGES = "/messages"
VERSION = "2023-06-01"
MAX_REQUEST_ID_CHARS = 200


class AnthropicVendor:
    """Implements `ports.vendor.Vendor`. To be used on the loop's thread."""

    max_in_flight = 0
    waiting = ""

    def __init__(
        self,
        http: HttpClient,
        *,
        base_url: str,
        key: str,
        profile: Profile,
        clock: Clock,
        agent: str,
    ) -> None:
        """As `OpenAIVendor`; `base_url` with or without its /v1."""
        headers = {**anthropic_headers(key, agent), "accept": "application/json"}
        below = with_version(base_url)
        self._target = http.target("POST", join_url(below, MESSAGES), {**headers, "content-type": "application/json"})
        self._open_models: Callable[[], HttpTarget] = lambda: http.target("GET", join_url(below, MODELS), headers)
        self._reader = AnswerReader(profile, key, clock)
        self._clock = clock

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> VendorCall:
        try:
            refused = unmapped(endpoint, body)
            if isinstance(refused, Answer):
                return LateAnswer(on_end, refused)
            return self._target.send(refused, lambda end: on_end(self._reader.read(end)))
        except Exception as error:
            return LateAnswer(on_end, internal_answer(error))

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RelayedCall:
        """A call that cannot be mapped is refused as a vendor would refuse it."""
        try:
            refused = unmapped(endpoint, body, stream=stream)
            if isinstance(refused, Answer):
                reply = _refusal(refused)
                return LateAnswer(lambda answer: listener.end(answer, reply, b""), refused)
            if not stream:
                return self._target.send(refused, lambda end: self._tell(end, listener))
            call = StreamedMessage(
                listener,
                EventTranslator(self._clock.now_ms() // 1000, tells_usage=asks_usage(body)),
                read=self._reader.read,
                read_stream=self._reader.read_stream,
                hider=self._reader.hider,
            )
            return self._target.send(refused, call.end, on_piece=call.take, on_head=call.begin)
        except Exception as error:
            return LateAnswer(lambda answer: listener.end(answer, None, b""), internal_answer(error))

    def list_models(self, on_end: Callable[[Listing], None]) -> VendorCall:
        """Asks for the vendor's models. `on_end` as of `send`."""

        def ended(end: HttpEnd) -> None:
            on_end(read_listing(end, self._reader.judge(end, MODELS)))

        return self._open_models().send(b"", ended)

    async def close(self) -> None:
        """The client was handed in, so its connections are closed by whoever opened it."""

    def _tell(self, end: HttpEnd, listener: CallListener) -> None:
        answer = self._reader.read(end)
        reply = (
            HttpReply(end.status, self._reader.hider.body(end.head), answer.body)
            if isinstance(end, HttpReply)
            else None
        )
        listener.end(answer, reply, b"")


class AnswerReader:
    """Reads what came back of `/messages`, also out of a batch's results."""

    def __init__(self, profile: Profile, key: str, clock: Clock) -> None:
        self._profile = profile
        self.hider = KeyHider(key)
        self._clock = clock
        self._answers = 0

    def read(self, end: HttpEnd) -> Answer:
        """Never raises."""
        try:
            if not isinstance(end, HttpReply) or not 200 <= end.status <= 299:
                return self.judge(end, MESSAGES)
            chat = to_chat(repair(end.body), self._clock.now_ms() // 1000)
            if chat is None:
                return self._no_message(end)
            return self._of_message(end, chat)
        except Exception as error:
            return internal_answer(error)

    def judge(self, end: HttpEnd, endpoint: str) -> Answer:
        """As `classify`; without the key, and with Anthropic's id of the request."""
        self._answers += 1
        sample = self._answers <= LIMITS_SAMPLE or self._answers % LIMITS_SAMPLE == 0
        answer = classify(end, self._profile, endpoint=endpoint, now_ms=self._clock.now_ms(), sample=sample)
        if isinstance(end, HttpReply) and not answer.request_id:
            answer.request_id = (header(end.head, "request-id") or "")[:MAX_REQUEST_ID_CHARS]
        if answer.kind is not None or (self.hider.plain and self.hider.plain in answer.body):
            self.hider.hide(answer)
        return answer

    def read_stream(self, end: HttpEnd, seen: EventTranslator) -> Answer:
        answer = classify_stream(end, seen.stream(), self._profile, self._clock.now_ms())
        answer.prompt_tokens = without_input_count(answer.prompt_tokens, seen.cache_write_tokens)
        self.hider.hide(answer)
        return answer

    def _of_message(self, end: HttpReply, chat: ChatBody) -> Answer:
        answer = self.judge(HttpReply(end.status, end.head, chat.body), CHAT)
        answer.prompt_tokens = without_input_count(answer.prompt_tokens, chat.cache_write_tokens)
        return answer

    def _no_message(self, end: HttpReply) -> Answer:
        answer = self.judge(end, CHAT)
        if answer.kind is None or answer.message.startswith("the answer has no choices"):
            answer.kind = FailureKind.BAD_RESPONSE
            answer.message = "the answer is no message; is the base URL that of Anthropic's API?"
        return answer


def unmapped(endpoint: str, body: bytes, *, stream: bool = False) -> Answer | bytes:
    """The body that is sent for this row, or the failure it ends with in its place."""
    try:
        if endpoint != CHAT:
            raise Unmapped("url", f"Anthropic has no {endpoint}; its rows are those of {CHAT}")
        return to_messages(body, stream=stream)
    except Unmapped as error:
        return Answer(kind=FailureKind.INVALID_REQUEST, code="not_at_anthropic", param=error.param, message=str(error))


def asks_usage(body: bytes) -> bool:
    """Whether a call wants its usage as the last chunk of its stream."""
    try:
        asked = _OPTIONS.decode(body).stream_options
    except msgspec.MsgspecError:
        return False
    return asked is not None and asked.include_usage is True


class _StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class _Asked(msgspec.Struct):
    stream_options: _StreamOptions | None = None


_OPTIONS = msgspec.json.Decoder(_Asked)


def anthropic_headers(key: str, agent: str) -> dict[str, str]:
    headers = {"anthropic-version": VERSION, "user-agent": agent}
    if key:
        headers["x-api-key"] = key
    return headers


def _refusal(answer: Answer) -> HttpReply:
    error = {
        "message": answer.message,
        "type": "invalid_request_error",
        "param": answer.param or None,
        "code": answer.code,
    }
    return HttpReply(
        400, b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json", msgspec.json.encode({"error": error})
    )
