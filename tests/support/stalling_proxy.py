"""A TCP proxy on loopback before a server: it can stop forwarding without closing anything.

with StallingProxy(port) as proxy:
    proxy.url(url)          # the server's URL, through it
    proxy.stall()           # from here on nothing passes, and nobody is told
    proxy.go_on()           # what has waited passes; new connections too
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit, urlunsplit

from support.patience import PATIENCE_S

PIECE = 65_536


class StallingProxy:
    def __init__(self, port: int) -> None:
        self._to = port
        self._loop = asyncio.new_event_loop()
        self._open = asyncio.Event()
        self._open.set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self.port = int(self._server.sockets[0].getsockname()[1])
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    def url(self, url: str) -> str:
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        return urlunsplit(parts._replace(netloc=f"{user}@127.0.0.1:{self.port}"))

    def stall(self) -> None:
        self._told(self._open.clear)

    def go_on(self) -> None:
        self._told(self._open.set)

    def _told(self, what: Callable[[], None]) -> None:
        async def do() -> None:
            what()

        asyncio.run_coroutine_threadsafe(do(), self._loop).result(10)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self._to)
        for source, target in ((reader, there_writer), (there_reader, writer)):
            task = self._loop.create_task(self._forward(source, target))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _forward(self, source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        try:
            while piece := await source.read(PIECE):
                await self._open.wait()
                target.write(piece)
                await target.drain()
            await self._open.wait()
        except ConnectionError:
            pass
        finally:
            target.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async def end() -> None:
            self._server.close()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            self._loop.stop()

        asyncio.run_coroutine_threadsafe(end(), self._loop)
        self._thread.join(PATIENCE_S)
        self._loop.close()
