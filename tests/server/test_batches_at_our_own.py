"""Our own service as the vendor of another batch: its files and batches, by the adapter for them, over real HTTP."""

from __future__ import annotations

import pytest

from batchwright.core.failures import FailureKind
from batchwright.ports.vendor_batches import (
    BatchFault,
    BatchView,
    CreatedBatch,
    ResultLine,
    VendorBatches,
    VendorBatchState,
)
from support.batch_drive import TAG, drive, lines, order, read
from support.scripted_vendor import ScriptedVendor
from support.service import RunningService

HOUR_S = 3600


def at(service: RunningService, steps: object) -> object:
    return drive(f"{service.base_url}/v1", steps, profile="batchwright", key=service.key)  # type: ignore[arg-type]


def made(service: RunningService, *words: str) -> CreatedBatch:
    async def steps(batches: VendorBatches) -> CreatedBatch:
        return await batches.create(lines(*words), order(window_s=HOUR_S))

    created = at(service, steps)
    assert isinstance(created, CreatedBatch)
    return created


def test_there_and_back(scripted: RunningService) -> None:
    created = made(scripted, "one", "two", "[[status=400 code=invalid_prompt]]")
    scripted.ended(created.batch_id)

    async def steps(batches: VendorBatches) -> tuple[BatchView, list[ResultLine]]:
        view = await batches.look(created.batch_id)
        found = await read(batches, view)
        await batches.cancel(created.batch_id)
        await batches.delete_files([view.output_ref, view.error_ref, created.file_id, created.file_id])
        assert await batches.files(since_ms=0) == ()
        return view, found

    told = at(scripted, steps)
    assert isinstance(told, tuple)
    view, found = told
    assert (view.state, view.tag, view.total, view.succeeded, view.failed) == (
        VendorBatchState.COMPLETED,
        TAG,
        3,
        2,
        1,
    )
    assert [(line.row_id, line.answer.kind, line.answer.code) for line in found] == [
        ("r0", None, ""),
        ("r1", None, ""),
        ("r2", FailureKind.INVALID_REQUEST, "invalid_prompt"),
    ]
    assert found[0].answer.prompt_tokens > 0


def test_a_tag_that_was_used_makes_no_second_batch(scripted: RunningService) -> None:
    """It is the call's idempotency key: another file under it is refused, and the first batch is found."""
    created = made(scripted, "one")

    async def steps(batches: VendorBatches) -> list[str]:
        with pytest.raises(BatchFault, match="was used for another request") as raised:
            await batches.create(lines("one"), order(window_s=HOUR_S))
        assert (raised.value.http_status, raised.value.may_be_done) == (409, True)
        return [found.view.batch_id for found in await batches.find(TAG, since_ms=0, rows=1)]

    assert at(scripted, steps) == [created.batch_id]


def test_what_the_service_cancels_may_have_been_sent(scripted: RunningService, vendor: ScriptedVendor) -> None:
    vendor.set(hold=True)
    created = made(scripted, *(f"w{number}" for number in range(60)))
    vendor.wait_for(lambda vendor: bool(vendor.hits))

    async def cancel(batches: VendorBatches) -> None:
        await batches.cancel(created.batch_id)

    at(scripted, cancel)
    scripted.ended(created.batch_id)

    async def steps(batches: VendorBatches) -> list[ResultLine]:
        return await read(batches, await batches.look(created.batch_id))

    found = at(scripted, steps)
    assert isinstance(found, list)
    assert len(found) == 60
    assert {line.answer.kind for line in found} == {FailureKind.CANCELLED}
    assert all(line.done for line in found)


def test_a_key_that_is_refused(scripted: RunningService) -> None:
    with pytest.raises(BatchFault) as raised:
        drive(f"{scripted.base_url}/v1", lambda batches: batches.look("batch_1"), profile="batchwright", key="bw_wrong")
    assert raised.value.kind is FailureKind.AUTH
