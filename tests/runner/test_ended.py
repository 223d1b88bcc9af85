"""A worker tells of the batches that ended beside it, once, and how their answers are written."""

from __future__ import annotations

import asyncio

from batchwright.core.failures import FailureKind
from batchwright.core.records import InputRow
from batchwright.core.rows import SourceRow
from batchwright.ports.batches import Submit
from batchwright.runner.ended import EndedBatches
from support.batch_samples import spec_of
from support.memory_batches import MemoryBatches
from support.runner_parts import echo, refused


async def submit(batches: MemoryBatches, batch_id: str) -> None:
    rows = [SourceRow(row=InputRow(body=b"{}"), lane="acme||m") for _ in range(3)]
    await batches.submit(Submit(batch_id=batch_id, spec=spec_of()), [rows])


async def look() -> list[list[str]]:
    batches = MemoryBatches()
    ended = EndedBatches(batches)
    await submit(batches, "batch_before")
    batches.batches["batch_before"].close(FailureKind.CANCELLED)
    await submit(batches, "batch_mine")
    looks = [await ended.texts()]
    mine = batches.batches["batch_mine"]
    for row in (0, 1):
        mine.end(row, echo(row, mine.rows[row]))
    looks.append(await ended.texts())
    mine.end(2, refused(2))
    looks += [await ended.texts(), await ended.texts()]
    return looks


def test_a_batch_that_ends_is_told_of_once_with_the_command_that_writes_it() -> None:
    before, during, after, later = asyncio.run(look())
    assert before == during == later == []
    (text,) = after
    assert "batch_mine has ended: 2 ok, 1 failed." in text
    assert text.endswith("batchwright export batch_mine -o FILE")
