"""A rows file as one batch: plan -> submit -> work and watch -> export -> report. Knows `ports.batches` only."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, assert_never

import msgspec

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.batch_state import BatchState
from batchwright.core.gate import GateRule
from batchwright.core.identity import batch_identity
from batchwright.core.object_urls import object_url
from batchwright.ports.batches import BatchStatus, Submit
from batchwright.ports.clock import Chance
from batchwright.runner import plan
from batchwright.runner.compare import differences_texts
from batchwright.runner.deliver import check_delivery, check_objects, deliver
from batchwright.runner.drive import Driven, drive, watch
from batchwright.runner.figures import plural
from batchwright.runner.intake import TakeIn
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.law import InputCount
from batchwright.runner.outcome import (
    RunOutcome,
    left_open,
    not_finished_retry,
    nothing_sent,
    watched,
    with_word_of_export,
)
from batchwright.runner.plan import Plan, Step
from batchwright.runner.report import NOTHING_DONE
from batchwright.runner.request import Dedup, Delivery, Pace, Reuse, RunRequest
from batchwright.runner.same_way import going_the_same_way
from batchwright.runner.seams import HeldElsewhere, HeldLock, Seams
from batchwright.runner.source import Source, as_text, open_source
from batchwright.runner.unnamed import no_model_texts
from batchwright.runner.unused import short_routes_texts, unused_texts

if TYPE_CHECKING:
    from batchwright.runner.repeats import Repeats
    from batchwright.runner.reuse import KeptAnswers

PLAN_LOCK_LOOK_S = 0.2
LIVE_LOOKS, LIVE_LOOK_S = 4, 0.1
BATCH_ID_DIGITS = 24
"""24 hex digits are 96 bits: two batches never meet."""


async def run(request: RunRequest, seams: Seams, *, chance: Chance) -> RunOutcome:
    """One `batchwright run`, from the file to the file. Resumes, watches or only exports where that is what is left.

    A bad row, a pause, an interrupt and a full disk are outcomes. Raises InputRefused and UsageError before anything
    is sent, and StoreError or a bug of ours at any time: the batch then stays, and the same command goes on.
    """
    check_delivery(request.delivery, request.source)
    try:
        with seams.interrupts.at_once():
            check_objects(request.delivery, seams.objects)
            source = open_source(
                request.source, request.rows, skip_invalid=request.skip_invalid, objects=request.objects
            )
    except KeyboardInterrupt:
        return nothing_sent()
    with source:
        try:
            with seams.interrupts.at_once():
                _ = source.files_digest  # known from here on
        except KeyboardInterrupt:
            return nothing_sent()
        return await _Run(request, source, seams).go(chance)


async def go_on(batch_id: str, delivery: Delivery, pace: Pace, seams: Seams, *, opened: bool = False) -> RunOutcome:
    """Works on a durable batch until it ends and delivers it: what a run does after its plan, and `retry` in its new
    round. A batch whose output another run owes is only watched. `opened`: it was opened again just now."""
    lock = seams.locks.take(batch_id)
    if isinstance(lock, HeldElsewhere):
        seams.display.say(f"{lock.holder} is running {batch_id}; watching it. It writes the output, this does not.")
        return await watch_along(batch_id, delivery, pace, seams)
    return await _work(batch_id, _Task(delivery=delivery, pace=pace, lock=lock, opened=opened), seams)


async def watch_along(batch_id: str, delivery: Delivery, pace: Pace, seams: Seams) -> RunOutcome:
    """Watches a batch that another process runs. If that process dies before the batch ends, goes on in its place."""
    driven, lock = await watch(batch_id, seams, command=delivery.command, lock_name=batch_id)
    if lock is None:
        return await _seen(driven, delivery, seams)
    seams.display.say(f"The process that ran {batch_id} has ended; going on with it here.")
    return await _work(batch_id, _Task(delivery=delivery, pace=pace, lock=lock), seams)


async def look_on(batch_id: str, delivery: Delivery, seams: Seams) -> RunOutcome:
    """`watch`: shows a batch until it ends or pauses; sends and writes nothing."""
    seams.display.say(f"Watching {batch_id}.")
    driven, _ = await watch(batch_id, seams, command=delivery.command)
    return await _seen(driven, delivery, seams)


async def _seen(driven: Driven, delivery: Delivery, seams: Seams) -> RunOutcome:
    """A batch that was only looked at. Of one that has ended the report is that of its run, made of its rows."""
    if driven.status.terminal:
        seen = await deliver(driven.status, replace(delivery, nothing=True), driven.timing, seams)
        return with_word_of_export(seen, delivery, wrote=False)
    return watched(driven, delivery)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What is to be done with a batch, and the lock that makes it ours to do."""

    delivery: Delivery
    pace: Pace
    lock: HeldLock
    read: InputCount | None = None
    """What reading the input counted, where this command read it."""
    opened: bool = False
    """This command has opened the batch again."""


async def _work(batch_id: str, task: _Task, seams: Seams) -> RunOutcome:
    try:
        driven = await drive(batch_id, task.pace, seams, opened=task.opened)
        if driven.status.terminal:
            delivered = await deliver(driven.status, task.delivery, driven.timing, seams, read=task.read)
            return with_word_of_export(delivered, task.delivery)
        # Our own hold on it does not make it one that is worked on: asked once that is gone.
        task.lock.release()
        live = await _is_gone_on_with(batch_id, seams)
        return left_open(replace(driven, status=replace(driven.status, live=live)), task.delivery)
    finally:
        task.lock.release()


async def _is_gone_on_with(batch_id: str, seams: Seams) -> bool | None:
    """Whether another worker has what ours gave back: an idle one takes it within LIVE_LOOKS. None: not known."""
    for _ in range(LIVE_LOOKS):
        status = await seams.batches.status(batch_id)
        if status.live is not False or status.terminal or status.state is BatchState.PAUSED:
            return status.live
        await seams.clock.sleep(LIVE_LOOK_S)
    return False


class _Run:
    """One run's request, source and seams on their way along the line."""

    def __init__(self, request: RunRequest, source: Source, seams: Seams) -> None:
        self._request, self._source, self._seams = request, source, seams
        self._options = plan.identity_options(request.rows, source.files_digest)
        if request.dedup is not Dedup.OFF:  # it says which rows are asked at all
            self._options["--dedup"] = request.dedup.value
        self._path = _path_of(request.source)
        self._identity = batch_identity(source.input_digest, self._options)
        self._read: InputCount | None = None
        self._lock: HeldLock | None = None
        """The batch's, once it is ours to run."""

    async def go(self, chance: Chance) -> RunOutcome:
        plan_lock = await self._take_plan_lock()
        if plan_lock is None:
            return nothing_sent()
        try:
            chosen = await self._plan()
            batch_id = chosen.batch.batch_id if chosen.batch is not None else ""
            told: list[str] = []
            if chosen.step is Step.START:
                # First of all: an input that is refused begins nothing, and nothing is sent yet.
                batch_id, told = await self._start(chance)
            for text in (*chosen.says, *told):
                self._seams.display.say(text)
        except Interrupted:
            return nothing_sent()
        finally:
            # The batch's own lock was taken before this one is released: whoever waits for this one finds us there.
            plan_lock.release()
        try:
            return await self._carry_out(chosen, batch_id)
        finally:
            self._release()

    async def _take_plan_lock(self) -> HeldLock | None:
        """Held from looking for an earlier batch until the new one is durable. None: interrupted while waiting."""
        told = False
        while True:
            lock = self._seams.locks.take(f"plan-{self._identity}")
            if not isinstance(lock, HeldElsewhere):
                return lock
            if not told:
                told = True
                self._seams.display.say(f"{lock.holder} is taking this input in; waiting for it.")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._seams.interrupts.wait(0), PLAN_LOCK_LOOK_S)
            if self._seams.interrupts.count:
                return None

    async def _plan(self) -> Plan:
        same = await self._seams.batches.find(identity=self._identity)
        batch = plan.newest_that_counts(await self._going_the_same_way(same))
        holder = ""
        if batch is not None and not batch.terminal and not self._request.fresh:
            lock = self._seams.locks.take(batch.batch_id)
            if isinstance(lock, HeldElsewhere):
                holder = lock.holder
            else:
                self._lock = lock
        chosen = plan.decide(self._request, batch, holder)
        if batch is None:
            texts = await differences_texts(self._request, self._source, self._options, self._seams.batches, self._path)
            return Plan(step=chosen.step, says=texts)
        return chosen

    async def _going_the_same_way(self, same: Sequence[BatchStatus]) -> list[BatchStatus]:
        def stopped() -> bool:
            return self._seams.interrupts.count > 0

        now = self._request.rows.directions
        return await asyncio.to_thread(going_the_same_way, same, now, self._source, stopped)

    async def _start(self, chance: Chance) -> tuple[str, list[str]]:
        """Takes the input in as a new batch: its id, and what was taken in, in words. Raises InputRefused or
        Interrupted; nothing of it is kept then."""
        batch_id = f"batch_{chance.hex_id(BATCH_ID_DIGITS)}"
        lock = self._seams.locks.take(batch_id)
        assert not isinstance(lock, HeldElsewhere), "a fresh id that another process knows"
        self._lock = lock
        try:
            with self._kept_answers() as kept, self._repeats() as repeats:
                if kept is not None:
                    await kept.find(self._path)
                taking = TakeIn(
                    self._source, self._seams, unset_keys=self._request.unset_keys, kept=kept, repeats=repeats
                )
                spec = self._spec() if kept is None else msgspec.structs.replace(self._spec(), kept=kept.kept)
                submit = Submit(batch_id=batch_id, spec=spec, deadline_s=self._request.deadline_s)
                submitted = await self._seams.batches.submit(submit, taking.rows())
        except BaseException:
            self._release()
            raise
        self._read = taking.counted()
        refused = f", {plural(taking.refused, 'of them refused', 'of them refused')}" if taking.refused else ""
        told = f"{batch_id}: {plural(submitted.status.total, 'row')} taken in{refused}."
        destinations = self._request.rows.destinations
        unused = unused_texts(taking.vendors, destinations, self._request.asked_for)
        unused += short_routes_texts(taking.vendors, self._request.rows.directions)
        reused = kept.texts if kept is not None else []
        if repeats is not None:
            reused = [*reused, f"{plural(repeats.rows, 'row')} of them share the answer of an earlier one."]
        notes = [*self._source.left_out.texts(self._source.rows), *self._source.notes]
        return batch_id, [told, *reused, *notes, *no_model_texts(taking.unnamed, destinations), *unused]

    def _kept_answers(self) -> AbstractContextManager[KeptAnswers | None]:
        reuse = self._request.reuse
        if reuse == Reuse():
            return contextlib.nullcontext()
        from batchwright.runner.reuse import KeptAnswers  # with SQLite, which nobody else needs here

        rows = self._request.rows
        return KeptAnswers(self._source, rows.directions, reuse, self._seams, rows.answers)

    def _repeats(self) -> AbstractContextManager[Repeats | None]:
        dedup = self._request.dedup
        if dedup is Dedup.OFF:
            return contextlib.nullcontext()
        from batchwright.runner.repeats import Repeats

        return Repeats(self._request.rows.directions, forced=dedup is Dedup.SAMPLES)

    def _spec(self) -> BatchSpec:
        request = self._request
        return BatchSpec(
            name=self._source.name,
            source=self._path,
            identity=self._identity,
            input_digest=self._source.input_digest,
            options=self._options,
            destinations=request.rows.destinations,
            routes=request.rows.routes,
            max_attempts=request.max_attempts,
            on_uncertain=request.on_uncertain,
            gate=GateRule(request.on_gate) if request.gate else GateRule.OFF,
            stop_after=request.stop_after,
            max_cost_picousd=request.max_cost_picousd,
            soft_cap=request.max_cost_picousd >= 0 and request.allow_unpriced,
            concurrency=request.pace.concurrency,
            rpm=request.pace.rpm,
            tpm=request.pace.tpm,
            timeout_s=request.pace.timeout_s,
            group_prefix=request.group_prefix,
            dedup=request.dedup is not Dedup.OFF,
            metadata=request.metadata,
            csv_columns=self._source.columns,
            csv_delimiter=self._source.delimiter,
            csv_mark=self._source.marked,
            answers=request.rows.answers,
            arrow_schema=self._source.arrow_schema,
            mixed_endpoints=request.rows.mixed_endpoints,
        )

    async def _carry_out(self, chosen: Plan, batch_id: str) -> RunOutcome:
        request, seams = self._request, self._seams
        match chosen.step:
            case Step.START | Step.GO_ON:
                assert self._lock is not None, "a batch is worked on under its lock"
                if chosen.resume:
                    await seams.batches.resume(
                        batch_id,
                        max_cost_picousd=chosen.max_cost_picousd,
                        keys_of=chosen.keys_of,
                        past_gate=chosen.past_gate,
                    )
                task = _Task(delivery=request.delivery, pace=request.pace, lock=self._lock, read=self._read)
                return await _work(batch_id, task, seams)
            case Step.WATCH:
                return await watch_along(batch_id, request.delivery, request.pace, seams)
            case Step.DELIVER:
                status = await seams.batches.status(batch_id)
                return await deliver(status, request.delivery, NOTHING_DONE, seams)
            case Step.STAY_PAUSED:
                status = await seams.batches.status(batch_id)
                return left_open(Driven(status=status, timing=NOTHING_DONE), request.delivery)
            case Step.FINISH_RETRY:
                return not_finished_retry(batch_id)
            case _:
                assert_never(chosen.step)

    def _release(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None


def _path_of(source: str | Path | Iterable[object]) -> str:
    """Absolute, or the URL of an object; empty for what has no path."""
    if (url := object_url(source)) is not None:
        return str(url)
    if isinstance(source, str | Path) and str(source) != "-":
        return as_text(Path(source).resolve())
    return ""
