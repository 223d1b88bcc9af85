"""Looking on at a batch: one reader for all who wait, on a loop whose time jumps to the next timer."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any, cast

import pytest
from starlette.requests import Request

from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.errors import NoSuchBatch
from batchwright.core.failures import FailureKind
from batchwright.core.records import InputRow
from batchwright.core.rows import SourceRow
from batchwright.core.tenants import Scope
from batchwright.fabric.system import SystemChance
from batchwright.ports.batches import BatchStatus, Submit
from batchwright.ports.keys import ApiKey, Keys
from batchwright.ports.webhooks import Targets, Webhooks
from batchwright.server.asking import Ask
from batchwright.server.infrai.watch import KEEP_ALIVE_S, EventStream
from batchwright.server.insight import Insight
from batchwright.server.recent import Recent
from batchwright.server.service import Offers, Service
from batchwright.server.watching import READ_EVERY_S, Sight, Watching, version_of
from support.loop_clock import LoopClock
from support.memory_batches import MemoryBatches
from world.virtual_loop import run_virtually

BATCH = "batch_1"


class CountedBatches(MemoryBatches):
    def __init__(self) -> None:
        super().__init__()
        self.reads = 0

    async def status(self, batch_id: str) -> BatchStatus:
        self.reads += 1
        return await super().status(batch_id)

    async def begin(self, rows: int) -> None:
        spec = BatchSpec(name="", destinations=(Destination(vendor="v", base_url="https://v/v1"),))
        await self.submit(Submit(batch_id=BATCH, spec=spec), [[SourceRow(row=InputRow(body=b"{}"))] * rows])
        self.reads = 0


def test_a_thousand_watchers_cost_one_reader_and_one_encoding() -> None:
    async def work() -> None:
        batches, watching, encoded = CountedBatches(), Watching(LoopClock()), []
        await batches.begin(2)

        def encode(status: BatchStatus) -> bytes:
            encoded.append(status)
            return status.state.value.encode()

        async def look_on(version: str) -> bytes:
            with watching.watch(batches, "local", BATCH) as watched:
                sight = await watched.after(version, 60.0)
                assert sight is not None
                return sight.encoded(encode)

        now = version_of(await batches.status(BATCH))
        tasks = [asyncio.create_task(look_on(now)) for _ in range(1_000)]
        await asyncio.sleep(10.0)
        assert not any(task.done() for task in tasks)
        assert watching.batches_watched == 1
        assert batches.reads <= 11, "a thousand watchers are told once a second"
        batches.batches[BATCH].close(FailureKind.CANCELLED)
        assert await asyncio.gather(*tasks) == [b"cancelled"] * 1_000
        assert len(encoded) == 1
        assert watching.batches_watched == 0

    run_virtually(work())


def test_the_reader_ends_with_its_last_watcher() -> None:
    async def work() -> None:
        batches, watching = CountedBatches(), Watching(LoopClock())
        await batches.begin(1)
        with watching.watch(batches, "local", BATCH) as watched:
            await watched.look()
            with watching.watch(batches, "local", BATCH) as other:
                assert other is watched
            await asyncio.sleep(READ_EVERY_S * 3)
        reads = batches.reads
        assert reads >= 3
        await asyncio.sleep(100.0)
        assert batches.reads == reads

    run_virtually(work())


def test_a_change_is_told_at_once_and_no_change_not_at_all() -> None:
    async def work() -> None:
        batches, watching = CountedBatches(), Watching(LoopClock())
        await batches.begin(2)
        loop = asyncio.get_running_loop()
        with watching.watch(batches, "local", BATCH) as watched:
            first = await watched.look()
            began_s = loop.time()
            assert await watched.after(first.version, 30.0) is None
            assert loop.time() - began_s == pytest.approx(30.0)
            await batches.pause(BATCH, "lunch")
            paused = await watched.after(first.version, 30.0)
            assert paused is not None
            assert paused.status.state == "paused"
            assert loop.time() - began_s <= 30.0 + 2 * READ_EVERY_S

    run_virtually(work())


def test_a_read_that_ends_late_is_no_news() -> None:
    async def work() -> None:
        held: list[asyncio.Future[None]] = []

        class Slow(CountedBatches):
            async def status(self, batch_id: str) -> BatchStatus:
                status = await super().status(batch_id)
                if self.reads == 1:
                    held.append(asyncio.get_running_loop().create_future())
                    await held[0]
                return status

        batches, watching = Slow(), Watching(LoopClock())
        await batches.begin(1)
        with watching.watch(batches, "local", BATCH) as watched:
            early = asyncio.create_task(watched.look())
            await asyncio.sleep(0.01)
            await batches.pause(BATCH, "lunch")
            newer = await watched.look()
            held[0].set_result(None)
            assert (await early).version != newer.version
            assert await watched.after(newer.version, 0.05) is None

    run_virtually(work())


def test_a_batch_that_is_deleted_meanwhile_ends_the_wait() -> None:
    async def work() -> None:
        batches, watching = CountedBatches(), Watching(LoopClock())
        await batches.begin(1)
        with watching.watch(batches, "local", BATCH) as watched:
            sight = await watched.look()
            del batches.batches[BATCH]
            with pytest.raises(NoSuchBatch):
                await watched.after(sight.version, 30.0)

    run_virtually(work())


def test_the_end_of_the_process_wakes_all_who_wait() -> None:
    async def work() -> None:
        batches, watching = CountedBatches(), Watching(LoopClock())
        await batches.begin(1)

        async def look_on() -> Sight | None:
            with watching.watch(batches, "local", BATCH) as watched:
                return await watched.after((await watched.look()).version, 600.0)

        tasks = [asyncio.create_task(look_on()) for _ in range(3)]
        await asyncio.sleep(1.0)
        began_s = asyncio.get_running_loop().time()
        watching.end()
        assert await asyncio.gather(*tasks) == [None, None, None]
        assert asyncio.get_running_loop().time() == began_s

    run_virtually(work())


def stream_of(batches: MemoryBatches, watching: Watching) -> EventStream:
    service = Service(
        batches_of=lambda tenant: batches,
        files_of=cast(Any, None),
        calls=cast(Any, None),
        keys=cast(Keys, None),
        webhooks=cast(Webhooks, None),
        targets=cast(Targets, None),
        clock=LoopClock(),
        chance=SystemChance(),
        offers=Offers(()),
        watching=watching,
        recent=Recent(lambda: 0, LoopClock()),
        version="0",
        insight=cast(Insight, None),
        report=print,
    )
    key = ApiKey(key_id="key_1", shown="", account="local", name="", scopes=frozenset(Scope), created_at_ms=0)
    request = Request({"type": "http", "method": "GET", "path": "/", "headers": []})
    return EventStream(Ask(request, service, "r", 0.0, key), BATCH)


class Client:
    """What uvicorn is to an ASGI response."""

    def __init__(self) -> None:
        self.told: list[bytes] = []
        self.gone = asyncio.Event()

    async def receive(self) -> dict[str, object]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.body":
            self.told.append(message["body"])


def test_a_quiet_stream_is_kept_alive_and_ends_with_its_client() -> None:
    async def work() -> None:
        batches, watching, client = CountedBatches(), Watching(LoopClock()), Client()
        await batches.begin(1)
        stream = asyncio.create_task(stream_of(batches, watching)({}, client.receive, client.send))
        await asyncio.sleep(2.5 * KEEP_ALIVE_S)
        assert [piece.split(b" ")[0] for piece in client.told] == [b"id:", b":", b":"]
        assert watching.batches_watched == 1
        client.gone.set()
        await stream
        assert watching.batches_watched == 0

    run_virtually(work())


def test_a_stream_of_a_batch_that_is_deleted_says_so_and_ends() -> None:
    async def work() -> None:
        batches, watching, client = CountedBatches(), Watching(LoopClock()), Client()
        await batches.begin(1)
        stream = asyncio.create_task(stream_of(batches, watching)({}, client.receive, client.send))
        await asyncio.sleep(1.0)
        del batches.batches[BATCH]
        await stream
        assert client.told[1].startswith(b'event: error\ndata: {"code":"NOT_FOUND"')
        assert client.told[2:] == [b""]

    run_virtually(work())
