"""Calls of a vendor's batch API: one request, one JSON value or a stream of pieces, or a `BatchFault`."""

from __future__ import annotations

import asyncio
import zlib
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing

from batchwright.core.failures import FailureKind
from batchwright.ports.clock import Clock
from batchwright.ports.http import FaultCause, HttpClient, HttpEnd, HttpFault, HttpFlight, HttpReply, HttpTarget
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import BatchFault
from batchwright.vendors.classify import classify
from batchwright.vendors.error_bodies import ErrorView, read_error
from batchwright.vendors.key_hiding import KeyHider
from batchwright.vendors.kinds import kind_of_refusal
from batchwright.vendors.profiles import Profile
from batchwright.vendors.urls import join_url
from batchwright.vendors.valid_text import one_line
from batchwright.wire.http_head import header
from batchwright.wire.json_text import read_value

AHEAD_BYTES = 1024 * 1024
"""Of a streamed file that nobody has taken yet; above, no more is read."""
MAY_BE_DONE = (408, 409)
"""Statuses below 500 after which the vendor may have done what was asked: it gave up, or something was under way."""
JSON = "application/json"
MAX_EXCERPT_CHARS = 200
_HEAD = b"HTTP/1.1 200 OK"

JsonObject = dict[str, object]


class BatchCalls:
    """One vendor, address and key. To be used on the loop's thread."""

    def __init__(
        self,
        http: HttpClient,
        *,
        base_url: str,
        key: str,
        headers: Mapping[str, str],
        profile: Profile,
        clock: Clock,
    ) -> None:
        """`headers` go with every call, the key's among them; `key` is what must not come back in any text. Raises
        ValueError for an address or a header that cannot be sent."""
        self._http = http
        self._base_url = base_url
        self._headers = dict(headers)
        self.profile = profile
        self._clock = clock
        self._hider = KeyHider(key)
        http.target("GET", join_url(base_url, "/batches"), self._headers)

    async def ask(
        self, what: str, method: str, path: str, *, body: bytes = b"", kind: str = JSON, headers: Mapping[str, str] = {}
    ) -> JsonObject:
        """The JSON object that came with a 2xx; empty where an empty body did. `what` begins a fault's text
        ("creating a batch"). Raises BatchFault."""
        value = await self.ask_any(what, method, path, body=body, kind=kind, headers=headers)
        if not isinstance(value, dict):
            raise BatchFault(
                f"{what}: the answer is no JSON object",
                kind=FailureKind.BAD_RESPONSE,
                may_be_done=True,
                http_status=200,
            )
        return value

    async def ask_any(
        self, what: str, method: str, path: str, *, body: bytes = b"", kind: str = JSON, headers: Mapping[str, str] = {}
    ) -> object:
        """As `ask`, for answers that may be another JSON value."""
        sent = {**self._headers, "accept": JSON, **headers}
        if body:
            sent["content-type"] = kind
        ended: asyncio.Future[HttpEnd] = asyncio.get_running_loop().create_future()
        flight = self._http.target(method, join_url(self._base_url, path), sent).send(
            body, lambda end: None if ended.done() else ended.set_result(end)
        )
        try:
            end = await ended
        finally:
            flight.abort()
        if not isinstance(end, HttpReply) or not 200 <= end.status <= 299:
            raise self._fault(what, end, path)
        if not end.body.strip():
            return {}
        try:
            return read_value(end.body)
        except (ValueError, RecursionError):
            text = one_line(end.body[: 4 * MAX_EXCERPT_CHARS].decode("utf-8", "replace"), MAX_EXCERPT_CHARS)
            answer = Answer(FailureKind.BAD_RESPONSE, message=f"the answer is no JSON: {text}")
            self._hider.hide(answer)
            raise BatchFault(
                f"{what}: {answer.message}",
                kind=FailureKind.BAD_RESPONSE,
                may_be_done=True,
                http_status=end.status,
            ) from None

    async def delete(self, what: str, path: str) -> None:
        """What is not there counts as deleted."""
        try:
            await self.ask_any(what, "DELETE", path)
        except BatchFault as fault:
            if fault.kind is not FailureKind.MISSING_FROM_UPSTREAM:
                raise

    async def stream(self, what: str, path: str) -> AsyncGenerator[bytes, None]:
        """The body of a GET, piece by piece. Raises BatchFault, also in its middle."""
        target = self._http.target("GET", join_url(self._base_url, path), {**self._headers, "accept": "*/*"})
        async with aclosing(self._streamed(what, path, target)) as pieces:
            async for piece in pieces:
                yield piece

    async def _streamed(
        self, what: str, path: str, target: HttpTarget, *, again: bool = True
    ) -> AsyncGenerator[bytes, None]:
        answer = _Streamed()
        answer.flight = target.send(b"", answer.end, on_piece=answer.put, on_head=answer.begin)
        try:
            async with aclosing(answer.pieces()) as pieces:
                async for piece in pieces:
                    yield piece
        except zlib.error:
            raise BatchFault(
                f"{what}: its gzip encoding is broken", kind=FailureKind.BAD_RESPONSE, may_be_done=False
            ) from None
        finally:
            answer.flight.abort()
        end = answer.ended
        if isinstance(end, HttpReply) and 200 <= end.status <= 299:
            return
        elsewhere = self._elsewhere(end) if again else None
        if elsewhere is None:
            raise self._fault(what, end, path)
        async with aclosing(self._streamed(what, path, elsewhere, again=False)) as pieces:
            async for piece in pieces:
                yield piece

    def _elsewhere(self, end: HttpEnd | None) -> HttpTarget | None:
        """Where a file is stored that the vendor itself does not hand out. Its address is signed: the key stays here.
        None: it is no such redirect, or none that is followed."""
        api = self.profile.batches
        if api is None or not api.content_elsewhere or not isinstance(end, HttpReply) or not 301 <= end.status <= 308:
            return None
        location = header(end.head, "location") or ""
        scheme = location.partition("://")[0].lower()
        if scheme != "https" and not (scheme == "http" and self._base_url.lower().startswith("http://")):
            return None  # never from https to what anybody on the way can read
        try:
            return self._http.target("GET", location, {"accept": "*/*", "user-agent": self._headers["user-agent"]})
        except ValueError:
            return None

    def judge(self, end: HttpEnd, endpoint: str) -> Answer:
        """What an answer means, as of a row that was sent live to this endpoint; without the key."""
        answer = classify(end, self.profile, endpoint=endpoint, now_ms=self._clock.now_ms())
        if answer.kind is not None or (self._hider.plain and self._hider.plain in answer.body):
            self._hider.hide(answer)
        return answer

    def answer(self, status: int, body: bytes, endpoint: str) -> Answer:
        """The same of an answer that came without a head, in a file."""
        return self.judge(HttpReply(status, _HEAD, body), endpoint)

    async def breathe(self) -> None:
        """Lets others have the loop."""
        await self._clock.sleep(0)

    def kind_of_batch(self, code: str, message: str) -> FailureKind:
        """What an error of a whole batch means."""
        view = read_error({"error": {"code": code, "message": message}}) or ErrorView()
        kind = kind_of_refusal(400, view, self.profile)
        return self._of_batches(code, kind)

    def hidden(self, text: str) -> str:
        answer = Answer(FailureKind.BAD_RESPONSE, message=text)
        self._hider.hide(answer)
        return answer.message

    def _fault(self, what: str, end: HttpEnd | None, path: str) -> BatchFault:
        assert end is not None, "a flight that has ended says how"
        answer = self.judge(end, path)
        kind = answer.kind or FailureKind.BAD_RESPONSE
        if isinstance(end, HttpFault):
            may_be_done = end.cause is not FaultCause.UNREACHABLE
        else:
            may_be_done = end.status >= 500 or end.status in MAY_BE_DONE
            if end.status in (404, 410) and kind is not FailureKind.AUTH:
                kind = FailureKind.MISSING_FROM_UPSTREAM
            kind = self._of_batches(answer.code, kind)
        return BatchFault(
            f"{what}: {answer.message}",
            kind=kind,
            may_be_done=may_be_done,
            http_status=answer.http_status,
            code=answer.code,
            retry_after_s=answer.wait_s,
        )

    def _of_batches(self, code: str, kind: FailureKind) -> FailureKind:
        batches = self.profile.batches
        return batches.codes.get(code.lower(), kind) if batches is not None else kind


class _Streamed:
    """A streamed answer on its way to whoever takes it; holds the flight while too much lies untaken."""

    def __init__(self) -> None:
        self.flight: HttpFlight | None = None
        self.ended: HttpEnd | None = None
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._unzip: zlib._Decompress | None = None

    def begin(self, head: bytes) -> None:
        # `identity` was asked for; some proxies pack it all the same.
        if (header(head, "content-encoding") or "").lower() in ("gzip", "x-gzip"):
            self._unzip = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)

    def put(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        self._news.set()
        if self._size > AHEAD_BYTES and self.flight is not None:
            self.flight.hold(True)

    def end(self, end: HttpEnd) -> None:
        self.ended = end
        self._news.set()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._size -= len(piece)
                if self._size <= AHEAD_BYTES and self.flight is not None:
                    self.flight.hold(False)
                if self._unzip is None:
                    yield piece
                    continue
                while piece:
                    yield self._unzip.decompress(piece, AHEAD_BYTES)
                    piece = self._unzip.unconsumed_tail
            if self.ended is not None:
                return
            self._news.clear()
            await self._news.wait()
