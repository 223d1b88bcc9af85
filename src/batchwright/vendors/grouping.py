"""A vendor's own batch API as the vendor of rows: they go there in groups, and each gets the answer of its line.

To the worker this is a vendor like any other: what it sends is durably reserved before, what comes back is
checkpointed, a failed row is sent again. What is different stands here:

- Rows that come within `LINGER_S` of each other share a group, within the vendor's limits.
- A group is kept durably before it is created, and named once the vendor has it (`ports.groups`). A row whose very
  attempt is in one that was kept before joins it and is not sent: neither a crash nor a worker elsewhere pays twice.
- Rows stay at the vendor while nobody here waits for them (`GroupCall.leave`); a group that nobody wants any more is
  cancelled there.
- All of it is for one batch of ours (`Destination.group`), so that what is called back is this batch's alone.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Protocol

from batchwright.core.errors import StoreError, told_of_fault
from batchwright.core.failures import FailureKind
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.groups import Group, Groups, RowAttempt
from batchwright.ports.vendor import Answer, CallListener, RowAsk
from batchwright.ports.vendor_batches import LINE_BYTES, BatchFault, VendorBatches
from batchwright.vendors.group_answers import not_done, not_here
from batchwright.vendors.group_rows import End, GroupWork, Row, StoreThread, row_id
from batchwright.vendors.group_work import Carrier

LINGER_S = 1.0
"""A group is not closed while rows still come: the larger it is the less there is to look at."""
LINGER_MOST_S = 10.0
"""But no row waits longer for others."""
LOAD_AGAIN_S = 1.0
"""Between two tries to read what was kept."""
CLOSING_S = 5.0
"""For the cancels of an end."""


class Keeper(Protocol):
    """Who keeps groups: this process."""

    def name(self) -> str:
        """As no other process is ever called."""

    def is_dead(self, name: str) -> bool:
        """Whether that one has surely ended. False: it lives, or is elsewhere, and nobody here can tell."""


class RefusedCall:
    """Implements `ports.vendor.RelayedCall`: a batch takes hours, and nobody waits for one answer so."""

    def __init__(self, listener: CallListener) -> None:
        answer = Answer(
            kind=FailureKind.INVALID_REQUEST,
            code="batches_only",
            message="it is a batch API; name the vendor itself for single calls",
        )
        self._handle = asyncio.get_running_loop().call_soon(listener.end, answer, None, b"")

    def abort(self) -> None:
        self._handle.cancel()

    def hold(self, held: bool) -> None:
        """Nothing comes."""


class GroupingVendor:
    """Implements `ports.vendor.GroupVendor`. To be used on the loop's thread."""

    max_in_flight = 0

    def __init__(
        self,
        api: VendorBatches,
        groups: Groups,
        *,
        batch_id: str,
        vendor: str,
        live_too: bool = False,
        attached: str = "",
        clock: Clock,
        chance: Chance,
        thread: StoreThread,
        keeper: Keeper,
        report: Callable[[str], None],
    ) -> None:
        self._api, self._groups = api, groups
        self._batch_id, self._vendor, self._live_too = batch_id, vendor, live_too
        self._attached: GroupWork | None = None
        """A batch that was created elsewhere: the first attempt of every row is in it, under its custom_id."""
        if attached:
            group = Group(
                tag="", batch_id=batch_id, vendor=vendor, rows=(), vendor_batch_id=attached, kept_at_ms=clock.now_ms()
            )
            self._attached = GroupWork(group, ours=False)
        self._clock, self._chance = clock, chance
        self._report = report
        self._thread = thread
        self._keeper = keeper
        self._carrier = Carrier(
            api, groups, vendor=vendor, clock=clock, thread=thread, is_dead=keeper.is_dead, report=report
        )
        self._arrived: list[Row] = []
        self._first_s = 0.0
        """When the first of those came."""
        self._linger: asyncio.TimerHandle | None = None
        self._places: dict[RowAttempt, tuple[GroupWork, str]] = {}
        """Attempts that are in a group: which one, and what they are called there."""
        self._known: set[str] = set()
        """Tags of groups that were met."""
        self._taking: asyncio.Task[None] | None = None
        self._homes: dict[Row, GroupWork] = {}
        self._tasks: dict[GroupWork, asyncio.Task[None]] = {}
        self._cancels: set[asyncio.Task[None]] = set()
        self._recalled = ""
        self._closing = False

    @property
    def waiting(self) -> str:
        texts = [work.waiting for work in self._tasks if work.waiting]
        more = f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""
        return f"{texts[0]}{more}" if texts else ""

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> Row:
        raise AssertionError("rows go to a batch API by send_row")

    def send_row(self, ask: RowAsk, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> Row:
        row = Row(ask, endpoint, body, on_end=on_end, abandoned=self._abandon)
        if self._recalled and not (self._tasks or self._arrived):
            self._recalled = ""  # that was in another round
        if not self._arrived:
            self._first_s = self._clock.now_s()
        self._arrived.append(row)
        self._look_later()
        return row

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RefusedCall:
        return RefusedCall(listener)

    def recall(self, why: str) -> None:
        self._recalled = self._recalled or why
        for work in self._tasks:
            self._call_back(work)
        self._look_now()

    async def close(self) -> None:
        """What is at the vendor stays there."""
        self._closing = True
        if self._linger is not None:
            self._linger.cancel()
        tasks = [*self._tasks.values(), *([self._taking] if self._taking is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._cancels:
            await asyncio.wait(self._cancels, timeout=CLOSING_S)
            for cancel in self._cancels:
                cancel.cancel()

    # -------------------------------------------------------------------------------------------- rows into groups

    def _look_later(self) -> None:
        if self._closing:
            return
        if self._linger is not None:
            self._linger.cancel()
        left_s = LINGER_MOST_S - (self._clock.now_s() - self._first_s)
        self._linger = asyncio.get_running_loop().call_later(max(0.0, min(LINGER_S, left_s)), self._look_now)

    def _look_now(self) -> None:
        """Begins groups of what has come."""
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None
        if self._arrived and not self._closing and self._taking is None:
            self._taking = asyncio.create_task(self._take_in(), name=f"groups of {self._batch_id}")

    async def _take_in(self) -> None:
        """Rows that are in no group that is known here are looked for among those that are kept by now, each time: a
        worker elsewhere may have kept them since, and given them back."""
        try:
            while self._arrived:
                arrived, self._arrived = self._arrived, []
                unknown = [row for row in arrived if row.on_end is not None and not self._join(row)]
                if unknown:
                    await self._load()
                    new = [row for row in unknown if row.on_end is not None and not self._join(row)]
                    for rows in self._cut(new):
                        self._begin(self._new_work(rows))
        finally:
            self._taking = None

    async def _load(self) -> None:
        """Learns of groups that are kept. A store that cannot be read keeps rows waiting."""
        told = False
        while True:
            try:
                kept = await self._thread.do(lambda: self._groups.groups_of(self._batch_id))
            except StoreError as error:
                if not told:
                    self._report(f"{self._batch_id}: what is at {self._vendor} cannot be read: {error}")
                told = True
                await self._clock.sleep(LOAD_AGAIN_S)
                continue
            for group in kept:
                if group.vendor == self._vendor and group.tag not in self._known:
                    self._known.add(group.tag)
                    work = GroupWork(group, ours=False)
                    self._places.update(zip(group.rows, ((work, name) for name in work.ids), strict=True))
            return

    def _join(self, row: Row) -> bool:
        """Whether the row is in a group that was kept before; it is answered from there then."""
        found = self._places.get(row.attempt)
        if found is None and self._attached is not None and not row.ask.attempts:
            found = self._attached, row.ask.custom_id
        if found is None:
            return False
        work, name = found
        work.rows[name] = row
        self._homes[row] = work
        if work not in self._tasks:
            self._begin(work)
        return True

    def _cut(self, rows: list[Row]) -> Iterator[list[Row]]:
        """Groups within the vendor's limits; what cannot go into any is answered."""
        limits = self._api.limits
        open_: dict[tuple[str, str], list[Row]] = {}
        sizes: dict[tuple[str, str], int] = {}
        for row in rows:
            if self._recalled:
                row.answer(not_done(self._recalled))
                continue
            if (unfit := self._api.unfit(row.endpoint, row.body)) is not None:
                row.answer(not_here(unfit) if self._live_too else unfit)
                continue
            place = (row.endpoint, row.ask.model if limits.one_model else "")
            size = len(row.body) + LINE_BYTES
            group = open_.setdefault(place, [])
            if group and (len(group) >= limits.rows or sizes[place] + size > limits.bytes):
                yield group
                group = open_[place] = []
                sizes[place] = 0
            group.append(row)
            sizes[place] = sizes.get(place, 0) + size
        yield from (group for group in open_.values() if group)

    def _new_work(self, rows: list[Row]) -> GroupWork:
        tag = f"{self._batch_id}.{self._chance.hex_id(8)}"
        group = Group(
            tag=tag,
            batch_id=self._batch_id,
            vendor=self._vendor,
            rows=tuple(row.attempt for row in rows),
            keeper=self._keeper.name(),
            kept_at_ms=self._clock.now_ms(),
        )
        self._known.add(tag)
        work = GroupWork(group, {row_id(tag, row.attempt): row for row in rows})
        for name, row in work.rows.items():
            self._homes[row] = work
            self._places[row.attempt] = work, name
        return work

    def _begin(self, work: GroupWork) -> None:
        if self._recalled:
            self._call_back(work)
        task = asyncio.create_task(self._carry(work), name=f"group {work.group.tag}")
        self._tasks[work] = task
        task.add_done_callback(partial(self._done, work))

    def _done(self, work: GroupWork, task: asyncio.Task[None]) -> None:
        if self._tasks.get(work) is task:
            del self._tasks[work]
        if (
            not work.group.vendor_batch_id
        ):  # nothing of it is there: each of its rows has ended, or is in another by now
            for attempt in work.group.rows:
                if self._places.get(attempt, (None, ""))[0] is work:
                    del self._places[attempt]
        for row in work.rows.values():
            self._homes.pop(row, None)

    async def _carry(self, work: GroupWork) -> None:
        try:
            end = await self._carrier.carry(work)
        except BatchFault as fault:
            # Money or key: its rows stay pending, and the lane pauses until a person acts.
            for row in work.left():
                row.answer(Answer(kind=fault.kind, http_status=fault.http_status, code=fault.code, message=str(fault)))
            return
        except Exception as error:
            text = f"a fault of batchwright itself: {told_of_fault(error)}"
            self._report(f"the group {work.group.tag} of {len(work.rows)} rows: {text}")
            for row in work.left():
                row.answer(Answer(kind=FailureKind.INTERNAL, code="internal", message=text))
            return
        left = deque(work.left())
        if end is End.SPLIT:
            middle = len(left) // 2
            halves = [left.popleft() for _ in range(middle)], list(left)
            for half in halves:
                self._begin(self._new_work(half))
        elif end is End.SENT_ANEW:
            for attempt in work.group.rows:
                self._places.pop(attempt, None)
            self._arrived += left
            self._look_now()

    # ------------------------------------------------------------------------------------------------- giving up

    def _call_back(self, work: GroupWork) -> None:
        work.recalled = work.recalled or self._recalled
        work.recall.set()

    def _abandon(self, row: Row) -> None:
        """Nobody wants the row any more: what the vendor has not done yet is not to be done, nor paid for."""
        work = self._homes.pop(row, None)
        if work is None or work.left():
            return
        task = self._tasks.pop(work, None)
        if task is None:
            return
        task.cancel()
        if work.group.vendor_batch_id and not (work.view is not None and work.view.state.has_ended):
            cancel = asyncio.create_task(
                self._carrier.cancel(work.group.vendor_batch_id), name=f"cancel {work.group.vendor_batch_id}"
            )
            self._cancels.add(cancel)
            cancel.add_done_callback(self._cancels.discard)
