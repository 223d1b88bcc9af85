"""The simulated vendor of `--simulate`: no network, no key, no money; deterministic, and its answers say what they are.

What becomes of a row depends on its bytes alone, by a hash of them: the same row always gets the same answer, after
the same latency and (almost always) the same first failure, so two runs of a file can be compared line by line.

    a first attempt may fail      429 with a wait, 500, or a dropped connection; every later attempt is answered, and
                                  so is every attempt while more than twice the share of failures has been seen
    a schema                      where the row states one (`response_format`), the answer is JSON that fits it
    an answer may be flagged      refused, or cut off; it is cut where the row's own bound of tokens is reached
    usage                         4 bytes of the row are a prompt token, 4 of the answer a completion token
    cost                          stated by the vendor, at the prices of `Simulation`
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import msgspec

from batchwright.core.endpoints import CHAT, COMPLETIONS, EMBEDDINGS, RESPONSES
from batchwright.core.money import usd_text
from batchwright.ports.http import FaultCause, HttpEnd, HttpFault, HttpReply
from batchwright.ports.vendor import Answer, CallListener, RelayedCall, VendorCall
from batchwright.vendors.classify import classify, classify_stream
from batchwright.vendors.key_hiding import KeyHider
from batchwright.vendors.late_answer import LateAnswer, internal_answer
from batchwright.vendors.profiles import build_profile
from batchwright.vendors.relay import Relay
from batchwright.vendors.simulated_schema import sample_text
from batchwright.vendors.simulated_stream import SimulatedCall, stream_events
from batchwright.vendors.usage import NULL

MAX_FAILED_ROWS = 65_536
"""How many rows are remembered as having had their first failure; the oldest is forgotten and would fail once more."""
FAILURES_AHEAD = 1
"""How many failures above twice their share are allowed at any time. A process does not know which rows failed in an
earlier one: when a batch goes on, those come first and all together, and without this bound each would be refused anew.
"""
MAX_ECHO_CHARS = 60
EMBEDDING_SIZE = 8
BYTES_PER_TOKEN = 4
UNBOUNDED = 2**31
_INTEGER = re.compile(rb"-?[0-9]{1,18}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """How the simulated vendor behaves. Shares are of rows, latencies in seconds, prices in 1e-12 USD a token."""

    latency_min_s: float = 0.05
    latency_max_s: float = 0.35
    rate_limited_share: float = 0.02
    retry_after_s: float = 1.0
    error_share: float = 0.01
    dropped_share: float = 0.01
    refused_share: float = 0.005
    truncated_share: float = 0.01
    prompt_picousd: int = 150_000
    completion_picousd: int = 600_000


DEFAULTS = Simulation()


class SimulatedVendor:
    """Implements `ports.vendor.Vendor`. To be used on the loop's thread."""

    max_in_flight = 0
    waiting = ""

    def __init__(self, simulation: Simulation = DEFAULTS) -> None:
        self._simulation = simulation
        self._profile = build_profile("simulated")
        self._failed: dict[int, None] = {}
        self._asked = 0
        self._failures = 0

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> VendorCall:
        fate = Fate(body)
        try:
            answer = self._answer(endpoint, body, fate)
        except Exception as error:
            answer = internal_answer(error)
        return LateAnswer(on_end, answer, latency_s(fate, self._simulation))

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RelayedCall:
        fate = Fate(body)
        relay = Relay(
            listener,
            read=lambda end: classify(end, self._profile, endpoint=endpoint, now_ms=0),
            read_stream=lambda end, stream: classify_stream(end, stream, self._profile, 0),
            hider=KeyHider(""),
        )
        try:
            end = self._end(endpoint, body, fate)
        except Exception as error:
            return LateAnswer(lambda answer: listener.end(answer, None, b""), internal_answer(error))
        streamed = stream and isinstance(end, HttpReply) and end.status == 200 and endpoint != EMBEDDINGS
        events = stream_events(endpoint, end.body, body) if streamed and isinstance(end, HttpReply) else None
        return SimulatedCall(relay, end, latency_s(fate, self._simulation), events)

    async def close(self) -> None:
        self._failed.clear()

    def _answer(self, endpoint: str, body: bytes, fate: Fate) -> Answer:
        return classify(self._end(endpoint, body, fate), self._profile, endpoint=endpoint, now_ms=0)

    def _end(self, endpoint: str, body: bytes, fate: Fate) -> HttpEnd:
        self._asked += 1
        fails = fate.number not in self._failed and fails_first(fate, self._simulation) and self._may_fail()
        end = simulate(endpoint, body, fate=fate, simulation=self._simulation, again=not fails)
        if fails:
            self._failures += 1
            self._remember(fate.number)
        return end

    def _may_fail(self) -> bool:
        return self._failures < FAILURES_AHEAD + 2 * failing_share(self._simulation) * self._asked

    def _remember(self, number: int) -> None:
        self._failed[number] = None
        if len(self._failed) > MAX_FAILED_ROWS:
            del self._failed[next(iter(self._failed))]


class Fate:
    """A row's chances, each uniform in [0, 1), from a hash of its bytes."""

    __slots__ = ("failure", "flag", "latency", "number")

    def __init__(self, body: bytes) -> None:
        digest = blake2b(body, digest_size=20).digest()
        self.number = int.from_bytes(digest[:8])
        self.failure, self.flag, self.latency = (int.from_bytes(digest[at : at + 4]) / 2**32 for at in (8, 12, 16))


def latency_s(fate: Fate, simulation: Simulation) -> float:
    return simulation.latency_min_s + fate.latency * (simulation.latency_max_s - simulation.latency_min_s)


def failing_share(simulation: Simulation) -> float:
    return simulation.rate_limited_share + simulation.error_share + simulation.dropped_share


def fails_first(fate: Fate, simulation: Simulation) -> bool:
    return fate.failure < failing_share(simulation)


def simulate(endpoint: str, body: bytes, *, fate: Fate, simulation: Simulation, again: bool) -> HttpEnd:
    """What comes back for this row; `again`: its first attempt was failed already."""
    if not again and fails_first(fate, simulation):
        return _first_failure(fate, simulation)
    request = _read_request(body)
    if request is None:
        return _refusal(400, "invalid_body", "the body is no JSON object with text or messages")
    if _bound(request) < 1:
        return _refusal(400, "invalid_value", "the bound of output tokens must be at least 1")
    writer = _WRITERS.get(endpoint)
    if writer is None:
        known = ", ".join(sorted(_WRITERS))
        return _refusal(404, "unknown_url", f"the simulated vendor has no {endpoint}; it has {known}")
    return HttpReply(200, b"", msgspec.json.encode(writer(request, body, fate, simulation)))


def _first_failure(fate: Fate, simulation: Simulation) -> HttpEnd:
    if fate.failure < simulation.rate_limited_share:
        head = f"HTTP/1.1 429 Too Many Requests\r\nretry-after: {simulation.retry_after_s:g}\r\n\r\n"
        return HttpReply(429, head.encode(), _error_body("rate_limit_exceeded", "simulated: too many requests"))
    if fate.failure < simulation.rate_limited_share + simulation.error_share:
        return _refusal(500, "server_error", "simulated: the vendor's own trouble")
    return HttpFault(FaultCause.NETWORK, "simulated: the connection was dropped")


def _refusal(status: int, code: str, message: str) -> HttpReply:
    return HttpReply(status, b"", _error_body(code, message))


def _error_body(code: str, message: str) -> bytes:
    return msgspec.json.encode({"error": {"message": message, "type": code, "param": None, "code": code}})


# ------------------------------------------------------------------------------------------------------- answers


class _Request(msgspec.Struct, gc=False):
    model: str = "simulated"
    messages: list[dict[str, Any]] = []
    input: Any = None
    prompt: Any = None
    max_tokens: msgspec.Raw = NULL
    max_completion_tokens: msgspec.Raw = NULL
    max_output_tokens: msgspec.Raw = NULL
    response_format: msgspec.Raw = NULL
    text: msgspec.Raw = NULL
    """Of /responses: where it states a schema."""


_REQUESTS = msgspec.json.Decoder(_Request)


def _read_request(body: bytes) -> _Request | None:
    try:
        return _REQUESTS.decode(body)
    except (msgspec.DecodeError, RecursionError):
        return None


def _last_text(request: _Request) -> str:
    """The end of what was asked, wherever the endpoint keeps it."""
    content: object = request.messages[-1].get("content") if request.messages else request.input or request.prompt
    while isinstance(content, list):
        content = content[-1] if content else ""
    if isinstance(content, dict):
        content = content.get("text") or content.get("content") or ""
    return content[-MAX_ECHO_CHARS:] if isinstance(content, str) else ""


def _bound(request: _Request) -> int:
    """The most tokens an answer may have: the least of what the row says, under whatever name. What is no integer
    bounds nothing."""
    said = (request.max_tokens, request.max_completion_tokens, request.max_output_tokens)
    return min((int(found[0]) for value in said if (found := _INTEGER.fullmatch(bytes(value)))), default=UNBOUNDED)


def _reply(request: _Request) -> tuple[str, bool]:
    """The answer's text, and whether it was cut at the row's own bound."""
    text = f"Simulated answer to: {_last_text(request)}"
    stated = request.response_format if request.response_format != NULL else request.text
    if stated != NULL:
        text = sample_text(stated, text) or text
    bound = _bound(request)
    return (text[: bound * BYTES_PER_TOKEN], True) if len(text) // BYTES_PER_TOKEN > bound else (text, False)


def _usage(body: bytes, text: str, simulation: Simulation) -> tuple[int, int, msgspec.Raw]:
    """(prompt tokens, completion tokens, cost as a JSON number of USD)."""
    prompt, completion = len(body) // BYTES_PER_TOKEN, len(text) // BYTES_PER_TOKEN
    cost = prompt * simulation.prompt_picousd + completion * simulation.completion_picousd
    return prompt, completion, msgspec.Raw(usd_text(cost).encode())


def _is_refused(fate: Fate, simulation: Simulation) -> bool:
    return fate.flag < simulation.refused_share


def _is_truncated(fate: Fate, simulation: Simulation, cut: bool) -> bool:
    if _is_refused(fate, simulation):
        return False
    return cut or fate.flag < simulation.refused_share + simulation.truncated_share


def _write_chat(request: _Request, body: bytes, fate: Fate, simulation: Simulation) -> dict[str, object]:
    text, cut = _reply(request)
    refused = _is_refused(fate, simulation)
    prompt, completion, cost = _usage(body, text, simulation)
    message = {"role": "assistant", "content": None if refused else text}
    if refused:
        message["refusal"] = "Simulated refusal."
    return {
        "id": f"chatcmpl-simulated-{fate.number:016x}",
        "object": "chat.completion",
        "created": 0,
        "model": request.model,
        "system_fingerprint": "simulated",
        "choices": [
            {
                "index": 0,
                "message": message,
                "finish_reason": "length" if _is_truncated(fate, simulation, cut) else "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "cost": cost,
        },
    }


def _write_completion(request: _Request, body: bytes, fate: Fate, simulation: Simulation) -> dict[str, object]:
    """An answer a prompt, and no place for a refusal: such a row gets its text."""
    prompts = request.prompt if isinstance(request.prompt, list) and _are_texts(request.prompt) else [request.prompt]
    replies = [_reply(msgspec.structs.replace(request, prompt=prompt)) for prompt in prompts]
    prompt, completion, cost = _usage(body, "".join(text for text, _ in replies), simulation)
    return {
        "id": f"cmpl-simulated-{fate.number:016x}",
        "object": "text_completion",
        "created": 0,
        "model": request.model,
        "choices": [
            {
                "index": at,
                "text": text,
                "logprobs": None,
                "finish_reason": "length" if _is_truncated(fate, simulation, cut) else "stop",
            }
            for at, (text, cut) in enumerate(replies)
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "cost": cost,
        },
    }


def _write_response(request: _Request, body: bytes, fate: Fate, simulation: Simulation) -> dict[str, object]:
    text, cut = _reply(request)
    prompt, completion, cost = _usage(body, text, simulation)
    part = (
        {"type": "refusal", "refusal": "Simulated refusal."}
        if _is_refused(fate, simulation)
        else {"type": "output_text", "text": text, "annotations": []}
    )
    truncated = _is_truncated(fate, simulation, cut)
    return {
        "id": f"resp_simulated_{fate.number:016x}",
        "object": "response",
        "created_at": 0,
        "model": request.model,
        "status": "incomplete" if truncated else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if truncated else None,
        "output": [{"type": "message", "role": "assistant", "status": "completed", "content": [part]}],
        "usage": {
            "input_tokens": prompt,
            "output_tokens": completion,
            "total_tokens": prompt + completion,
            "cost": cost,
        },
    }


def _write_embeddings(request: _Request, body: bytes, fate: Fate, simulation: Simulation) -> dict[str, object]:
    texts = request.input if isinstance(request.input, list) and _are_texts(request.input) else [request.input]
    prompt, _, cost = _usage(body, "", simulation)
    return {
        "object": "list",
        "model": request.model,
        "data": [{"object": "embedding", "index": at, "embedding": _vector(text)} for at, text in enumerate(texts)],
        "usage": {"prompt_tokens": prompt, "total_tokens": prompt, "cost": cost},
    }


def _are_texts(values: list[object]) -> bool:
    """Numbers are the tokens of one text."""
    return bool(values) and not isinstance(values[0], int)


def _vector(text: object) -> list[float]:
    digest = blake2b(str(text).encode("utf-8", "replace"), digest_size=EMBEDDING_SIZE).digest()
    return [round(byte / 127.5 - 1, 4) for byte in digest]


_Writer = Callable[[_Request, bytes, Fate, Simulation], dict[str, object]]
_WRITERS: dict[str, _Writer] = {
    CHAT: _write_chat,
    COMPLETIONS: _write_completion,
    RESPONSES: _write_response,
    EMBEDDINGS: _write_embeddings,
}
