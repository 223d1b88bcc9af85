"""A real HTTP server on loopback that does what rows tell it to, and keeps account of every request it got.

    with ScriptedVendor() as vendor:          # a thread and a loop of its own
        ... vendor.base_url, vendor.hits, vendor.peak, vendor.set(overloaded=True), vendor.release() ...

    python -m support.scripted_vendor 8080    # from tests/: a process of its own, as `support.vendor_process` starts it

Rows' scripts: `support.vendor_scripts`. Server-wide behaviour: `Modes`.
"""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import TracebackType

import msgspec

from support.endpoint_answers import in_shape_of
from support.patience import PATIENCE_S
from support.raw_server import free_port
from support.vendor_scripts import (
    REQUESTS,
    Script,
    endpoint_body,
    first_text,
    last_word,
    plain_body,
    read_script,
    read_text,
    script_again,
    scripted_body,
    scripted_headers,
    stream_events,
)

KNOWN_PATHS = ("/completions", "/embeddings", "/responses")
DRIP_PIECES = 20


class Hit(msgspec.Struct, gc=False):
    """One request that was read whole (or, for `drop=before`, as far as its script)."""

    at: float
    """time.monotonic()"""
    text: str
    """The last user message."""
    path: str
    head: bytes = b""
    body: bytes = b""
    outcome: str = ""
    """`200`, `429`, `drop`, `reset`, `hang` ... as it was decided."""

    @property
    def headers(self) -> dict[str, str]:
        lines = (line.split(":", 1) for line in self.head.decode("latin-1").split("\r\n")[1:] if ":" in line)
        return {name.strip().lower(): value.strip() for name, value in lines}


@dataclass(frozen=True, slots=True, kw_only=True)
class Modes:
    """What holds for every request, whatever its row says. Changed by `set`."""

    refuse: bool = False
    """Nobody listens: connections are refused, open ones are closed."""
    overloaded: bool = False
    """Only 503."""
    key_refused: bool = False
    """Only 401 invalid_api_key."""
    quota_empty: bool = False
    """Only 429 insufficient_quota."""
    credit: int = -1
    """So many requests are still paid for, then 429 insufficient_quota; -1: no end of it."""
    fail_percent: float = 0.0
    """Of requests, by the seed: 429 without a wait, 500 and a dropped connection in turn."""
    per_minute: int = 0
    """Requests let through; others get 429 with Retry-After. 0: no limit."""
    latency_s: float = 0.0
    hold: bool = False
    """Every answer waits for `release`."""


class ScriptedVendor:
    def __init__(self, *, port: int = 0, seed: int = 1, keep: bool = True) -> None:
        """`keep`: hits hold head and body too; without it a hundred thousand of them stay small."""
        self.hits: list[Hit] = []
        self.peak = 0
        """The most requests that were being answered at once."""
        self.held: list[Callable[[], None]] = []
        self.modes = Modes()
        self.in_flight = 0
        self.stalled = 0
        """How often a streamed answer had to wait for its reader."""
        self.keep = keep
        self.port = port or free_port()
        """Stays its own while nobody listens there (`Modes.refuse`)."""
        self.connections: set[_Connection] = set()
        self._chance = random.Random(seed)
        self._attempts: dict[bytes, int] = {}
        self._next_free_s = 0.0
        self._changed = threading.Condition()
        self._waiters = 0
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------------ for the test

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def set(self, **changes: object) -> None:
        """Changes modes; returns when they hold."""
        self._on_loop(lambda: self._set(changes))

    def release(self) -> None:
        """Answers everything that is held."""
        self._on_loop(self._release)

    def wait_for(self, condition: Callable[[ScriptedVendor], bool], timeout_s: float = PATIENCE_S) -> None:
        """Waits until `condition(self)` holds, looked at after every request and every held answer."""
        with self._changed:
            self._waiters += 1
            try:
                if not self._changed.wait_for(lambda: condition(self), timeout_s):
                    raise TimeoutError(f"the condition did not come true within {timeout_s} s, hits: {len(self.hits)}")
            finally:
                self._waiters -= 1

    def texts(self) -> list[str]:
        return [hit.text for hit in self.hits]

    def __enter__(self) -> ScriptedVendor:
        ready = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(ready.set,), name="scripted vendor", daemon=True)
        self._thread.start()
        if not ready.wait(PATIENCE_S):
            raise RuntimeError("the scripted vendor did not start")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join(PATIENCE_S)

    # ---------------------------------------------------------------------------------------------------- the server

    def _run(self, ready: Callable[[], None]) -> None:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(self._serve(ready))

    async def _serve(self, ready: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop = asyncio.Event()
        self._listener: asyncio.AbstractServer | None = None
        await self._listen()
        ready()
        await self._stop.wait()
        self._close_all()

    async def _listen(self) -> None:
        self._listener = await self._loop.create_server(
            lambda: _Connection(self), "127.0.0.1", self.port, reuse_address=True, backlog=2048
        )

    def _close_all(self) -> None:
        if self._listener is not None:
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.transport.abort()

    def _on_loop(self, action: Callable[[], object]) -> None:
        async def act() -> None:
            result = action()
            if asyncio.iscoroutine(result):
                await result

        asyncio.run_coroutine_threadsafe(act(), self._loop).result(10)

    async def _set(self, changes: dict[str, object]) -> None:
        self.modes = replace(self.modes, **changes)  # type: ignore[arg-type]
        if self.modes.refuse and self._listener is not None:
            self._close_all()
        elif not self.modes.refuse and self._listener is None:
            await self._listen()
        if not self.modes.hold:
            self._release()

    def _release(self) -> None:
        held, self.held = self.held, []
        for answer in held:
            answer()

    def notify(self) -> None:
        if self._waiters:
            with self._changed:
                self._changed.notify_all()

    # ---------------------------------------------------------------------------------------------------- decisions

    def script_for(self, text: str, body: bytes) -> Script:
        """The row's script, unless its `times` are used up."""
        script = read_script(text)
        if "times" in script:
            done = self._attempts[body] = self._attempts.get(body, 0) + 1
            if done > int(script["times"]):
                return {}
        return script

    def script_again(self, first: str) -> Script:
        """Of a request that asks for an answer again; counted by what was asked first."""
        key = f"again {first}".encode()
        time = self._attempts[key] = self._attempts.get(key, -1) + 1
        return script_again(first, time)

    def mode_script(self) -> Script:
        """What a server-wide mode makes of a request; empty: nothing."""
        modes = self.modes
        if modes.overloaded:
            return {"status": "503", "code": "overloaded"}
        if modes.key_refused:
            return {"status": "401", "code": "invalid_api_key"}
        if modes.quota_empty:
            return {"status": "429", "code": "insufficient_quota"}
        if modes.credit >= 0:
            self.modes = replace(modes, credit=max(0, modes.credit - 1))
            if not modes.credit:
                return {"status": "429", "code": "insufficient_quota"}
        if modes.fail_percent and self._chance.random() * 100 < modes.fail_percent:
            return self._chance.choice(
                ({"status": "429", "code": "rate_limit_exceeded"}, {"status": "500"}, {"drop": "after"})
            )
        if modes.per_minute:
            return self._rate_limit(60.0 / modes.per_minute)
        return {}

    def _rate_limit(self, spacing_s: float) -> Script:
        """One second's worth of requests may come at once."""
        now = time.monotonic()
        if self._next_free_s - now > max(1.0, spacing_s):
            wait_s = self._next_free_s - now - 1.0
            return {"status": "429", "code": "rate_limit_exceeded", "ra": str(max(1, round(wait_s + 0.5)))}
        self._next_free_s = max(self._next_free_s, now) + spacing_s
        return {}


class _Connection(asyncio.Protocol):
    transport: asyncio.Transport

    def __init__(self, vendor: ScriptedVendor) -> None:
        self._vendor = vendor
        self._buffer = b""
        self._busy = False
        self._timers: list[asyncio.TimerHandle] = []
        self._streaming: list[bytes] = []
        """Events of a streamed answer that have not been written."""
        self._full = False
        """The other side reads no more for now."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]
        self._vendor.connections.add(self)

    def connection_lost(self, error: Exception | None) -> None:
        self._vendor.connections.discard(self)
        for timer in self._timers:
            timer.cancel()
        self._end()

    def eof_received(self) -> bool:
        return False

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        if self._busy:
            return
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end]
        lowered = head.lower()
        at = lowered.find(b"\r\ncontent-length:")
        length = int(lowered[at + 17 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            self._on_part(lowered, head)
            return
        body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
        self._busy = True
        self._on_request(head, body)

    def _on_part(self, lowered: bytes, head: bytes) -> None:
        """The request is not here whole yet."""
        if b"\r\nexpect: 100-continue" in lowered and self._buffer.endswith(b"\r\n\r\n"):
            self.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        elif b"drop=before" in self._buffer:
            self._vendor.hits.append(Hit(time.monotonic(), "", _path(head), outcome="drop"))
            self._vendor.notify()
            self.transport.abort()

    def _on_request(self, head: bytes, body: bytes) -> None:
        vendor, path = self._vendor, _path(head)
        vendor.in_flight += 1
        vendor.peak = max(vendor.peak, vendor.in_flight)
        try:
            request = REQUESTS.decode(body)
        except msgspec.DecodeError:
            request = None
        text = read_text(request) if request is not None else ""
        first = first_text(request) if request is not None else ""
        script = vendor.mode_script() or (vendor.script_again(first) if first else vendor.script_for(text, body))
        hit = Hit(time.monotonic(), text, path, outcome=_outcome(script, path))
        if vendor.keep:
            hit.head, hit.body = head, body
        vendor.hits.append(hit)
        vendor.notify()
        if request is None:
            self._finish(400, b'{"error":{"message":"not JSON","type":"invalid_request_error"}}', {})
        elif not path.endswith(KNOWN_PATHS) or not path.startswith("/v1/"):
            self._finish(404, b"404 page not found\n", {})
        elif request.stream and int(script.get("status", "200")) < 300:
            self._stream(stream_events(request, script), script)
        elif script:
            self._obey(script, text, request.model, path)
        elif not path.endswith("/chat/completions"):
            self._finish(200, endpoint_body(path, request, last_word(text)), {})
        else:
            self._finish(200, plain_body(request.model, last_word(text), len(vendor.hits)), {})

    def _obey(self, script: Script, text: str, model: str, path: str) -> None:
        if "hang" in script:
            return
        if "reset" in script:
            linger = struct.pack("ii", 1, 0)  # closing then sends RST in place of FIN
            self.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            self.transport.abort()
        elif "halfclose" in script:
            self.transport.write_eof()
        elif "drop" in script:
            self.transport.close()
        else:
            status, body = scripted_body(script, text, model)
            self._finish(status, in_shape_of(path, body), script)

    def _stream(self, events: list[bytes], script: Script) -> None:
        """Chunked, an event a chunk; as the other side reads it."""
        head = _head(200, 0, scripted_headers(script), chunked=True).replace(b"application/json", b"text/event-stream")
        self.transport.write(head + _chunk(events[0]))
        self._streaming = events[1:]
        if script.get("stream") == "hold":
            self._vendor.held.append(self._stream_on)
            self._vendor.notify()
        elif script.get("stream") == "cut":
            self.transport.write(_chunk(events[1]))
            self.transport.close()
        else:
            self._stream_on()

    def _stream_on(self) -> None:
        while self._streaming and not self._full and not self.transport.is_closing():
            self.transport.write(_chunk(self._streaming.pop(0)))
        if not self._streaming and not self.transport.is_closing():
            self._streaming = []
            self.transport.write(b"0\r\n\r\n")
            self._end()

    def pause_writing(self) -> None:
        self._full = True
        self._vendor.stalled += 1
        self._vendor.notify()

    def resume_writing(self) -> None:
        self._full = False
        if self._streaming:
            self._stream_on()

    def _finish(self, status: int, body: bytes, script: Script) -> None:
        """Answers now, after a wait, or when released."""
        vendor = self._vendor
        delay_s = float(script.get("sleep", 0)) + vendor.modes.latency_s
        if "hold" in script or vendor.modes.hold:
            vendor.held.append(lambda: self._answer(status, body, script))
            vendor.notify()
        elif delay_s:
            self._later(delay_s, lambda: self._answer(status, body, script))
        else:
            self._answer(status, body, script)

    def _answer(self, status: int, body: bytes, script: Script) -> None:
        if self.transport.is_closing():
            return
        if "blank" in script:
            body = b"\n" * int(script["blank"]) + body
        headers = scripted_headers(script) if script else []
        if "drip" in script:
            self._drip(status, body, float(script["drip"]), headers)
            return
        if "chunked" in script:
            pieces = [body[at : at + 1000] for at in range(0, len(body), 1000)]
            body = b"".join(b"%x\r\n%b\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
        self._write(status, body, headers, chunked="chunked" in script, close="close" in script)

    def _write(
        self, status: int, body: bytes, headers: list[str], *, chunked: bool = False, close: bool = False
    ) -> None:
        self.transport.write(_head(status, len(body), headers, chunked=chunked, close=close) + body)
        if close:
            self.transport.close()
        self._end()
        if self._buffer:
            self.data_received(b"")

    def _drip(self, status: int, body: bytes, interval_s: float, headers: list[str]) -> None:
        self.transport.write(_head(status, len(body), headers))
        size = max(1, len(body) // DRIP_PIECES)
        pieces = [body[at : at + size] for at in range(0, len(body), size)]
        for number, piece in enumerate(pieces, 1):
            self._later(number * interval_s, lambda piece=piece: self.transport.write(piece))  # type: ignore[misc]
        self._later((len(pieces) + 1) * interval_s, self._end)

    def _later(self, delay_s: float, action: Callable[[], None]) -> None:
        self._timers = [
            timer for timer in self._timers if not timer.cancelled() and timer.when() > self._vendor._loop.time()
        ]
        self._timers.append(self._vendor._loop.call_later(delay_s, action))

    def _end(self) -> None:
        if self._busy:
            self._busy = False
            self._vendor.in_flight = max(0, self._vendor.in_flight - 1)
            self._vendor.notify()


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _path(head: bytes) -> str:
    return head.split(b" ", 2)[1].decode("latin-1").partition("?")[0]


def _outcome(script: Script, path: str) -> str:
    for word in ("drop", "reset", "halfclose", "hang"):
        if word in script:
            return word
    return script.get("status", "200") if path.endswith(KNOWN_PATHS) else "404"


def _head(status: int, length: int, headers: list[str], *, chunked: bool = False, close: bool = False) -> bytes:
    lines = [f"HTTP/1.1 {status} Scripted", "Content-Type: application/json", *headers]
    lines.append("Transfer-Encoding: chunked" if chunked else f"Content-Length: {length}")
    if close:
        lines.append("Connection: close")
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop]:
    try:
        import uvloop
    except ImportError:  # Windows
        return asyncio.new_event_loop
    return uvloop.new_event_loop


def main() -> None:
    """Orders come as lines of JSON on standard input, accounts go out; ends with its input."""
    port, seed = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 1
    with ScriptedVendor(port=port, seed=seed, keep=False) as vendor:
        print(json.dumps({"base_url": vendor.base_url}), flush=True)
        for line in sys.stdin:
            order = json.loads(line)
            vendor.set(**order.get("set", {}))
            if order.get("release"):
                vendor.release()
            hits = [[hit.at, hit.text, hit.outcome] for hit in vendor.hits] if order.get("hits") else []
            account = {"count": len(vendor.hits), "peak": vendor.peak, "in_flight": vendor.in_flight, "hits": hits}
            print(json.dumps(account), flush=True)


if __name__ == "__main__":
    main()
