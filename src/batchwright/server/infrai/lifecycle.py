"""What can be asked of a batch that is there: cancel, pause, resume, priority, retry, delete.

Each answers with the batch's status as it is afterwards. What the state does not allow is 409 WRONG_STATE, and says
which state it is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from starlette.responses import Response

from batchwright.core.batch_state import BatchState
from batchwright.core.errors import WrongState
from batchwright.ports.batches import BatchStatus, Selector
from batchwright.server.asking import Ask
from batchwright.server.bodies import read_json
from batchwright.server.faults import Fault, of_bad_body
from batchwright.server.infrai.retry_new import retry_as_new
from batchwright.server.infrai.status_view import view_for
from batchwright.server.infrai.submit import TIMEOUT_S
from batchwright.wire.bad_body import BadBody
from batchwright.wire.infrai_calls import (
    RetryAs,
    RetryCall,
    read_nothing,
    read_pause,
    read_priority,
    read_resume,
    read_retry,
)

SMALL_BYTES = 64 * 1024
"""Of a body that holds a few options."""

T = TypeVar("T")


async def cancel(ask: Ask) -> Response:
    """Harmless when asked twice, also of a batch that was cancelled before."""
    batch_id = ask.batch_id()
    await _read(ask, read_nothing)
    return _answer(ask, await _allowed(ask, batch_id, ("cancelled", ask.batches.cancel(batch_id))))


async def pause(ask: Ask) -> Response:
    """Nothing more is sent until a resume; what is out finishes. The deadline goes on."""
    batch_id = ask.batch_id()
    reason = await _read(ask, read_pause)
    await _refuse_ending(ask, batch_id, "paused")
    return _answer(ask, await _allowed(ask, batch_id, ("paused", ask.batches.pause(batch_id, reason))))


async def resume(ask: Ask) -> Response:
    """Clears every pause, whoever made it; harmless for a batch that has none."""
    batch_id = ask.batch_id()
    cap = await _read(ask, read_resume)
    await _refuse_ending(ask, batch_id, "resumed")
    resumed = ask.batches.resume(batch_id, max_cost_picousd=cap)
    return _answer(ask, await _allowed(ask, batch_id, ("resumed", resumed)))


async def prioritise(ask: Ask) -> Response:
    """Before others of the key's account; harmless when asked twice."""
    batch_id = ask.batch_id()
    priority = await _read(ask, read_priority)
    moved = ask.batches.prioritise(batch_id, priority)
    return _answer(ask, await _allowed(ask, batch_id, ("moved before others", moved)))


async def retry(ask: Ask) -> Response:
    batch_id = ask.batch_id()
    call = await _read(ask, read_retry)
    status = await ask.batches.status(batch_id)
    if call.round not in (-1, status.round):
        raise Fault(
            "WRONG_STATE",
            f"{batch_id} is {status.state.value} in round {status.round}; the call names round {call.round}.",
            param="round",
        )
    if not status.terminal:
        raise _wrong_state(status, "retried")
    if call.how is RetryAs.NEW:
        return await retry_as_new(ask, status, call)
    return await _retry_in_place(ask, batch_id, call)


async def delete(ask: Ask) -> Response:
    """For good, with its rows and results; what was used stays in the account's usage."""
    batch_id = ask.batch_id()
    await _read(ask, read_nothing)
    await _allowed(ask, batch_id, ("deleted", ask.batches.delete(batch_id)))
    return ask.answer({"batch_id": batch_id, "deleted": True})


async def _retry_in_place(ask: Ask, batch_id: str, call: RetryCall) -> Response:
    begun = ask.batches.retry(
        batch_id,
        Selector(kinds=call.kinds, flags=call.flags),
        deadline_s=call.timeout_s or TIMEOUT_S,
        gate=call.gate,
    )
    rows = await _allowed(ask, batch_id, ("retried", begun))
    return _answer(ask, await ask.batches.status(batch_id), retried_count=rows)


async def _read(ask: Ask, reader: Callable[[bytes], T]) -> T:
    body = await read_json(ask.request, SMALL_BYTES)
    try:
        return reader(body)
    except BadBody as error:
        raise of_bad_body(error) from None


async def _allowed(ask: Ask, batch_id: str, what: tuple[str, Awaitable[T]]) -> T:
    """`what` is (a participle, the call): WrongState is told with the state that the batch is in."""
    participle, call = what
    try:
        return await call
    except WrongState:
        raise _wrong_state(await ask.batches.status(batch_id), participle) from None


async def _refuse_ending(ask: Ask, batch_id: str, participle: str) -> None:
    status = await ask.batches.status(batch_id)
    if status.terminal or status.state is BatchState.CANCELLING:
        raise _wrong_state(status, participle)


def _wrong_state(status: BatchStatus, participle: str) -> Fault:
    if status.terminal:
        hint = "It has ended; POST retry begins a new round of it."
    else:
        hint = "It has not ended; POST cancel ends it, GET status with wait waits for its end."
    return Fault("WRONG_STATE", f"{status.batch_id} is {status.state.value} and cannot be {participle}.", hint=hint)


def _answer(ask: Ask, status: BatchStatus, **more: object) -> Response:
    return ask.answer(view_for(ask.service, status) | more)
