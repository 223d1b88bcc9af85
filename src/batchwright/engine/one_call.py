"""One single call: waits at a desk, is out at a vendor, and hands on what comes back.

waiting    in `desk.callers`; ends by `go` (admitted), by `fail` (refused, waited too long) or by `leave`
out        at the vendor; ends by `end`, or by `drop` (the other side of a stream has gone, the worker ends)
begun      out, and the head of a streamed answer has come: pieces go by
ended      its usage is being made durable, then whoever waits is told
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from batchwright.core.failures import KINDS, FailureKind
from batchwright.core.records import UNKNOWN, UsageSum
from batchwright.core.tenants import Tenant
from batchwright.engine.desk import LaneDesk
from batchwright.ports.calls import CallBroken, CallRefused, CallReply
from batchwright.ports.http import HttpReply
from batchwright.ports.vendor import Answer, RelayedCall, Vendor
from batchwright.wire.call_headers import passed_headers, status_of

if TYPE_CHECKING:
    from batchwright.engine.single_calls import SingleCalls

HELD_BYTES = 256 * 1024
"""Of a streamed answer, not taken yet: from so many on no more is read from the vendor."""


class Call:
    """Implements `engine.desk.Caller` and `ports.vendor.CallListener`."""

    def __init__(
        self,
        calls: SingleCalls,
        desk: LaneDesk,
        tenant: Tenant,
        endpoint: str,
        body: bytes,
        *,
        stream: bool,
        output_tokens: int,
    ) -> None:
        self._calls = calls
        self.desk = desk
        self.tenant = tenant
        self.endpoint = endpoint
        self._body = body
        self._stream = stream
        self.size = len(body)
        self.tokens = (len(body) >> 2) + max(0, output_tokens)
        self.output_tokens = output_tokens
        self.held_picousd = 0
        """Drawn from its key's budget, and not given back yet."""
        self.started_s = 0.0
        self.answered: asyncio.Future[CallReply] = asyncio.get_running_loop().create_future()
        self.begun = False
        self._flight: RelayedCall | None = None
        self._patience: asyncio.TimerHandle | None = None
        self._pieces: CallPieces | None = None

    @property
    def is_out(self) -> bool:
        return self._flight is not None

    # ----------------------------------------------------------------------------------------------------- waiting

    def wait_at_most(self, seconds: float) -> None:
        self._patience = asyncio.get_running_loop().call_later(seconds, self._lose_patience, seconds)

    def go(self, vendor: Vendor, now_s: float) -> None:
        self._stop_waiting()
        self._calls.started(self)
        self.started_s = now_s
        self._flight = vendor.relay(self.endpoint, self._body, self, stream=self._stream)
        self._body = b""

    def refuse(self, retry_after_s: float) -> None:
        self.fail(self._calls.refusal(self.desk, retry_after_s))

    def fail(self, error: CallRefused) -> None:
        """It was not sent, and will not be."""
        self._stop_waiting()
        self._calls.gave_up(self)
        if not self.answered.done():
            self.answered.set_exception(error)

    def _lose_patience(self, waited_s: float) -> None:
        self.desk.callers.remove(self)
        said = f"The call waited {waited_s:g} s for room at {self.desk.key.vendor}; others were before it."
        self.fail(CallRefused(said, code="rate_limit_exceeded", http_status=429, retry_after_s=1.0))

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()

    def leave(self) -> None:
        """Whoever asked has gone before there was an answer."""
        if self._flight is None:
            if self in self.desk.callers:
                self.desk.callers.remove(self)
                self._stop_waiting()
                self._calls.gave_up(self)
        elif self._stream:
            self.drop(None)
        # Another one is paid for already: it is let finish, so that its cost is known.

    # ----------------------------------------------------------------------------------------------------- out

    def begin(self, head: bytes) -> None:
        self.begun = True
        self._pieces = CallPieces(self)
        reply = CallReply(
            status=status_of(head),
            headers=passed_headers(head, streamed=True),
            pieces=self._pieces,
            vendor=self.desk.answered_by,
        )
        if not self.answered.done():
            self.answered.set_result(reply)

    def take(self, piece: bytes) -> None:
        assert self._pieces is not None
        if self._pieces.add(piece) and self._flight is not None:
            self._flight.hold(True)

    def release(self) -> None:
        """What was held back of a stream may come."""
        if self._flight is not None:
            self._flight.hold(False)

    def end(self, answer: Answer, reply: HttpReply | None, last: bytes) -> None:
        flight, self._flight = self._flight, None
        if flight is not None:
            flight.hold(False)  # what follows a stream's last event must not keep its connection
        spent = self._calls.ended(self, answer)
        self._calls.spawn(self._settle(answer, reply, spent, last))

    def drop(self, error: CallRefused | None) -> None:
        """Ends it at the vendor too. `error`: for whoever still waits."""
        flight, self._flight = self._flight, None
        if flight is None:
            return
        flight.abort()
        spent = self._calls.dropped(self)
        self._calls.spawn(self._calls.count(self, spent))
        if self._pieces is not None:
            self._pieces.finish(str(error or ""))
        elif error is not None and not self.answered.done():
            self.answered.set_exception(error)

    async def _settle(self, answer: Answer, reply: HttpReply | None, spent: UsageSum | None, last: bytes) -> None:
        """Nobody is told the end before its cost is durable."""
        await self._calls.count(self, spent)
        if self._pieces is not None:
            if last:
                self._pieces.add(last)
            # An error that came as an event has gone by with the others.
            self._pieces.finish(answer.message or str(answer.kind) if _broke_off(answer) else "")
        elif self.answered.done():
            pass  # nobody waits any more
        elif reply is None:
            self.answered.set_exception(_no_answer(self.desk, answer))
        else:
            self.answered.set_result(
                CallReply(
                    status=reply.status,
                    headers=passed_headers(reply.head, streamed=False),
                    body=reply.body,
                    vendor=self.desk.answered_by,
                    cost_picousd=_known_cost(spent),
                )
            )


class CallPieces:
    """The pieces of a streamed answer, as they are asked for. Implements `ports.calls.Pieces`."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._kept: list[bytes] = []
        self._size = 0
        self._come = asyncio.Event()
        self._ended = False
        self._fault = ""

    def add(self, piece: bytes) -> bool:
        """Whether that is enough for now."""
        self._kept.append(piece)
        self._size += len(piece)
        self._come.set()
        return self._size >= HELD_BYTES

    def finish(self, fault: str) -> None:
        """No more comes. `fault`: why it broke off; empty: it is whole, or nobody takes it any more."""
        self._ended = True
        self._fault = fault
        self._come.set()

    def __aiter__(self) -> CallPieces:
        return self

    async def __anext__(self) -> bytes:
        while not self._kept:
            if self._ended:
                if self._fault:
                    raise CallBroken(self._fault)
                raise StopAsyncIteration
            self._come.clear()
            await self._come.wait()
        data = b"".join(self._kept)
        self._kept.clear()
        self._size = 0
        self._call.release()
        return data

    def close(self) -> None:
        self._call.drop(None)


def _known_cost(spent: UsageSum | None) -> int:
    if spent is None:
        return 0
    return UNKNOWN if spent.unpriced or spent.no_usage else spent.cost_picousd


def _broke_off(answer: Answer) -> bool:
    return answer.kind is not None and answer.http_status == 0


def _no_answer(desk: LaneDesk, answer: Answer) -> CallRefused:
    kind = answer.kind or FailureKind.INTERNAL
    said = f"No answer came from {desk.key.vendor}: {answer.message}"
    return CallRefused(said, code=kind.value, http_status=KINDS[kind].http_status)
