"""One group of rows on its way through a vendor's own batch API: created, named, looked at, read.

    kept -> created -> named (its id is durable) -> looked at until it has ended -> read -> every row has its answer

What a crash may leave is a group that is kept and has no name: it is looked for by its tag, and only when the vendor
has surely not made it are its rows sent anew. A call that fails is made again for as long as that can help: rows that
may be paid for are not given up for a vendor that is away.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from batchwright.core.errors import StoreError
from batchwright.core.failures import KINDS, FailureKind, SentAgain
from batchwright.ports.clock import Clock
from batchwright.ports.groups import Groups
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import (
    BatchFault,
    BatchLine,
    BatchOrder,
    BatchView,
    CreateStep,
    ResultLine,
    VendorBatches,
    VendorBatchState,
)
from batchwright.vendors.group_answers import gone, missing, not_done, window_passed
from batchwright.vendors.group_rows import End, GroupWork, Row, StoreThread

T = TypeVar("T")

LOOK_FIRST_S, LOOK_MOST_S = 1.0, 60.0
"""Between two looks at a batch: from the one, growing by half, to the other."""
AGAIN_FIRST_S, AGAIN_MOST_S = 1.0, 120.0
"""Between two tries of a call that failed, where the vendor names no wait."""
NO_ROOM_S = 60.0
"""Before a group is created again that the vendor had no room for (the limit of enqueued tokens)."""
STALE_MS = 2 * 3_600_000
"""A batch without any progress for so long is told of, once each time."""
UNSURE_MS = 30_000
"""A vendor's list may lack a batch that was just made: one that is not found counts as not made after this."""
OTHERS_MS = 15 * 60_000
"""The same where another process kept the group, of which nobody knows that it is dead: it may still be uploading."""
GONE_MS = 10 * 60_000
"""A batch of ours that the vendor says it does not know is asked for again for so long."""
FIND_MOST_S = 10.0
"""Between two looks for a batch by its tag, at most."""
JOINS_S = 1.0
"""Without a row that joins an earlier group for so long, those are all."""
LOOK_FOR_ROOM_S = 0.01
"""How often it is asked whether more answers may be handed over."""
RECALL_PATIENCE_S = 60.0
"""How long a batch that was called back may take to say what it has done."""


@dataclass(slots=True)
class _Reading:
    names: frozenset[str]
    """Of all rows of the group."""
    undone: set[Row] = field(default_factory=set)
    strangers: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)


class Carrier:
    """Carries groups: what of it is a conversation with the vendor."""

    def __init__(
        self,
        api: VendorBatches,
        groups: Groups,
        *,
        vendor: str,
        clock: Clock,
        thread: StoreThread,
        is_dead: Callable[[str], bool],
        report: Callable[[str], None],
    ) -> None:
        self._api, self._groups = api, groups
        self._vendor = vendor
        self._thread = thread
        self._is_dead = is_dead
        self._clock = clock
        self._report = report

    async def carry(self, work: GroupWork) -> End:
        """Until each of its rows has its answer, or there is another way for them. Raises BatchFault where nothing can
        be done for now that a person would not have to do first (money, key)."""
        if not work.group.vendor_batch_id:
            if work.ours:
                made: str | End = await self._create(work)
            else:
                now_ms, group = self._clock.now_ms(), work.group
                until_ms = now_ms + UNSURE_MS if self._is_dead(group.keeper) else group.kept_at_ms + OTHERS_MS
                made = await self._find_made(work, until_ms) or End.SENT_ANEW
            if isinstance(made, End):
                if not work.ours:
                    await self._forget(work)
                return made
            await self._name(work, made)
        return await self._follow(work)

    async def cancel(self, vendor_batch_id: str) -> None:
        """As far as it can be done now."""
        try:
            await self._api.cancel(vendor_batch_id)
        except BatchFault as fault:
            self._report(f"{vendor_batch_id} at {self._vendor} could not be cancelled: {fault}")

    # --------------------------------------------------------------------------------------------------- into being

    async def _create(self, work: GroupWork) -> str | End:
        rows = list(work.rows.values())
        first = rows[0]
        lines = [BatchLine(name, row.body) for name, row in work.rows.items()]
        order = BatchOrder(
            tag=work.group.tag,
            endpoint=first.endpoint,
            model=first.ask.model,
            window_s=self._api.limits.windows_s[-1],
        )
        await self._kept(work, lambda: self._groups.keep_group(work.group))
        wait_s = AGAIN_FIRST_S
        while True:
            if work.recalled:
                for row in work.left():
                    row.answer(not_done(work.recalled))
                await self._forget(work)
                return End.ANSWERED
            if len(work.left()) < len(rows):
                # Some were let go of since: whoever has them now did not find them in this group, and sends them anew.
                await self._forget(work)
                return End.SENT_ANEW
            try:
                return (await self._api.create(lines, order)).batch_id
            except BatchFault as fault:
                if fault.may_be_done and fault.step is not CreateStep.UPLOAD:
                    self._report(f"{self._vendor}: {fault}; whether the batch was made is looked up by its tag")
                    if found := await self._find_made(work, self._clock.now_ms() + UNSURE_MS):
                        return found
                again = KINDS[fault.kind].sent_again
                if again is SentAgain.LANE_PAUSES:
                    await self._forget(work)
                    raise
                if again is SentAgain.NEVER:
                    return await self._refused(work, fault)
                no_room = fault.kind is FailureKind.RATE_LIMITED
                wait_s = await self._wait_again(work, fault, NO_ROOM_S if no_room else wait_s)

    async def _find_made(self, work: GroupWork, until_ms: int) -> str:
        """The id of the batch that the vendor made of it; empty: it surely made none, by that moment of the calendar.
        Asked once at least."""
        group = work.group
        work.waiting = f"looks for {group.tag} at {self._vendor}: it may have been made"
        wait_s = AGAIN_FIRST_S
        while True:
            found = await self._persist(
                work,
                lambda: self._api.find(group.tag, since_ms=group.kept_at_ms, rows=len(group.rows)),
                what=f"the list of batches at {self._vendor}",
            )
            for each in found:
                if each.certain or await self._is_ours(work, each.view):
                    return each.view.batch_id
            if self._clock.now_ms() >= until_ms:
                return ""
            await self._clock.sleep(wait_s)
            wait_s = min(FIND_MOST_S, wait_s * 1.5)

    async def _is_ours(self, work: GroupWork, view: BatchView) -> bool:
        """Of a vendor that keeps no tag: told by the rows it answers, once it does."""
        names = frozenset(work.ids)
        name = view.batch_id
        while not view.state.has_ended:
            await self._clock.sleep(LOOK_MOST_S)
            view = await self._persist(work, lambda: self._api.look(name), what=f"the state of {name}")
        lines = self._api.results(view)
        try:
            async for line in lines:
                return line.row_id in names
        finally:
            await lines.aclose()
        return False

    async def _name(self, work: GroupWork, vendor_batch_id: str) -> None:
        await self._kept(work, lambda: self._groups.name_group(work.group.tag, vendor_batch_id))
        work.group = msgspec.structs.replace(work.group, vendor_batch_id=vendor_batch_id)
        count = len(work.group.rows)
        rows = "1 row is" if count == 1 else f"{count:,} rows are"
        self._report(f"{rows} at {self._vendor} as {vendor_batch_id}")

    async def _refused(self, work: GroupWork, fault: BatchFault) -> End:
        await self._forget(work)
        if len(work.left()) > 1:
            return End.SPLIT
        for row in work.left():
            row.answer(Answer(kind=fault.kind, http_status=fault.http_status, code=fault.code, message=str(fault)))
        return End.ANSWERED

    async def _forget(self, work: GroupWork) -> None:
        """Nothing of it was done."""
        await self._kept(work, lambda: self._groups.drop_group(work.group.tag))

    # ---------------------------------------------------------------------------------------------------- to its end

    async def _follow(self, work: GroupWork) -> End:
        view = await self._ended(work)
        if view is None:
            return End.ANSWERED
        if not work.ours:
            await self._all_joined(work)
        if view.state is VendorBatchState.FAILED and view.kind is FailureKind.RATE_LIMITED:
            self._report(f"{view.batch_id}: {self._vendor} had no room for it; it is created again later")
            await self._wait(work, NO_ROOM_S, f"waits for room at {self._vendor}'s batch API (enqueued tokens)")
            await self._forget(work)
            return End.SENT_ANEW
        while left := work.left():
            undone = await self._read(work, view)
            if view.state is VendorBatchState.FAILED:
                return await self._failed(work, view)
            # A row that joined while it was read is not among these: it is read again for that one.
            for row in left:
                if view.state is VendorBatchState.COMPLETED and row not in undone:
                    row.answer(missing(view.batch_id))
                elif work.recalled:
                    row.answer(not_done(work.recalled))
                else:
                    row.answer(window_passed(view))
        return End.ANSWERED

    async def _all_joined(self, work: GroupWork) -> None:
        """Its rows come back one segment after the other: its results are read once they have come, or no more do."""
        joined = 0
        while joined < len(work.rows) < (len(work.group.rows) or math.inf):
            joined = len(work.rows)
            await self._clock.sleep(JOINS_S)

    async def _ended(self, work: GroupWork) -> BatchView | None:
        """The batch once it has ended. None: it is gone, or was called back and does not end; its rows have answers."""
        name = work.group.vendor_batch_id
        wait_s, changed_ms, mark = LOOK_FIRST_S, self._clock.now_ms(), None
        called_back_s = None
        missing_ms = 0
        while True:
            if work.recalled and called_back_s is None:
                called_back_s, wait_s = self._clock.now_s(), LOOK_FIRST_S
                await self.cancel(name)
            try:
                view = await self._api.look(name)
            except BatchFault as fault:
                if fault.kind is FailureKind.MISSING_FROM_UPSTREAM:
                    missing_ms = missing_ms or self._clock.now_ms()
                    if not work.group.tag or self._clock.now_ms() - missing_ms >= GONE_MS:
                        for row in work.left():
                            row.answer(gone(name, self._vendor, ours=bool(work.group.tag)))
                        return None
                if _is_over(called_back_s, self._clock.now_s()):
                    self._give_up(work)
                    return None
                wait_s = await self._wait_again(work, fault, wait_s)
                continue
            missing_ms = 0
            work.view = view
            work.waiting = _progress_text(self._vendor, view)
            if view.state.has_ended:
                return view
            if _is_over(called_back_s, self._clock.now_s()):
                self._give_up(work)
                return None
            seen = (view.state_text, view.succeeded, view.failed, view.progress_percent)
            now_ms = self._clock.now_ms()
            if seen != mark:
                mark, changed_ms = seen, now_ms
            elif now_ms - changed_ms >= STALE_MS:
                changed_ms = now_ms
                self._report(
                    f"{name} at {self._vendor} has been {view.state_text!r} for {STALE_MS // 3_600_000} hours without "
                    "any progress; still waiting. `batchwright cancel` ends it there too"
                )
            await self._sleep(work, wait_s)
            wait_s = min(LOOK_MOST_S if called_back_s is None else 5.0, wait_s * 1.5)

    def _give_up(self, work: GroupWork) -> None:
        """It was called back, and does not say what it has done: it may do, and bill, all of it."""
        for row in work.left():
            row.answer(
                Answer(
                    kind=FailureKind.TIMEOUT,
                    code="not_returned",
                    message=f"{work.group.vendor_batch_id} was cancelled ({work.recalled}) and did not say in time "
                    "what it has done; it may be billed",
                )
            )

    async def _read(self, work: GroupWork, view: BatchView) -> set[Row]:
        """Hands the answers over; returns the rows that the vendor says it never did."""
        reading = _Reading(frozenset(work.ids))
        wait_s = AGAIN_FIRST_S
        while True:
            lines = self._api.results(view)
            try:
                async for line in lines:
                    await self._take(work, line, reading)
                break
            except BatchFault as fault:
                wait_s = await self._wait_again(work, fault, wait_s)
                reading.problems.clear()
            finally:
                await lines.aclose()
        if strangers := reading.strangers:
            shown = ", ".join(sorted(strangers)[:3])
            self._report(f"{view.batch_id}: {len(strangers):,} of its lines name no row of ours ({shown})")
        if problems := reading.problems:
            self._report(f"{view.batch_id}: {len(problems):,} of its lines cannot be read; the first: {problems[0]}")
        return reading.undone

    async def _take(self, work: GroupWork, line: ResultLine, reading: _Reading) -> None:
        row = work.rows.get(line.row_id)
        if line.answer is None:
            reading.problems.append(f"{line.place}: {line.problem}")
        elif row is None:
            if line.row_id not in reading.names:
                reading.strangers.add(line.row_id)
        elif not line.done:
            reading.undone.add(row)
        elif row.on_end is not None:
            while not row.ask.has_room():
                await self._clock.sleep(LOOK_FOR_ROOM_S)
            row.answer(line.answer)

    async def _failed(self, work: GroupWork, view: BatchView) -> End:
        """The vendor refused it as a whole, or gave it up."""
        kind = view.kind or FailureKind.BAD_RESPONSE
        named = {error.line: error for error in view.errors if error.line}
        names = work.ids
        for line, error in named.items():
            row = work.rows.get(names[line - 1]) if line <= len(names) else None
            if row is not None:
                row.answer(
                    Answer(kind=kind, code=error.code, param=error.param, message=f"{view.batch_id}: {error.message}")
                )
        await self._forget(work)
        if named and work.left():
            return End.SENT_ANEW
        first = view.errors[0] if view.errors else None
        said = f"{first.code} {first.message}".strip() if first is not None else view.state_text
        if KINDS[kind].sent_again is SentAgain.LANE_PAUSES:
            raise BatchFault(f"{view.batch_id}: {said}", kind=kind, may_be_done=False)
        for row in work.left():
            row.answer(Answer(kind=kind, code=first.code if first else "", message=f"{view.batch_id}: {said}"))
        return End.ANSWERED

    # ------------------------------------------------------------------------------------------------------ patience

    async def _persist(self, work: GroupWork, ask: Callable[[], Awaitable[T]], *, what: str) -> T:
        wait_s = AGAIN_FIRST_S
        while True:
            try:
                return await ask()
            except BatchFault as fault:
                wait_s = await self._wait_again(work, fault, wait_s, what=what)

    async def _wait_again(self, work: GroupWork, fault: BatchFault, wait_s: float, *, what: str = "") -> float:
        if wait_s == AGAIN_FIRST_S:
            self._report(f"{what or work.group.vendor_batch_id or work.group.tag}: {fault}; tried again")
        await self._wait(work, max(wait_s, fault.retry_after_s), f"{self._vendor}'s batch API: {fault}")
        return min(AGAIN_MOST_S, wait_s * 2)

    async def _wait(self, work: GroupWork, seconds: float, why: str) -> None:
        work.waiting = why
        await self._sleep(work, seconds)

    async def _sleep(self, work: GroupWork, seconds: float) -> None:
        """Cut short where it is called back meanwhile."""
        if work.recalled:
            await self._clock.sleep(seconds)
            return
        called = asyncio.ensure_future(work.recall.wait())
        slept = asyncio.ensure_future(self._clock.sleep(seconds))
        try:
            await asyncio.wait((called, slept), return_when=asyncio.FIRST_COMPLETED)
        finally:
            called.cancel()
            slept.cancel()

    async def _kept(self, work: GroupWork, write: Callable[[], None]) -> None:
        """Returns once it is durable: a store that is away keeps rows waiting and ends none."""
        told = False
        while True:
            try:
                await self._thread.do(write)
            except StoreError as error:
                if not told:
                    self._report(f"{work.group.tag}: {error} Tried again every {AGAIN_FIRST_S:g} s")
                told, work.waiting = True, "waits for its group to be written down"
                await self._clock.sleep(AGAIN_FIRST_S)
            else:
                return


def _is_over(called_back_s: float | None, now_s: float) -> bool:
    return called_back_s is not None and now_s - called_back_s >= RECALL_PATIENCE_S


def _progress_text(vendor: str, view: BatchView) -> str:
    done = max(0, view.succeeded) + max(0, view.failed)
    of = f", {done:,} of {view.total:,}" if view.total > 0 else ""
    of = f", {view.progress_percent:.0f}%" if not of and view.progress_percent >= 0 else of
    return f"{view.batch_id} at {vendor} is {view.state_text}{of}"
