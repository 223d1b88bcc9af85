"""A loopback server that does exactly what a test's script says on each connection, and writes down what it was sent.

It speaks bytes, not HTTP: a script reads a request whole and then answers, closes, resets, half-closes, hangs, or sends
what no server should. It runs in the test's own loop; a script that waits, waits on an event, never on time.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

CERTIFICATES = Path(__file__).parent / "certificates"
CA_FILE = str(CERTIFICATES / "ca.pem")
OK = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 11\r\n\r\n{"ok":true}'
"""A plain answer, kept alive."""
NOT_HANDED_OUT = range(12_000, 32_000)
"""Ports that Linux, macOS and Windows give only to who asks for them by number."""

Script = Callable[["Peer"], Awaitable[None]]


class ClientGone(Exception):
    """The client closed the connection while the script was reading a request. Ends the script, and nothing more."""


class Peer:
    """One connection as the server sees it. When its script returns, the connection is closed in order."""

    def __init__(
        self, server: RawServer, number: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self._server = server
        self._reader = reader
        self._writer = writer
        self.number = number
        """0 for the server's first connection."""

    async def read_request(self) -> bytes:
        """One request, whole: head and as many bytes as its content-length says. Returns the body."""
        head = await self.read_head()
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        try:
            body = await self._reader.readexactly(length)
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ClientGone from None
        self._server.requests.append((self.number, head + body))
        return body

    async def read_head(self) -> bytes:
        try:
            return await self._reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            raise ClientGone from None

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    def write_now(self, data: bytes) -> None:
        """Hands the bytes to the kernel at once, past the loop."""
        descriptor = self._writer.get_extra_info("socket").fileno()
        assert os.write(descriptor, data) == len(data)

    async def drip(self, data: bytes) -> None:
        """Sends byte by byte, each in a segment of its own as far as the system allows."""
        for position in range(len(data)):
            await self.send(data[position : position + 1])
            await breathe()

    async def relay(self, port: int) -> None:
        """Passes bytes on to another loopback server and back until either side closes: a proxy's tunnel."""
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            await asyncio.wait(
                {
                    asyncio.create_task(_copy(self._reader, writer), name="tunnel there"),
                    asyncio.create_task(_copy(reader, self._writer), name="tunnel back"),
                },
                return_when=asyncio.FIRST_COMPLETED,
            )
        finally:
            writer.close()

    def close(self) -> None:
        self._writer.close()

    def reset(self) -> None:
        """RST instead of FIN."""
        connection = self._writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.transport.abort()

    def half_close(self) -> None:
        """FIN, while this side goes on reading."""
        self._writer.write_eof()

    async def wait_gone(self) -> None:
        """Returns when the client has closed its side, whatever it sends until then."""
        with contextlib.suppress(ConnectionError):
            while await self._reader.read(65536):
                pass

    @property
    def transport(self) -> asyncio.WriteTransport:
        return self._writer.transport


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()


class RawServer:
    def __init__(self, script: Script, scheme: str) -> None:
        self._script = script
        self._scheme = scheme
        self.port = 0
        self.connections = 0
        """How many were accepted (after the handshake, with TLS)."""
        self.requests: list[tuple[int, bytes]] = []
        """(number of the connection, request) of all requests that were read whole, in order."""
        self.errors: list[Exception] = []
        """Of scripts; each is a fault of the test."""

    def url(self, path: str = "/v1/chat/completions", *, host: str = "127.0.0.1") -> str:
        return f"{self._scheme}://{host}:{self.port}{path}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = Peer(self, self.connections, reader, writer)
        self.connections += 1
        try:
            await self._script(peer)
        except ClientGone:
            pass
        except Exception as error:
            self.errors.append(error)
        finally:
            writer.close()


async def breathe() -> None:
    """Lets everything else in the loop have a turn."""
    await asyncio.sleep(0)


def server_tls(certificate: str) -> ssl.SSLContext:
    """`certificate` is a file of tests/support/certificates without its ending."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(CERTIFICATES / f"{certificate}.pem")
    return context


@contextlib.asynccontextmanager
async def raw_server(script: Script, *, certificate: str = "", scheme: str = "") -> AsyncIterator[RawServer]:
    """Runs `script` for each connection; `certificate` makes it speak TLS. `scheme` is for URLs that lie about it."""
    server = RawServer(script, scheme or ("https" if certificate else "http"))
    tasks: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(server.serve(reader, writer), name="raw server connection")
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    listener = await asyncio.start_server(
        accept, "127.0.0.1", 0, ssl=server_tls(certificate) if certificate else None, backlog=1024
    )
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()
        for task in list(tasks):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    assert not server.errors, server.errors


def free_port() -> int:
    """A port of loopback where nobody listens: below those that systems hand out unasked, so that it is neither given
    to a server of another test that runs beside this one, nor to one of its connections."""
    while True:
        port = secrets.choice(NOT_HANDED_OUT)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
