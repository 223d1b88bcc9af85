"""A vendor that speaks the OpenAI-shaped protocol over HTTP: base URL + endpoint, a bearer key, one answer a row.

The path is the base URL's and the endpoint's, joined as they are: a version such as `/v1` is part of the base URL,
since vendors differ in it. The key is in the targets' headers alone: no attribute, no repr, no message holds it, not
even that of a vendor which repeats the key it refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

import msgspec

from batchwright.core.endpoints import CHAT
from batchwright.ports.clock import Clock
from batchwright.ports.http import HttpClient, HttpEnd, HttpTarget
from batchwright.ports.vendor import Answer, VendorCall
from batchwright.vendors.classify import classify
from batchwright.vendors.late_answer import LateAnswer, internal_answer
from batchwright.vendors.profiles import Profile

HIDDEN = "[key]"
LEAST_KEY_CHARS = 8
"""A shorter key is a placeholder ("none", "EMPTY"): no secret, and a word that answers may well hold."""
LIMITS_SAMPLE = 32
"""Of this many answers one has its limit headers read: they change slowly, and reading them costs as much as the rest
of an answer. The first ones are all read, since a low limit may be used up before the first sample; and so is one that
says that nothing remains."""


class OpenAIVendor:
    """Implements `ports.vendor.Vendor`. To be used on the loop's thread."""

    def __init__(
        self,
        http: HttpClient,
        *,
        base_url: str,
        key: str,
        profile: Profile,
        clock: Clock,
        agent: str,
        max_in_flight: int = 0,
    ) -> None:
        """`key` empty: none is sent. `agent` is the User-Agent. Raises ValueError for an address or a key that cannot
        be sent."""
        self.max_in_flight = max_in_flight
        headers = {"content-type": "application/json", "accept": "application/json", "user-agent": agent}
        if key:
            headers["authorization"] = f"Bearer {key}"
        self._open_target = _target_opener(http, base_url, headers)
        self._hide_key = _key_hider(key)
        self._secret = key.encode("latin-1", "replace") if len(key) >= LEAST_KEY_CHARS else b""
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
            self._hide_key(answer)
        return answer


def _target_opener(http: HttpClient, base_url: str, headers: dict[str, str]) -> Callable[[str], HttpTarget]:
    return lambda endpoint: http.target("POST", join_url(base_url, endpoint), headers)


def _key_hider(key: str) -> Callable[[Answer], None]:
    """What takes the key out of a refusal that repeats it: refusals are stored, shown and exported.

    The words we took out of it are looked at as they are read, so that an escaped key is found too; and since they are
    cut to a length, a beginning of the key at their end counts as the key.
    """
    plain = key.encode("latin-1", "replace")
    escaped = quote(key, safe="")

    def clean(text: str) -> str:
        text = text.replace(key, HIDDEN).replace(escaped, HIDDEN)
        ending = text.rstrip("….")
        for length in range(len(key) - 1, LEAST_KEY_CHARS - 1, -1):
            if ending.endswith(key[:length]):
                return ending[:-length] + HIDDEN
        return text

    def hide(answer: Answer) -> None:
        if len(plain) < LEAST_KEY_CHARS:
            return
        if plain in answer.body:
            answer.body = answer.body.replace(plain, HIDDEN.encode())
        elif _holds(answer.body, key):
            answer.body = msgspec.json.encode({"error": {"message": "left out: it repeated the key"}})
        answer.message, answer.code = clean(answer.message), clean(answer.code)
        answer.param, answer.request_id = clean(answer.param), clean(answer.request_id)

    return hide


def _holds(body: bytes, key: str) -> bool:
    """Whether a body that has escapes spells the key in one of its texts."""
    if b"\\" not in body:
        return False
    try:
        return key in str(msgspec.json.decode(body))
    except (msgspec.DecodeError, RecursionError):
        return False


def join_url(base_url: str, endpoint: str) -> str:
    """The endpoint goes below the base URL's path; a query (Azure's `?api-version=`) stays at the end."""
    address, mark, query = base_url.strip().partition("?")
    return f"{address.rstrip('/')}{endpoint}{mark}{query}"
