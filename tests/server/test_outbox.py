"""The outbox over a real store and a real receiver, on a calendar that the test moves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from batchwright.core.targets import read_allowed
from batchwright.core.webhooks import RETRY_AFTER_S, SPREAD
from batchwright.engine.outages import Outages
from batchwright.engine.outbox import MAX_OUT, PER_URL, Outbox, OutboxParts, outbox_lock_name
from batchwright.engine.targets import CheckedTargets
from batchwright.engine.writer import StoreThread
from batchwright.fabric.system import SystemChance
from batchwright.http.pinned import MAX_TAKEN_BYTES, OwnPinnedClient
from batchwright.ports.http import Timeouts
from batchwright.ports.store import Store
from batchwright.ports.webhooks import Delivery, DeliveryState, DeliveryWish, Webhook
from batchwright.server.infrai.webhooks import message
from batchwright.store.file_locks import FileLocks
from batchwright.store.open import open_store
from support.patience import PATIENCE_S
from support.raw_server import CA_FILE, Peer, raw_server
from support.store_drive import Worker, new_segment, submit
from support.webhook_receiver import HANG, Receiver, receiving

T = TypeVar("T")
SECRET = "correct horse battery"
IMPATIENT = Timeouts(connect_s=5.0, first_byte_s=0.1, total_s=0.1)
PATIENT = Timeouts(connect_s=5.0, first_byte_s=30.0, total_s=30.0)


@dataclass
class Calendar:
    """The loop's seconds; an epoch that the test moves."""

    now: int = 5_000

    def now_s(self) -> float:
        return asyncio.get_running_loop().time()

    def now_ms(self) -> int:
        return self.now

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


@dataclass
class Names:
    """A resolver whose answers change; real names are not asked for."""

    answers: list[list[str]]
    asked: list[str] = field(default_factory=list)

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


class WatchedWriter(StoreThread):
    """Tells when something was written."""

    def __init__(self) -> None:
        super().__init__("writer")
        self.written = asyncio.Event()

    async def do(self, work: Callable[[], T]) -> T:
        try:
            return await super().do(work)
        finally:
            self.written.set()


@dataclass
class Bench:
    store: Store
    outbox: Outbox
    clock: Calendar
    writer: WatchedWriter
    owner: str

    def hook(self, url: str, name: str = "a", headers: dict[str, str] | None = None) -> None:
        webhook = Webhook(
            webhook_id=f"wh_{name}",
            account="acme",
            url=url,
            secret=SECRET,
            headers=headers or {},
            created_at_ms=1_000,
        )
        self.store.add_webhook(webhook, None)

    def batch(self, batch_id: str = "batch_a") -> None:
        submit(self.store, batch_id, [new_segment(0)])
        Worker(self.store, batch_id).run(batch_id=batch_id)

    def item(self, name: str = "a") -> Delivery:
        (found,) = self.store.list_deliveries(f"wh_{name}", before=0, limit=10)
        return found

    def is_due(self) -> bool:
        return self.store.has_due_deliveries(self.clock.now)

    async def deliver(self) -> None:
        """The outbox runs for as long as something is due or on its way."""
        running = asyncio.create_task(self.outbox.run())
        while True:
            self.writer.written.clear()
            await self.writer.written.wait()  # its first write takes over what was left behind
            if not self.is_due() and self.owner not in self.store.delivery_owners():
                break
        running.cancel()
        await asyncio.wait([running])


@asynccontextmanager
async def bench(
    store: Store,
    folder: Path,
    *,
    allow: Sequence[str] = ("127.0.0.0/8",),
    names: Names | None = None,
    timeouts: Timeouts = PATIENT,
    incarnation: str = "1",
) -> AsyncIterator[Bench]:
    writer, clock, reports = WatchedWriter(), Calendar(), list[str]()
    http = OwnPinnedClient(timeouts, {"SSL_CERT_FILE": CA_FILE})
    parts = OutboxParts(
        store=store,
        writer=writer,
        http=http,
        targets=CheckedTargets(names or Names([["127.0.0.1"]]), read_allowed(allow)),
        clock=clock,
        chance=SystemChance(),
        locks=FileLocks(folder),
        render=message,
        report=reports.append,
        outages=Outages(),
    )
    try:
        outbox = Outbox(parts, host="here", incarnation=incarnation)
        yield Bench(store, outbox, clock, writer, owner=outbox_lock_name("here", incarnation))
    finally:
        await http.close()
        writer.close()
    assert reports == []


@pytest.fixture
def store() -> Iterator[Store]:
    opened = open_store(":memory:")
    yield opened
    opened.close()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path


def run(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(PATIENCE_S):
            await work()

    asyncio.run(bounded())


def test_failures_then_success_under_one_id(store: Store, folder: Path) -> None:
    async def work() -> None:
        with receiving(500, 503, 200) as receiver:
            async with bench(store, folder) as at:
                at.hook(receiver.url())
                at.batch()
                for tries, wait_s in enumerate((*RETRY_AFTER_S[:2], 0)):
                    await at.deliver()
                    item = at.item()
                    assert item.attempts == tries + 1
                    if wait_s:
                        assert item.state is DeliveryState.PENDING
                        wait_ms = item.due_ms - at.clock.now
                        assert wait_s * (1 - SPREAD) <= wait_ms / 1000 <= wait_s * (1 + SPREAD)
                        at.clock.now = item.due_ms - 1
                        assert not at.is_due()
                        at.clock.now = item.due_ms
                assert (at.item().state, at.item().last_status, at.item().last_error) == (
                    *(DeliveryState.DELIVERED, 200, ""),
                )
            assert len({one.event_id for one in receiver.messages}) == 1
            assert len({one.body for one in receiver.messages}) == 1
            assert len({one.headers["webhook-timestamp"] for one in receiver.messages}) == 3
            assert all(one.is_signed_with(SECRET) for one in receiver.messages)

    run(work)


def test_after_a_day_it_is_given_up_and_says_so(store: Store, folder: Path) -> None:
    async def work() -> None:
        with receiving(500) as receiver:
            async with bench(store, folder) as at:
                at.hook(receiver.url())
                at.batch()
                for _ in range(len(RETRY_AFTER_S) + 1):
                    await at.deliver()
                    at.clock.now = max(at.clock.now, at.item().due_ms)
                item = at.item()
                assert (item.state, item.attempts) == (DeliveryState.GIVEN_UP, len(RETRY_AFTER_S) + 1)
                assert item.last_error == "it answered 500; expected 200 to 299"
                at.clock.now += 10**9
                assert not at.is_due()

    run(work)


@pytest.mark.parametrize(
    ("asked", "least_s", "most_s", "attempts"),
    [
        ("7200", 7200, 7200, 5),
        ("Thu, 01 Jan 1970 02:00:05 GMT", 7200, 7200, 5),
        ("2", 4.5, 5.5, 11),
        ("soon", 4.5, 5.5, 11),
        (str(90 * 86_400), sum(RETRY_AFTER_S), sum(RETRY_AFTER_S), 2),
    ],
    ids=["longer", "a date", "shorter", "nonsense", "a quarter of a year"],
)
def test_a_receiver_says_when_it_wants_to_be_asked_again(
    store: Store, folder: Path, asked: str, least_s: float, most_s: float, attempts: int
) -> None:
    """Once: the next answers ask for nothing, so the rest of the schedule is what that wait left of it."""

    async def work() -> None:
        with receiving(503, 500, retry_after=asked) as receiver:
            async with bench(store, folder) as at:
                at.hook(receiver.url())
                at.batch()
                await at.deliver()
                waited_ms = at.item().due_ms - at.clock.now
                assert least_s <= waited_ms / 1000 <= most_s
                begun = at.clock.now
                while at.item().state is DeliveryState.PENDING:
                    at.clock.now = at.item().due_ms
                    await at.deliver()
                assert len(receiver.messages) == attempts
                assert at.clock.now - begun <= sum(RETRY_AFTER_S) * (1 + SPREAD) * 1000

    run(work)


def test_a_redirect_is_not_followed(store: Store, folder: Path) -> None:
    async def work() -> None:
        with receiving(302) as receiver:
            async with bench(store, folder) as at:
                at.hook(receiver.url())
                at.batch()
                await at.deliver()
                assert "redirects are not followed" in at.item().last_error
            assert [one.path for one in receiver.messages] == ["/hook"]

    run(work)


def test_a_receiver_that_hangs_does_not_hold_up_others(store: Store, folder: Path) -> None:
    async def work() -> None:
        with receiving(HANG) as hanging, receiving(200) as well:
            async with bench(store, folder) as at:
                at.hook(hanging.url(), "slow")
                for number in range(MAX_OUT + 4):
                    at.batch(f"batch_{number}")
                at.hook(well.url(), "well")
                at.batch("batch_last")
                running = asyncio.create_task(at.outbox.run())
                await asyncio.to_thread(well.wait_count, 1)
                await asyncio.to_thread(hanging.wait_count, 1)
                running.cancel()
                await asyncio.wait([running])
                # What was out and did not end is due at once for the next process.
                assert at.store.delivery_owners() == frozenset()
            assert 0 < len(hanging.messages) <= PER_URL

    run(work)


def test_no_answer_in_time_is_a_failure(store: Store, folder: Path) -> None:
    async def work() -> None:
        with receiving(HANG) as receiver:
            async with bench(store, folder, timeouts=IMPATIENT) as at:
                at.hook(receiver.url())
                at.batch()
                await at.deliver()
                item = at.item()
                assert (item.state, item.last_status) == (DeliveryState.PENDING, 0)
                assert "0.1 s" in item.last_error

    run(work)


def test_the_judged_address_is_connected_to(store: Store, folder: Path) -> None:
    """`hooks.test` leads nowhere but for the look-up here: a second one would find nothing."""

    async def work() -> None:
        names = Names([["127.0.0.1"]])
        with receiving(200) as receiver:
            async with bench(store, folder, names=names) as at:
                at.hook(f"http://hooks.test:{receiver.port}/x")
                at.batch()
                await at.deliver()
                assert at.item().state is DeliveryState.DELIVERED
            assert receiver.messages[0].headers["host"] == f"hooks.test:{receiver.port}"
        assert names.asked == ["hooks.test"]

    run(work)


def test_a_name_that_moves_to_a_private_address_is_refused(store: Store, folder: Path) -> None:
    async def work() -> None:
        names = Names([["93.184.216.34"], ["127.0.0.1"]])
        with receiving(200) as receiver:
            async with bench(store, folder, allow=(), names=names) as at:
                url = f"http://rebinds.test:{receiver.port}/"
                targets = CheckedTargets(names, read_allowed(()))
                await targets.resolve(targets.read(url))  # what a registration sees
                at.hook(url)
                at.batch()
                await at.deliver()
                assert "rebinds.test resolves to 127.0.0.1, which is this machine itself" in at.item().last_error
            assert receiver.messages == []

    run(work)


def test_a_host_that_is_not_there(store: Store, folder: Path) -> None:
    class Nobody(Names):
        async def __call__(self, host: str, port: int) -> list[str]:
            raise OSError(-2, "Name or service not known")

    async def work() -> None:
        async with bench(store, folder, names=Nobody([])) as at:
            at.hook("https://gone.test/")
            at.batch()
            await at.deliver()
            assert at.item().last_error == "the host was not found: Name or service not known"

    run(work)


def test_no_more_of_an_answer_is_taken_than_is_of_use(store: Store, folder: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * (MAX_TAKEN_BYTES + 1))
        await peer.wait_gone()

    async def work() -> None:
        async with raw_server(script) as server, bench(store, folder) as at:
            at.hook(server.url("/"))
            at.batch()
            await at.deliver()
            assert at.item().last_error == f"the answer is above {MAX_TAKEN_BYTES} bytes"

    run(work)


def test_certificates_are_checked_by_name(store: Store, folder: Path) -> None:
    async def script(peer: Peer) -> None:
        await peer.read_request()
        await peer.send(b"HTTP/1.1 204 No Content\r\n\r\n")

    async def work() -> None:
        async with raw_server(script, certificate="localhost") as server, bench(store, folder) as at:
            at.hook(f"https://localhost:{server.port}/", "good")
            at.hook(f"https://other.test:{server.port}/", "bad")
            at.batch()
            await at.deliver()
            assert (at.item("good").state, at.item("good").last_status) == (DeliveryState.DELIVERED, 204)
            assert "certificate" in at.item("bad").last_error

    run(work)


def test_what_a_dead_process_of_this_machine_held_is_taken_over(store: Store, folder: Path) -> None:
    async def work() -> None:
        locks = FileLocks(folder)
        alive = locks.take(outbox_lock_name("here", "alive"), holder="a test")
        assert alive is not None
        with receiving(200) as receiver:
            async with bench(store, folder) as at:
                at.hook(receiver.url())
                for owner in ("dead", "alive"):
                    at.batch(f"batch_{owner}")
                    wish = DeliveryWish(
                        owner=outbox_lock_name("here", owner),
                        now_ms=at.clock.now,
                        lease_ms=60_000,
                        limit=1,
                        per_url=1,
                        per_account=1,
                    )
                    assert len(store.claim_deliveries(wish)) == 1
                await at.deliver()
            assert [one.json["data"]["batch_id"] for one in receiver.messages] == ["batch_dead"]
        alive.release()

    run(work)


def test_two_processes_deliver_each_once(tmp_path: Path) -> None:
    async def work(receiver: Receiver) -> None:
        path = tmp_path / "state.db"
        first, second = open_store(path), open_store(path)
        async with bench(first, tmp_path, incarnation="1") as one, bench(second, tmp_path, incarnation="2") as two:
            one.hook(receiver.url())
            for number in range(8):
                one.batch(f"batch_{number}")
            both = [asyncio.create_task(at.outbox.run()) for at in (one, two)]
            await asyncio.to_thread(receiver.wait_count, 8)
            for running in both:
                running.cancel()
            await asyncio.wait(both)
        first.close()
        second.close()

    with receiving(200) as receiver:
        run(lambda: work(receiver))
        assert len(receiver.messages) == len({one.event_id for one in receiver.messages}) == 8
