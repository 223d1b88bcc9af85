"""The rows of a batch as a file, over batches in memory: what is read of a batch that changes on the way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec
from batchwright.core.errors import NoSuchBatch, WrongState
from batchwright.core.failures import Flag
from batchwright.core.records import InputRow, Record
from batchwright.core.rows import SourceRow
from batchwright.ports.batches import Submit
from batchwright.server.row_file import FileIndexes, RowFile, tag_of
from support.memory_batches import SEGMENT_ROWS, MemoryBatches

ROWS = 4 * SEGMENT_ROWS


async def ended() -> MemoryBatches:
    batches = MemoryBatches()
    rows = [SourceRow(row=InputRow(body=b"{}")) for _ in range(ROWS)]
    await batches.submit(Submit(batch_id="batch_a", spec=BatchSpec(name="", destinations=())), [rows])
    byte = row_map.FLAG_BYTES[Flag.PLAIN]
    for row in range(ROWS):
        batches.batches["batch_a"].end(row, Record(row=row, byte=byte, attempts=1, used=1))
    return batches


async def file_of(batches: MemoryBatches) -> RowFile:
    status = await batches.status("batch_a")
    return RowFile(
        name="a.txt",
        batches=batches,
        status=status,
        tag=tag_of(status),
        head=b"head\n",
        line=lambda view: b"%d\n" % view.request_index,
        texts_of=None,
    )


def begin_round(batches: MemoryBatches) -> None:
    batches.batches["batch_a"].round += 1


def price_anew(batches: MemoryBatches) -> None:
    batches.batches["batch_a"].tally.cost_picousd += 1


def remove(batches: MemoryBatches) -> None:
    del batches.batches["batch_a"]


async def read_on(pieces: AsyncIterator[bytes], got: list[bytes]) -> None:
    async for piece in pieces:
        got.append(piece)


@pytest.mark.parametrize(
    ("change", "error"), [(begin_round, WrongState), (price_anew, WrongState), (remove, NoSuchBatch)]
)
def test_changed_on_the_way_it_has_no_last_piece(
    change: Callable[[MemoryBatches], None], error: type[Exception]
) -> None:
    async def read() -> None:
        batches = await ended()
        file, indexes = await file_of(batches), FileIndexes()
        index = await file.measure(indexes)
        for pieces in (file.whole(indexes), file.part(index, 3, index.length - 1)):
            got = [await anext(pieces)]
            change(batches)
            with pytest.raises(error):
                await read_on(pieces, got)
            assert len(b"".join(got)) < index.length - 3
            batches.batches = (await ended()).batches
            file = await file_of(batches)

    asyncio.run(read())


def test_any_part_is_what_stands_there() -> None:
    async def read() -> None:
        file, indexes = await file_of(await ended()), FileIndexes()
        whole = b"".join([piece async for piece in file.whole(indexes)])
        index = await file.measure(indexes)
        assert index.length == len(whole)
        for first in range(len(whole)):
            for last in range(first, len(whole)):
                part = b"".join([piece async for piece in file.part(index, first, last)])
                assert part == whole[first : last + 1]

    asyncio.run(read())
