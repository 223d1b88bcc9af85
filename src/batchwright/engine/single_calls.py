"""Single calls over a worker's own desks: implements `ports.calls.Calls`.

A call takes a place in its lane as a row does, but before the rows (`Sender.pump`), and is sent once. Nothing of it is
durable but its usage, which is written before its answer is given (`UsageBook`): a commit of some milliseconds, shared
with whatever other calls end meanwhile, beside an answer that took the vendor half a second. So a crash loses no call
that anybody saw the end of.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from batchwright.core.batch_spec import Destination, Routes
from batchwright.core.errors import BatchwrightError, CreditSpent
from batchwright.core.failures import FailureKind
from batchwright.core.lanes import LaneEnd
from batchwright.core.money import usd_text
from batchwright.core.records import UsageKey, UsageSum
from batchwright.core.routes import find_route
from batchwright.core.tenants import Tenant
from batchwright.engine.booking import money_of, tell_lane, usage_of
from batchwright.engine.credit import check_credit
from batchwright.engine.desk import LaneDesk
from batchwright.engine.one_call import Call
from batchwright.engine.sender import bound_here, likely_cost
from batchwright.engine.usage_book import UsageBook
from batchwright.ports.calls import CallRefused, CallReply
from batchwright.ports.keys import KeyCredit, Keys
from batchwright.ports.vendor import Answer
from batchwright.wire.row_targets import Targets
from batchwright.wire.single_call import BadCall, CallFacts, read_call, with_model

if TYPE_CHECKING:
    from batchwright.engine.worker import Worker

WAIT_S = 600.0
"""How long a call waits for room at most, where its lane has no time limit: as long as the SDKs wait by themselves."""
WAITING_MAX = 1_000
"""Calls that wait at one desk; more would wait in vain."""
WAITING_BYTES_MAX = 64 * 1024 * 1024
"""Bodies of calls that wait, at all desks together."""
DESKS_MAX = 1_000
"""From so many lanes on those with nothing to do are let go: a caller may name any model."""


Offered = tuple[Sequence[Destination], str, Routes]
"""Where calls can go, in order of preference; the model of those that name none (empty: they are refused); routes."""


class SingleCalls:
    def __init__(self, worker: Worker, offers: Callable[[], Offered]) -> None:
        """`offers` is asked anew for each call. To be made before the worker runs, and used on its loop."""
        parts = worker.parts
        self._worker = worker
        self._offers = offers
        self._taken = 0
        self._clock = parts.clock
        self._book = UsageBook(
            parts.store, writer=parts.writer, clock=parts.clock, worker=worker.identity, report=parts.report
        )
        self._calls: set[Call] = set()
        """Waiting or out."""
        self._ending: set[asyncio.Task[None]] = set()
        self._waiting_bytes = 0
        worker.calls = self

    @property
    def busy(self) -> bool:
        return bool(self._calls or self._ending)

    async def send(self, tenant: Tenant, endpoint: str, body: bytes) -> CallReply:
        try:
            facts, credit = await asyncio.to_thread(self._look_at, tenant.key_id, endpoint, body)
        except BadCall as error:
            raise CallRefused(str(error), code=error.code, http_status=400, param=error.param) from None
        desk, model = self._find_desk(facts.model)
        if model != facts.model:
            body = with_model(body, model)
        call = Call(self, desk, tenant, endpoint, body, stream=facts.stream, output_tokens=facts.output_tokens)
        await self._draw(call, credit)
        try:
            self._take_in(call)
        except CallRefused:
            await self.count(call, None)
            raise
        try:
            return await call.answered
        except asyncio.CancelledError:
            call.leave()
            raise

    # ------------------------------------------------------------------------------------------------- for the worker

    def stop(self, *, late: bool) -> None:
        """The worker ends: what waits is refused; `late`: what is out is dropped too."""
        for call in list(self._calls):
            if not call.is_out:
                call.desk.callers.remove(call)
                call.fail(_ending())
            elif late:
                call.drop(_ending())

    async def flush(self) -> None:
        """Makes durable what an earlier commit could not."""
        await self._book.flush()

    # ------------------------------------------------------------------------------------------------- for calls

    def started(self, call: Call) -> None:
        self._waiting_bytes -= call.size

    def gave_up(self, call: Call) -> None:
        """It waits no more, and was not sent."""
        self._calls.discard(call)
        self._waiting_bytes -= call.size
        self.spawn(self.count(call, None))
        self._worker.wake()

    def ended(self, call: Call, answer: Answer) -> UsageSum | None:
        """The lane learns how it ended, and whoever waits there goes on. What is to be counted; None: nothing."""
        desk = call.desk
        desk.answered += 1
        if answer.kind is None:
            desk.successes += 1
            desk.newest_success_s = max(desk.newest_success_s, call.started_s)
        money = money_of(desk, answer)
        if answer.kind is None or money[0]:
            desk.dearest.note(money[0])
        if call.begun and money == (0, 0, 0) and usage_of(answer, money) is None:
            money = (0, 0, 1)  # it broke off: what came was made, and may be billed
        tell_lane(
            desk,
            answer,
            tokens=call.tokens,
            started_s=call.started_s,
            now_s=self._clock.now_s(),
            chance=self._worker.parts.chance.random(),
        )
        self._worker.parts.figures.attempt_ended(*_names(desk), answer.kind.value if answer.kind is not None else "")
        self._go_on(call)
        return usage_of(answer, money)

    def dropped(self, call: Call) -> UsageSum | None:
        """It was ended from this side. That says nothing of the lane, unless an answer had begun; and the vendor has
        counted it among its requests."""
        kind = None if call.begun else FailureKind.INTERNAL
        end = LaneEnd(kind=kind, success=call.begun, tokens_reserved=call.tokens, sent_s=call.started_s)
        call.desk.lane.ended(self._clock.now_s(), end, 0.0)
        if call.begun:
            self._worker.parts.figures.attempt_ended(*_names(call.desk), "")
        self._go_on(call)
        return UsageSum(answers=1, no_usage=1) if call.begun else None

    async def count(self, call: Call, spent: UsageSum | None) -> None:
        """What it used, and that it holds nothing of its key's budget any more. None: it used nothing."""
        held_picousd, call.held_picousd = call.held_picousd, 0
        if spent is None:
            if held_picousd:
                await self._book.release(call.tenant.key_id, held_picousd)
            return
        parts, desk = self._worker.parts, call.desk
        day = parts.day_of(self._clock.now_ms())
        key = UsageKey(day, desk.destination.key_env, desk.key.model, desk.answered_by, *call.tenant, call.endpoint)
        await self._book.count(key, spent, released_picousd=held_picousd)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Something that outlives the call's callback, and that the worker's end waits for."""
        task = asyncio.create_task(work, name="end of a call")
        self._ending.add(task)
        task.add_done_callback(self._has_ended)

    def refusal(self, desk: LaneDesk, wait_s: float) -> CallRefused:
        """Why nothing can be sent there now."""
        now_s = self._clock.now_s()
        name = desk.key.vendor
        if desk.lacks:
            what = f"Nothing can be sent to {name}: {desk.lacks}."
            return CallRefused(what, code="vendor_auth", http_status=503)
        if desk.quarantine is not None:
            return CallRefused(f"{name}: {desk.quarantine.sentence}.", code="vendor_paused", http_status=503)
        if desk.lane.paused_reason:
            first = desk.lane.paused_reason.split(" ", 1)[0]
            code = f"vendor_{first if first in _KINDS else 'paused'}"
            wait_s = min(max(1.0, desk.probe_at_s - now_s), self._worker.settings.lane_probe_s)
            said = f"Nothing is sent to {name} until a person acts: {desk.lane.paused_reason}"
            return CallRefused(said, code=code, http_status=503, retry_after_s=wait_s)
        said = f"Nothing is sent to {name} now: {desk.lane.waiting(now_s)}"
        return CallRefused(
            said, code="vendor_down", http_status=503, retry_after_s=max(1.0, wait_s) if wait_s < math.inf else 1.0
        )

    # ----------------------------------------------------------------------------------------------------- inside

    def _look_at(self, key_id: str, endpoint: str, body: bytes) -> tuple[CallFacts, KeyCredit | None]:
        """In a thread: it reads the store, and a body may be large. Raises BadCall, CreditSpent."""
        credit = check_credit(self._worker.parts.store, key_id)
        return read_call(body, endpoint), credit

    async def _draw(self, call: Call, credit: KeyCredit | None) -> None:
        """Under a key with a budget: what the call can cost is drawn before it is sent, as for a row. Raises
        CallRefused where that is held for others, CreditSpent where there is not so much of it."""
        parts, key_id = self._worker.parts, call.tenant.key_id
        bound_picousd = bound_here(call.desk, call.size, call.output_tokens)
        if credit is None or credit.budget_picousd < 0 or bound_picousd == 0:
            return
        if bound_picousd is not None:
            picousd = least_picousd = bound_picousd
        else:
            picousd, least_picousd = likely_cost(call.desk, call.size, call.output_tokens), 1
            if call.desk.price is None and call.desk.dearest.is_new:
                picousd = credit.budget_picousd  # all that is left: until it is answered nobody knows anything

        def hold() -> int:
            return parts.store.hold_credit(self._worker.identity, key_id, picousd, least_picousd)

        drawing = asyncio.ensure_future(parts.writer.do(hold))
        try:
            call.held_picousd = await asyncio.shield(drawing)
        except asyncio.CancelledError:
            self.spawn(self._undo(drawing, key_id))
            raise
        if not call.held_picousd:
            await asyncio.to_thread(_refuse, parts.store, key_id, least_picousd)

    async def _undo(self, drawing: asyncio.Future[int], key_id: str) -> None:
        """Whoever asked has gone meanwhile."""
        with suppress(BatchwrightError):
            await self._book.release(key_id, await drawing)

    def _find_desk(self, name: str) -> tuple[LaneDesk, str]:
        """The desk where calls of this model name are sent, and the model as the vendor gets it: the choice of its
        route whose turn it is or, where that one stands still, the first that does not."""
        destinations, default, routes = self._offers()
        name = name or default
        if not name:
            said = "The body names no model; expected the field `model`."
            raise CallRefused(said, code="missing_required_parameter", http_status=400, param="model")
        route = find_route(name, destinations, routes)
        if route is None or route.problem:
            said = Targets(destinations, routes).unroutable(name).message
            raise CallRefused(said, code="model_not_found", http_status=404, param="model")
        self._taken += 1
        floor, now_s = self._worker.floor, self._clock.now_s()
        if len(floor.desks) >= DESKS_MAX:
            floor.drop_idle_desks()
        turn = route.begins_with(self._taken)
        choices = [(turn, floor.desk_at(turn.lane, turn.destination, now_s))]
        if len(route.steps) > 1:
            others = (step for step in route.steps if step is not turn)
            choices += [(step, floor.desk_at(step.lane, step.destination, now_s)) for step in others]
        step, desk = next((choice for choice in choices if not _stands_still(choice[1], now_s)), choices[0])
        return desk, step.model

    def _take_in(self, call: Call) -> None:
        """Raises CallRefused where it would wait in vain."""
        worker, desk = self._worker, call.desk
        if worker.stopping or worker.ended:
            raise _ending()
        if len(desk.callers) >= WAITING_MAX or self._waiting_bytes + call.size > WAITING_BYTES_MAX:
            said = f"{len(desk.callers):,} calls wait for {desk.key.vendor} already; more would wait in vain."
            raise CallRefused(said, code="rate_limit_exceeded", http_status=429, retry_after_s=1.0)
        now_s = self._clock.now_s()
        if not desk.lane.has_share(now_s):
            worker.heart.beat_early()
        desk.called_s = now_s
        self._calls.add(call)
        self._waiting_bytes += call.size
        desk.callers.append(call)
        if desk.vendor is None and not desk.opening and not desk.blocked:
            worker.opening.open(desk)
        worker.sender.pump(desk, now_s)
        if not call.is_out and not call.answered.done():
            call.wait_at_most(desk.limits.timeout_s or WAIT_S)

    def _go_on(self, call: Call) -> None:
        self._calls.discard(call)
        self._worker.sender.pump(call.desk, self._clock.now_s())
        self._worker.wake()

    def _has_ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self._worker.wake()


_KINDS = frozenset(kind.value for kind in FailureKind)


def _names(desk: LaneDesk) -> tuple[str, str]:
    return desk.answered_by, desk.key.model


def _stands_still(desk: LaneDesk, now_s: float) -> bool:
    return bool(desk.blocked) or desk.lane.stands_still(now_s)


def _refuse(keys: Keys, key_id: str, least_picousd: int) -> None:
    """Raises CreditSpent, or CallRefused where there may be room once what is out under the key has ended."""
    credit = check_credit(keys, key_id)
    needs = f"this call may cost ${usd_text(least_picousd)}"
    if credit is None or credit.holds_back(least_picousd):
        said = f"What the budget of the key leaves is held for what is out under it, and {needs}; ask again."
        raise CallRefused(said, code="rate_limit_exceeded", http_status=429, retry_after_s=1.0)
    left = usd_text(credit.budget_picousd - credit.spent_picousd)
    raise CreditSpent(
        f"The budget of the key {credit.shown}... leaves ${left}, and {needs}: a lower bound on its answer costs less. "
        f"`batchwright keys budget {key_id} USD` gives it more."
    )


def _ending() -> CallRefused:
    return CallRefused("The service is about to end.", code="service_ending", http_status=503, retry_after_s=1.0)
