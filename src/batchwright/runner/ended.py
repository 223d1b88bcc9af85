"""For a worker, which writes no files: which batches have ended beside it, and how to get their answers."""

from __future__ import annotations

from batchwright.ports.batches import Batches, BatchStatus
from batchwright.runner import commands
from batchwright.runner.figures import count_text
from batchwright.runner.standing import ends_without_success

LOOKED_AT = 50
"""The newest batches; those before them ended long ago, or are told of by `list`."""


class EndedBatches:
    """Of the batches that were open at an earlier look."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches
        self._open: set[str] = set()

    async def texts(self) -> list[str]:
        """A text for each that has ended since the last look, the oldest first."""
        texts = []
        for batch in reversed(await self._batches.find(limit=LOOKED_AT, chunks=False)):
            if not batch.terminal:
                self._open.add(batch.batch_id)
            elif batch.batch_id in self._open:
                self._open.discard(batch.batch_id)
                texts.append(
                    f"{batch.batch_id} has ended: {_ends_text(batch)}. Where no run is waiting to write its answers, "
                    f"this does: {commands.export_anywhere(batch.batch_id)}"
                )
        return texts


def _ends_text(batch: BatchStatus) -> str:
    ends = [("ok", batch.counts.succeeded), *ends_without_success(batch.counts)]
    return ", ".join(f"{count_text(rows)} {word}" for word, rows in ends if rows or word == "ok")
