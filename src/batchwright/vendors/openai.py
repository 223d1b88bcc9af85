"""A vendor that speaks the OpenAI-shaped protocol over HTTP: base URL + endpoint, a bearer key, one answer a row.

The path is the base URL's and the endpoint's, joined as they are: a version such as `/v1` is part of the base URL,
since vendors differ in it. The key is in the targets' headers alone: no attribute, no repr, no message holds it, not
even that of a vendor which repeats the key it refuses.
"""

from __future__ import annotations

from collections.abc import Callable

from batchwright.core.endpoints import CHAT
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient, HttpEnd, HttpTarget
from batchwright.ports.vendor import Answer, CallListener, RelayedCall, VendorCall
from batchwright.vendors.classify import classify, classify_stream
from batchwright.vendors.event_streams import Stream
from batchwright.vendors.key_hiding import KeyHider
from batchwright.vendors.late_answer import LateAnswer, internal_answer
from batchwright.vendors.listing import MODELS, Listing, read_listing
from batchwright.vendors.profiles import Profile
from batchwright.vendors.relay import Relay
from batchwright.vendors.urls import join_url

LIMITS_SAMPLE = 32
"""Of this many answers one has its limit headers read: they change slowly, and reading them costs as much as the rest
of an answer. The first ones are all read, since a low limit may be used up before the first sample; and so is one that
says that nothing remains."""


class OpenAIVendor:
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
        """`key` empty: none is sent. `agent` is the User-Agent. Raises ValueError for an address or a key that cannot
        be sent."""
        headers = {"content-type": "application/json", "accept": "application/json", "user-agent": agent}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._open_target = _target_opener(http, base_url, headers)
        self._open_models = _models_opener(http, base_url, headers)
        self._hider = KeyHider(key)
        self._secret = self._hider.plain
        self._targets: dict[str, HttpTarget] = {}
        self._profile = profile
        self._clock = clock
        self._answers = 0
        self._targets[CHAT] = self._open_target(CHAT)

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> VendorCall:
        try:
            target = self._targets.get(endpoint)
            if target is None:
                target = self._targets[endpoint] = self._open_target(endpoint)
            return target.send(body, lambda end: on_end(self._read(end, endpoint)))
        except Exception as error:
            return LateAnswer(on_end, internal_answer(error))

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RelayedCall:
        relay = Relay(
            listener,
            read=lambda end: self._read(end, endpoint),
            read_stream=self._read_stream,
            hider=self._hider,
        )
        try:
            target = self._targets.get(endpoint)
            if target is None:
                target = self._targets[endpoint] = self._open_target(endpoint)
            if stream:
                return target.send(body, relay.end, on_piece=relay.take, on_head=relay.begin)
            return target.send(body, relay.end)
        except Exception as error:
            return LateAnswer(lambda answer: listener.end(answer, None, b""), internal_answer(error))

    def list_models(self, on_end: Callable[[Listing], None]) -> VendorCall:
        """Asks for the vendor's models. `on_end` as of `send`."""

        def ended(end: HttpEnd) -> None:
            answer = self._read(end, MODELS)
            self._hider.hide(answer)
            on_end(read_listing(end, answer))

        return self._open_models().send(b"", ended)

    async def close(self) -> None:
        """The client was handed in, so its connections are closed by whoever opened it."""
        self._targets.clear()

    def _read(self, end: HttpEnd, endpoint: str) -> Answer:
        self._answers += 1
        sample = self._answers <= LIMITS_SAMPLE or self._answers % LIMITS_SAMPLE == 0
        try:
            answer = classify(end, self._profile, endpoint=endpoint, now_ms=self._clock.now_ms(), sample=sample)
        except Exception as error:
            return internal_answer(error)
        # A success is looked at for the key as it is alone: it is mostly a model's own text, and on every row's way.
        if answer.kind is not None or (self._secret and self._secret in answer.body):
            self._hider.hide(answer)
        return answer

    def _read_stream(self, end: HttpEnd, stream: Stream) -> Answer:
        answer = classify_stream(end, stream, self._profile, self._clock.now_ms())
        self._hider.hide(answer)
        return answer


def _target_opener(http: HttpClient, base_url: str, headers: dict[str, str]) -> Callable[[str], HttpTarget]:
    return lambda endpoint: http.target("POST", join_url(base_url, endpoint), headers)


def _models_opener(http: HttpClient, base_url: str, headers: dict[str, str]) -> Callable[[], HttpTarget]:
    asked = {name: value for name, value in headers.items() if name != "content-type"}  # there is no body
    return lambda: http.target("GET", join_url(base_url, MODELS), asked)
