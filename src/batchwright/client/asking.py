"""One call to a service: sent, sent again where that is harmless, and its reply read.

    no answer, not one byte sent      sent again
    no answer, may have been read     sent again if the same call twice does no more than once (`Call.repeatable`)
    429                               sent again: nothing was done
    another refusal that may pass     sent again if repeatable

Between two attempts the wait is exponential with full jitter, and never below what `Retry-After` asks. A service that
asks for more than `LONGEST_WAIT_S` is not waited for: whoever called knows better whether that is worth it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TypeVar, assert_never

from batchwright.client.calls import Call
from batchwright.client.errors import BadReply, KeyRefused, NoAnswer, RateLimited, ServiceError
from batchwright.client.replies import Reply, read_reply
from batchwright.core.errors import UsageError
from batchwright.core.keys import can_be_sent
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.http import FaultCause, HttpClient, HttpEnd, HttpFlight, HttpReply, HttpTarget

T = TypeVar("T")
MAX_RETRIES = 4
FIRST_WAIT_S = 0.5
MOST_WAIT_S = 8.0
QUIET_S = 1.0
"""Waits for less than that in all are not told of."""
LONGEST_WAIT_S = 60.0
"""A limit of requests a minute is over by then."""
AHEAD_BYTES = 1024 * 1024
"""Of a streamed answer that nobody has taken yet; above, no more is read."""
_VERSION = re.compile(r"/v1/*$")


class Asker:
    """A service as one key sees it. To be used inside one running loop; the client that is handed in stays the caller's
    to close."""

    def __init__(
        self,
        http: HttpClient,
        *,
        base_url: str,
        api_key: str,
        clock: Clock,
        chance: Chance,
        agent: str,
        key_name: str = "",
        max_retries: int = MAX_RETRIES,
        report: Callable[[str], None] | None = None,
    ) -> None:
        """`base_url` may end in /v1. `api_key` empty: none is sent. `key_name`: the variable it stands in, for people;
        empty: none. `report` hears of a call that takes long because it is asked again, once a call. Raises UsageError
        for what cannot be sent."""
        self.base_url = _VERSION.sub("", base_url.strip()).rstrip("/")
        self.clock = clock
        self.chance = chance
        self._http = http
        self._max_retries = max_retries
        self._report = report
        self._key_name = key_name
        self._headers = {"Accept": "application/json", "Content-Type": "application/json", "User-Agent": agent}
        if api_key:
            if not can_be_sent(api_key):
                of = f", {key_name}," if key_name else ""
                raise UsageError(f"the service's key{of} has blanks or characters that no header can carry")
            self._headers["Authorization"] = f"Bearer {api_key.strip()}"
        try:
            http.target("GET", self.base_url, {})
        except ValueError as error:
            raise UsageError(f"the service's address: {error}") from None

    async def ask(self, call: Call[T]) -> T:
        """Raises ServiceError, of the class that fits (`client.errors`)."""
        attempt, unheard, waits_s, told = 0, False, 0.0, self._report is None
        while True:
            try:
                return call.read(self._read(await self._send(call)))
            except ServiceError as error:
                unheard = unheard or (isinstance(error, NoAnswer) and error.may_have_arrived)
                error.unheard = unheard
                wait_s = self._wait_s(error, call.repeatable, attempt)
                waits_s += wait_s
                if self._report is not None and not told and waits_s > QUIET_S:
                    self._report(f"{error}; it is asked again, {self._max_retries - attempt} times at most")
                    told = True
            await self.clock.sleep(wait_s)
            attempt += 1

    async def stream(self, call: Call[None]) -> AsyncIterator[bytes]:
        """The body of a success, piece by piece. A refusal is asked again as in `ask`; what breaks off once it has
        begun raises NoAnswer: a second sending would repeat what was handed over."""
        attempt = 0
        while True:
            answer = _Streamed()
            answer.flight = self._target(call).send(call.body, answer.end, on_piece=answer.put)
            begun = False
            try:
                async for piece in answer.pieces():
                    begun = True
                    yield piece
                if not isinstance(answer.ended, HttpReply) or answer.ended.status >= 300:
                    self._read(answer.ended)
                return
            except ServiceError as error:
                wait_s = self._wait_s(error, call.repeatable and not begun, attempt)
            finally:
                answer.flight.abort()
            await self.clock.sleep(wait_s)
            attempt += 1

    def _wait_s(self, error: ServiceError, repeatable: bool, attempt: int) -> float:
        """Until the same call is sent again; raises the error where it is not."""
        again = error.retryable and (
            repeatable or isinstance(error, RateLimited) or (isinstance(error, NoAnswer) and not error.may_have_arrived)
        )
        if not again or attempt >= self._max_retries or error.retry_after_s > LONGEST_WAIT_S:
            raise error
        jittered_s = self.chance.random() * min(MOST_WAIT_S, FIRST_WAIT_S * 2.0**attempt)
        return error.retry_after_s + jittered_s

    def _target(self, call: Call[T]) -> HttpTarget:
        return self._http.target(call.method, self.base_url + call.path, {**self._headers, **call.headers})

    async def _send(self, call: Call[T]) -> HttpEnd:
        ended: asyncio.Future[HttpEnd] = asyncio.get_running_loop().create_future()

        def on_end(end: HttpEnd) -> None:
            if not ended.done():
                ended.set_result(end)

        flight = self._target(call).send(call.body, on_end)
        try:
            return await ended
        finally:
            flight.abort()

    def _read(self, end: HttpEnd | None) -> Reply:
        if isinstance(end, HttpReply):
            try:
                return read_reply(end, self.clock.now_ms())
            except KeyRefused as refused:
                if self._key_name:
                    refused.args = (f"{self.base_url} does not take the key in {self._key_name}: {refused}",)
                raise
        assert end is not None, "a flight that has ended says how"
        place = self.base_url
        match end.cause:
            case FaultCause.UNREACHABLE:
                raise NoAnswer(f"{place} cannot be reached: {end.detail}", may_have_arrived=False)
            case FaultCause.NETWORK | FaultCause.TIMEOUT:
                raise NoAnswer(f"no answer from {place}: {end.detail}", may_have_arrived=True)
            case FaultCause.TOO_LARGE:
                error = BadReply(f"the reply of {place} is too large for one: {end.detail}")
                error.too_large = True
                raise error
            case _:
                assert_never(end.cause)


class _Streamed:
    """A streamed answer on its way to whoever takes it; holds the flight while too much lies untaken."""

    def __init__(self) -> None:
        self.flight: HttpFlight | None = None
        self.ended: HttpEnd | None = None
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()

    def put(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        self._news.set()
        if self._size > AHEAD_BYTES and self.flight is not None:
            self.flight.hold(True)

    def end(self, end: HttpEnd) -> None:
        self.ended = end
        self._news.set()

    async def pieces(self) -> AsyncIterator[bytes]:
        while True:
            while self._pieces:
                piece = self._pieces.popleft()
                self._size -= len(piece)
                if self._size <= AHEAD_BYTES and self.flight is not None:
                    self.flight.hold(False)
                yield piece
            if self.ended is not None:
                return
            self._news.clear()
            await self._news.wait()
