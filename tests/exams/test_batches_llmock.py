"""Batch adapters against somebody else's idea of the vendors: llmock, a mock server that is not ours."""

from __future__ import annotations

import asyncio

import pytest
from llmock.pytest_plugin import LLMock
from llmock.routers import batch as llmock_batches

from batchwright.core.batch_spec import VendorProtocol
from batchwright.ports.vendor_batches import BatchView, ResultLine, VendorBatches, VendorBatchState
from support.batch_drive import TAG, batches_at, lines, order, read


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch there is done when it is next looked at."""
    monkeypatch.setattr(llmock_batches, "_BATCH_DELAY", 0.0)


def there_and_back(
    base_url: str, profile: str, protocol: VendorProtocol = VendorProtocol.OPENAI
) -> tuple[BatchView, list[ResultLine]]:
    async def steps(batches: VendorBatches) -> tuple[BatchView, list[ResultLine]]:
        created = await batches.create(lines("one", "two", max_tokens=500), order())
        view = await batches.look(created.batch_id)
        found = await read(batches, view)
        (again, *_) = await batches.find(TAG, since_ms=0, rows=2)
        assert again.view.batch_id == created.batch_id
        await batches.cancel(created.batch_id)
        return view, found

    async def run() -> tuple[BatchView, list[ResultLine]]:
        async with batches_at(base_url, profile=profile, protocol=protocol) as batches:
            return await steps(batches)

    return asyncio.run(run())


def test_files_go_there_and_back(llmock: LLMock) -> None:
    view, found = there_and_back(llmock.base_url("openai"), "openai")
    assert (view.state, view.total, view.succeeded, view.failed) == (VendorBatchState.COMPLETED, 2, 2, 0)
    assert [(line.row_id, line.answer and line.answer.kind) for line in found] == [("r0", None), ("r1", None)]
    assert found[0].answer is not None
    assert found[0].answer.completion_tokens > 0


def test_message_batches_go_there_and_back(llmock: LLMock) -> None:
    view, found = there_and_back(llmock.base_url("anthropic"), "", VendorProtocol.ANTHROPIC)
    assert (view.state, view.total, view.succeeded, view.failed) == (VendorBatchState.COMPLETED, 2, 2, 0)
    assert [(line.row_id, line.answer and line.answer.kind) for line in found] == [("r0", None), ("r1", None)]
    assert found[0].answer is not None
    assert found[0].answer.completion_tokens > 0


def test_jobs_go_there_and_back(llmock: LLMock) -> None:
    view, found = there_and_back(llmock.base_url("mistral"), "mistral")
    assert (view.state, view.total, view.succeeded, view.failed) == (VendorBatchState.COMPLETED, 2, 2, 0)
    assert [(line.row_id, line.answer and line.answer.kind) for line in found] == [("r0", None), ("r1", None)]
