"""`batchwright.AsyncClient` and `batchwright.Client`: a batch service over HTTP, this project's own or Infrai's."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from batchwright.client.sdk import AsyncBatches
from batchwright.client.sdk_sync import Batches
from batchwright.core.errors import UsageError

if TYPE_CHECKING:
    from batchwright.assemble.client import OpenService, ServiceAddress

T = TypeVar("T")
TIMEOUT_S = 180.0
MAX_RETRIES = 4


class AsyncClient:
    """A batch service as one key sees it, for code that has an event loop.

        async with batchwright.AsyncClient("https://batch.example.com") as client:
            batch = await client.batches.submit([{"model": "m", "messages": [...]}])
            await client.batches.wait(batch.batch_id)
            async for row in client.batches.results(batch.batch_id):
                print(row.request_index, row.content if row.ok else row.error)

    `base_url` is the service's address, with or without `/v1`. `api_key` None takes the key from
    BATCHWRIGHT_SERVICE_KEY or INFRAI_API_KEY; "" sends none. `timeout_s` bounds one call, a submit that runs its rows
    before it answers included. `max_retries` calls more are made where that is harmless. To be used in one loop.
    Opening it raises UsageError for an address or a key that cannot be used.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
        transport: str = "auto",
    ) -> None:
        self._address = _address(base_url, api_key, (timeout_s, max_retries, transport))
        self._open: OpenService | None = None

    @property
    def batches(self) -> AsyncBatches:
        """What can be asked. The first use opens connections, in the loop that runs."""
        if self._open is None:
            from batchwright.assemble.client import open_service

            try:
                asyncio.get_running_loop()
            except RuntimeError:
                raise UsageError("an AsyncClient needs a running event loop; batchwright.Client needs none") from None
            self._open = open_service(self._address)
        return AsyncBatches(self._open.asker)

    async def close(self) -> None:
        if self._open is not None:
            await self._open.close()
            self._open = None

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class Client:
    """A batch service as one key sees it.

        with batchwright.Client("https://batch.example.com") as client:
            batch = client.batches.submit([{"model": "m", "messages": [...]}])
            client.batches.wait(batch.batch_id)
            for row in client.batches.results(batch.batch_id):
                print(row.request_index, row.content if row.ok else row.error)

    What it is made with means the same as for `AsyncClient`. It may be used from several threads and where a loop runs
    already (a notebook): the calls run on a loop of its own, in a thread that ends with `close`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = TIMEOUT_S,
        max_retries: int = MAX_RETRIES,
        transport: str = "auto",
    ) -> None:
        self._loop = _LoopThread(
            lambda: AsyncClient(
                base_url, api_key=api_key, timeout_s=timeout_s, max_retries=max_retries, transport=transport
            )
        )
        self.batches = Batches(self._loop)
        """What can be asked."""

    def close(self) -> None:
        self._loop.close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _address(base_url: str, api_key: str | None, rest: tuple[float, int, str]) -> ServiceAddress:
    from batchwright.assemble.client import ServiceAddress

    timeout_s, max_retries, transport = rest
    return ServiceAddress(
        base_url=base_url, api_key=api_key, timeout_s=timeout_s, max_retries=max_retries, transport=transport
    )


class _LoopThread:
    """Implements `client.sdk_sync.Loop`: a loop in a daemon thread, begun with the first call."""

    def __init__(self, make: Callable[[], AsyncClient]) -> None:
        self._make = make
        self._client: AsyncClient | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def run(self, work: Callable[[AsyncBatches], Coroutine[Any, Any, T]]) -> T:
        async def call() -> T:
            if self._client is None:
                self._client = self._make()
            return await work(self._client.batches)

        future: Future[T] = asyncio.run_coroutine_threadsafe(call(), self._started())
        try:
            return future.result()
        except BaseException:
            future.cancel()  # an interrupt here must end what runs there
            raise

    def each(self, begin: Callable[[AsyncBatches], AsyncIterator[T]], *, ahead: int) -> Iterator[T]:
        source: list[AsyncIterator[T]] = []

        async def take(batches: AsyncBatches) -> list[T]:
            if not source:
                source.append(begin(batches))
            taken: list[T] = []
            async for value in source[0]:
                taken.append(value)
                if len(taken) == ahead:
                    break
            return taken

        async def end(batches: AsyncBatches) -> None:
            for iterator in source:
                await iterator.aclose()  # type: ignore[attr-defined]  # all of ours are generators

        try:
            while values := self.run(take):
                yield from values
        finally:
            self.run(end)

    def close(self) -> None:
        with self._lock:
            loop, thread, client = self._loop, self._thread, self._client
            self._loop = self._thread = self._client = None
        if loop is None or thread is None:
            return
        if client is not None:
            asyncio.run_coroutine_threadsafe(client.close(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    def _started(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(target=self._loop.run_forever, name="batchwright client", daemon=True)
                self._thread.start()
            return self._loop
