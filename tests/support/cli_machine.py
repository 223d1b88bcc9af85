"""A machine whose batches are in memory, for tests of the commands alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from click.testing import Result

from batchwright.core import row_map
from batchwright.core.batch_spec import BatchSpec, Destination
from batchwright.core.errors import NoSuchBatch
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import InputRow, Record, UsageKey, UsageSum
from batchwright.core.rows import SourceRow
from batchwright.ports.batches import BatchStatus, Submit
from batchwright.runner.outcome import RunOutcome
from support.memory_batches import MemoryBatches

Invoke = Callable[..., Result]


class Machine(MemoryBatches):
    """Batches in memory under ids as people type them, and what the commands asked of `assemble`."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        self.outcome: RunOutcome | BaseException = RunOutcome(exit_code=0, closing=("done",))
        self.used: list[tuple[UsageKey, UsageSum]] = []

    async def resolve(self, text: str) -> str:
        ids = list(self.batches)
        if text == "@last" and ids:
            return ids[-1]
        found = [one for one in ids if one.startswith(text) or one.startswith(f"batch_{text}")]
        if len(found) != 1:
            raise NoSuchBatch(f"there is no batch {text!r}")
        return found[0]

    async def usage(self, *, since_day: str = "") -> list[tuple[UsageKey, UsageSum]]:
        return [(key, used) for key, used in self.used if key.day >= since_day]

    async def add(self, batch_id: str, *outcomes: Flag | FailureKind | None) -> BatchStatus:
        """A batch whose rows stand so; None is open."""
        spec = BatchSpec(name="tickets.jsonl", destinations=(Destination(vendor="v", base_url="https://v/v1"),))
        rows = [SourceRow(row=InputRow(body=b"{}", custom_id=f"c{row}")) for row in range(len(outcomes))]
        await self.submit(Submit(batch_id=batch_id, spec=spec), [rows])
        for row, outcome in enumerate(outcomes):
            if outcome is not None:
                byte = row_map.FLAG_BYTES[outcome] if isinstance(outcome, Flag) else row_map.KIND_BYTES[outcome]
                self.batches[batch_id].end(row, _record(row, byte))
        return await self.status(batch_id)


def _record(row: int, byte: int) -> Record:
    if row_map.is_success(byte):
        body = b'{"choices":[{"message":{"content":"answer\\t%d"}}]}' % row
        return Record(row=row, byte=byte, attempts=1, used=1, cost_picousd=2_000_000_000, body=body)
    return Record(row=row, byte=byte, attempts=2, used=2, unpriced=1, message="said \x1b[31mno")
