"""What `ports.batches.Batches` promises: this machine's batches, and those of a real service over HTTP, sit one exam.

Both look at one service's store, in its state folder or on a PostgreSQL, whose worker sends the rows. What a service
does not have by design, the files of this machine, prices of its own, an id that the caller chose, is asked of no one
here.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from batchwright.assemble.client import ServiceAddress, open_service
from batchwright.assemble.keys import share as set_share
from batchwright.assemble.machine import open_machine
from batchwright.client.batches import ServiceBatches
from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.batch_state import BatchState, PauseCause
from batchwright.core.errors import KeyReused, NoSuchBatch, WrongState
from batchwright.core.failures import FailureKind
from batchwright.core.gate import GateRule
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import RowView, SourceRow
from batchwright.ports.batches import Batches, BatchStatus, Selector, Submit
from batchwright.ports.store import Idempotency
from batchwright.wire.rows import RowDecoder
from support.patience import PATIENCE_S
from support.postgres import PostgresServer
from support.scripted_vendor import ScriptedVendor
from support.service import LONG_POLL_S, RunningService, serving

NOBODY = f"batch_{'0' * 24}"


@dataclass
class Candidate:
    """One implementation, and what a test needs beside it."""

    batches: Batches
    service: RunningService
    """Whose worker sends the rows, and which tells when something has changed."""
    destinations: tuple[Destination, ...]
    ids: Iterator[int] = field(default_factory=lambda: iter(range(1, 1_000)))

    def rows(self, texts: Sequence[str]) -> list[SourceRow]:
        decoder = RowDecoder(RowOptions(destinations=self.destinations, model="m"))
        line = '{"custom_id":"c-%s","messages":[{"role":"user","content":"%s"}]}'
        return [decoder.decode((line % (text[-2:], text)).encode(), number) for number, text in enumerate(texts, 1)]

    def wish(self, key: str = "", digest: str = "") -> Submit:
        return Submit(
            batch_id=f"batch_{next(self.ids):024x}",
            spec=BatchSpec(name="", destinations=self.destinations, gate=GateRule.STOP),
            idempotency=Idempotency(key, digest) if key else None,
        )

    async def submit(self, *texts: str) -> str:
        """In two chunks."""
        rows = self.rows(texts)
        return (await self.batches.submit(self.wish(), [rows[:1], rows[1:]])).status.batch_id

    async def until(self, batch_id: str, condition: Callable[[BatchStatus], bool]) -> BatchStatus:
        """Looks again whenever the service says that something has changed."""
        version = (await asyncio.to_thread(self.service.status, batch_id))["version"]
        while not condition(status := await self.batches.status(batch_id)):
            there = await asyncio.to_thread(self.service.status, batch_id, wait=LONG_POLL_S, seen=version)
            version = there["version"]
        return status

    async def ended(self, batch_id: str) -> BatchStatus:
        return await self.until(batch_id, lambda status: status.terminal)

    async def views(self, batch_id: str, **wishes: object) -> list[RowView]:
        found: list[RowView] = []
        async for some in self.batches.rows(batch_id, **wishes):  # type: ignore[arg-type]
            found += some
        return found


Exam = Callable[[Callable[[Candidate], Awaitable[None]]], None]


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


@pytest.fixture(params=["file", "postgres"])
def service(request: pytest.FixtureRequest, tmp_path: Path, vendor: ScriptedVendor) -> Iterator[RunningService]:
    with ExitStack() as stack:
        environment = {}
        if request.param == "postgres":
            server: PostgresServer = request.getfixturevalue("postgres")
            environment["BATCHWRIGHT_DATABASE"] = stack.enter_context(server.database())
        yield stack.enter_context(serving(tmp_path / "service", vendor, environment=environment))


@pytest.fixture(params=["this machine", "a service"])
def sit(request: pytest.FixtureRequest, service: RunningService) -> Exam:
    """Runs a test's work on a loop of its own, with the candidate open."""

    async def bounded(work: Callable[[Candidate], Awaitable[None]]) -> None:
        async with asyncio.timeout(PATIENCE_S), AsyncExitStack() as stack:
            batches: Batches
            if request.param == "a service":
                opened = open_service(ServiceAddress(base_url=service.base_url, api_key=service.key))
                stack.push_async_callback(opened.close)
                batches = ServiceBatches(opened.asker, Destination(vendor="service", base_url=service.base_url))
            else:
                batches = (await stack.enter_async_context(open_machine(service.settings))).batches
            await work(Candidate(batches, service, service.settings.destinations))

    return lambda work: asyncio.run(bounded(work))


def test_a_batch_from_submit_to_its_rows(sit: Exam) -> None:
    async def work(at: Candidate) -> None:
        batch_id = await at.submit("a0", "[[status=400]] a1", *(f"a{number}" for number in range(2, 12)))
        status = await at.ended(batch_id)
        assert (status.batch_id, status.state, status.total, status.round) == (batch_id, BatchState.PARTIAL, 12, 0)
        counts = status.counts
        assert (counts.succeeded, counts.failed, counts.cancelled, counts.expired, counts.open) == (11, 1, 0, 0, 0)
        assert sum(status.by_byte.values()) == status.total
        assert (status.tally.attempts, status.pauses) == (12, ())
        assert status.created_at_ms <= status.settled_at_ms
        views = await at.views(batch_id)
        assert [view.request_index for view in views] == list(range(12))
        assert [view.input.custom_id for view in views][:3] == ["c-a0", "c-a1", "c-a2"]
        assert {view.byte for view in views} == set(status.by_byte)
        assert views[1].byte == row_map.KIND_BYTES[FailureKind.INVALID_REQUEST]
        assert all(view.record is not None and view.record.attempts == 1 for view in views)
        assert sum(view.record.cost_picousd for view in views if view.record is not None) == status.tally.cost_picousd

    sit(work)


def test_a_status_has_the_batches_priority_and_its_accounts_share(sit: Exam, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)

    async def work(at: Candidate) -> None:
        batch_id = await at.submit("a0")
        status = await at.batches.status(batch_id)
        assert (status.priority, status.share.weight, status.share.in_flight) == (0, 100, 0)
        assert (await at.batches.prioritise(batch_id, -7)).priority == -7
        await set_share(at.service.settings, status.tenant.account or "local", weight=250, in_flight=8)
        (status,) = await at.batches.find()
        vendor.release()
        assert (status.priority, status.share.weight, status.share.in_flight) == (-7, 250, 8)

    sit(work)


def test_rows_from_somewhere_to_somewhere_of_some_kinds(sit: Exam) -> None:
    async def work(at: Candidate) -> None:
        batch_id = await at.submit(*(f"[[status=400]] a{row}" if row % 3 == 0 else f"a{row}" for row in range(10)))
        await at.ended(batch_id)
        failed = frozenset({row_map.KIND_BYTES[FailureKind.INVALID_REQUEST]})
        for wishes, expected in (
            ({"start": 4}, range(4, 10)),
            ({"end": 4}, range(4)),
            ({"start": 2, "end": 7}, range(2, 7)),
            ({"start": 10}, ()),
            ({"wanted": failed}, (0, 3, 6, 9)),
            ({"wanted": failed, "start": 1, "end": 9}, (3, 6)),
            ({"wanted": frozenset({row_map.PENDING})}, ()),
        ):
            views = await at.views(batch_id, **wishes)
            assert [view.request_index for view in views] == list(expected), wishes
        assert await at.batches.find_custom_id(batch_id, "c-a3") == [3]
        assert await at.batches.find_custom_id(batch_id, "c-a") == []

    sit(work)


def test_batches_are_found_newest_first(sit: Exam) -> None:
    async def work(at: Candidate) -> None:
        assert await at.batches.find() == []
        with pytest.raises(NoSuchBatch):
            await at.batches.resolve("@last")
        made = []
        for number in range(4):
            made.append(await at.submit(f"b{number}"))
            await at.ended(made[-1])
        newest = made[::-1]
        moments = [(await at.batches.status(batch_id)).created_at_ms for batch_id in newest]
        for wishes, expected in (
            ({}, newest),
            ({"limit": 2}, newest[:2]),
            ({"before": newest[1]}, newest[2:]),
            ({"before": newest[1], "limit": 1}, newest[2:3]),
            ({"created_after_ms": moments[1]}, newest[:2]),
            ({"created_before_ms": moments[1]}, newest[2:]),
            ({"created_before_ms": moments[1], "limit": 1}, newest[2:3]),
            ({"created_before_ms": moments[3]}, []),
        ):
            found = await at.batches.find(**wishes)
            assert [status.batch_id for status in found] == expected, wishes
        assert await at.batches.resolve("@last") == newest[0]
        assert await at.batches.resolve(newest[2]) == newest[2]
        alone = next(
            size for size in range(1, 25) if sum(one[6:].startswith(newest[2][6 : 6 + size]) for one in made) == 1
        )
        assert await at.batches.resolve(newest[2][6 : 6 + alone]) == newest[2]
        assert await at.batches.resolve(newest[2][: 6 + alone]) == newest[2]
        for text in ("batch_", NOBODY, "zz"):
            with pytest.raises(NoSuchBatch):
                await at.batches.resolve(text)

    sit(work)


def test_cancel_pause_and_resume(sit: Exam, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)

    async def work(at: Candidate) -> None:
        batch_id = await at.submit(*(f"c{number}" for number in range(3)))
        await asyncio.to_thread(vendor.wait_for, lambda seen: len(seen.held) == 3)
        paused = await at.batches.pause(batch_id, "because")
        assert (paused.state, paused.terminal) == (BatchState.PAUSED, False)
        assert [(pause.cause, pause.reason) for pause in paused.pauses] == [(PauseCause.USER, "because")]
        with pytest.raises(WrongState):
            await at.batches.retry(batch_id, Selector())
        with pytest.raises(WrongState):
            await at.batches.check_delete(batch_id)
        with pytest.raises(WrongState):
            await at.batches.delete(batch_id)
        resumed = await at.batches.resume(batch_id)
        assert resumed.state in (BatchState.QUEUED, BatchState.RUNNING)
        assert resumed.pauses == ()
        for _ in range(2):
            assert (await at.batches.cancel(batch_id)).state in (BatchState.CANCELLING, BatchState.CANCELLED)
        vendor.set(hold=False)
        assert (await at.ended(batch_id)).state in (BatchState.CANCELLED, BatchState.COMPLETED)
        other = await at.submit("d0")
        await at.ended(other)
        for change in (at.batches.cancel(other), at.batches.pause(other, "late")):
            with pytest.raises(WrongState):
                await change

    sit(work)


def test_a_retry_is_a_new_round_of_the_rows_that_are_meant(sit: Exam) -> None:
    async def work(at: Candidate) -> None:
        texts = ["e0", "[[status=400 times=1]] e1", "[[status=400 times=2]] e2", "[[status=404 code=x]] e3"]
        batch_id = await at.submit(*texts)
        first = await at.ended(batch_id)
        assert first.counts.failed == 3
        again = Selector(kinds=frozenset({FailureKind.INVALID_REQUEST}))
        refused = sum(first.by_byte.get(row_map.KIND_BYTES[kind], 0) for kind in again.kinds)
        assert await at.batches.retry(batch_id, again) == refused >= 2
        second = await at.until(batch_id, lambda status: status.terminal and status.round == 1)
        assert second.counts.succeeded == 2
        assert await at.batches.retry(batch_id, Selector()) == second.counts.failed
        third = await at.until(batch_id, lambda status: status.terminal and status.round == 2)
        assert third.counts.succeeded == 3
        assert third.tally.attempts == 4 + refused + second.counts.failed, "attempts of all rounds"

    sit(work)


def test_one_key_makes_one_batch(sit: Exam) -> None:
    async def work(at: Candidate) -> None:
        rows = at.rows(["f0", "f1"])
        first = await at.batches.submit(at.wish("key", "one"), [rows])
        second = await at.batches.submit(at.wish("key", "one"), [rows])
        assert (first.replayed, second.replayed) == (False, True)
        assert second.status.batch_id == first.status.batch_id
        with pytest.raises(KeyReused):
            await at.batches.submit(at.wish("key", "two"), [at.rows(["other"])])
        assert [status.batch_id for status in await at.batches.find()] == [first.status.batch_id]

    sit(work)


@pytest.mark.parametrize("arriving", [False, True])
def test_of_an_input_that_breaks_off_nothing_is_kept(sit: Exam, vendor: ScriptedVendor, arriving: bool) -> None:
    class BrokenOff(Exception):
        pass

    async def work(at: Candidate) -> None:
        def chunks() -> Iterator[Sequence[SourceRow]]:
            yield at.rows(["g0"])
            raise BrokenOff

        async def later() -> AsyncIterator[Sequence[SourceRow]]:
            yield at.rows(["g0"])
            raise BrokenOff

        with pytest.raises(BrokenOff):
            await at.batches.submit(at.wish(), later() if arriving else chunks())
        assert await at.batches.find() == []
        assert vendor.hits == []

    sit(work)


def test_what_was_deleted_is_not_there_but_its_usage_is(sit: Exam) -> None:
    async def work(at: Candidate) -> None:
        batch_id, kept = await at.submit("h0", "h1"), await at.submit("h2")
        await at.ended(batch_id)
        await at.ended(kept)
        used = await at.batches.usage()
        assert sum(spent.answers for _, spent in used) == 3
        assert {(key.model, key.vendor) for key, _ in used} == {("m", "scripted")}
        assert [key for key, _ in used] == sorted(key for key, _ in used)
        await at.batches.check_delete(batch_id)
        await at.batches.delete(batch_id)
        await nothing_is_there(at, batch_id)
        assert [status.batch_id for status in await at.batches.find()] == [kept]
        assert await at.batches.usage() == used
        assert await at.batches.usage(since_day="2999-01-01") == []

    sit(work)


def test_what_never_was_is_not_there(sit: Exam) -> None:
    async def work(at: Candidate) -> None:
        await nothing_is_there(at, NOBODY)

    sit(work)


async def nothing_is_there(at: Candidate, batch_id: str) -> None:
    batches = at.batches
    calls: list[Callable[[], Awaitable[object]]] = [
        lambda: batches.status(batch_id),
        lambda: batches.resolve(batch_id),
        lambda: at.views(batch_id),
        lambda: batches.find_custom_id(batch_id, "c"),
        lambda: batches.retry(batch_id, Selector()),
        lambda: batches.cancel(batch_id),
        lambda: batches.pause(batch_id, "because"),
        lambda: batches.resume(batch_id),
        lambda: batches.check_delete(batch_id),
        lambda: batches.delete(batch_id),
    ]
    for call in calls:
        with pytest.raises(NoSuchBatch):
            await call()
