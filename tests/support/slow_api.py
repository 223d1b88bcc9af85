"""A vendor's batch API in memory, on the loop's own time: implements `ports.vendor_batches.VendorBatches`.

It takes `latency_s` for a batch, does its rows one after the other over that time, and fails as it is told.
"""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from collections.abc import AsyncGenerator, Iterable
from dataclasses import dataclass, field

from batchwright.core.failures import FailureKind
from batchwright.ports.vendor import Answer
from batchwright.ports.vendor_batches import (
    BatchFault,
    BatchFile,
    BatchLimits,
    BatchLine,
    BatchOrder,
    BatchView,
    CreatedBatch,
    CreateStep,
    FoundBatch,
    ResultLine,
    VendorBatchError,
    VendorBatchState,
)

ANSWER = b'{"choices":[{"message":{"content":"cheap"},"finish_reason":"stop"}]}'
EPOCH_MS = 1_767_225_600_000


@dataclass
class Made:
    batch_id: str
    order: BatchOrder
    lines: list[BatchLine]
    made_s: float
    cancelled_s: float = -1.0


@dataclass
class SlowApi:
    latency_s: float = 600.0
    limits: BatchLimits = field(default_factory=lambda: BatchLimits(rows=1000, bytes=10**7, windows_s=(86_400,)))
    lose_replies: int = 0
    """So many creates are done, and not heard of."""
    refuse: list[BatchFault] = field(default_factory=list)
    """What the next creates end with."""
    hide_s: float = 0.0
    """For so long a new batch is not in the list."""
    leave_out: frozenset[str] = frozenset()
    """Bodies of rows without a line in the output."""
    bad_lines: frozenset[bytes] = frozenset()
    """Bodies for which the vendor refuses the whole batch, and says which."""
    unfit_bodies: frozenset[bytes] = frozenset()
    """Rows that cannot go into any batch."""
    expires: bool = False
    """Half of each batch is not done when the window is over."""
    away: bool = False
    """No call is answered."""
    forgets: bool = False
    """It knows no batch."""
    deaf: bool = False
    """It takes no notice of a cancel."""
    stuck: bool = False
    """No batch ever ends."""
    made: list[Made] = field(default_factory=list)
    done: Counter[bytes] = field(default_factory=Counter)
    """Rows that it did, and bills, by body."""

    def unfit(self, endpoint: str, body: bytes) -> Answer | None:
        if body in self.unfit_bodies:
            return Answer(kind=FailureKind.INVALID_REQUEST, code="unfit", message="no words for it")
        return None

    async def create(self, lines: Iterable[BatchLine], order: BatchOrder) -> CreatedBatch:
        rows = list(lines)
        assert 0 < len(rows) <= self.limits.rows
        assert len({row.row_id for row in rows}) == len(rows)
        await self._called()
        if self.refuse:
            raise self.refuse.pop(0)
        made = Made(f"vb_{len(self.made)}", order, rows, _now_s())
        self.made.append(made)
        if self.lose_replies:
            self.lose_replies -= 1
            raise BatchFault("the reply was lost", kind=FailureKind.NETWORK, may_be_done=True, step=CreateStep.CREATE)
        return CreatedBatch(batch_id=made.batch_id, file_id="")

    async def find(self, tag: str, *, since_ms: int, rows: int) -> tuple[FoundBatch, ...]:
        await self._called()
        return tuple(
            FoundBatch(view=self._view(made), certain=True)
            for made in self.made
            if made.order.tag == tag and _now_s() - made.made_s >= self.hide_s
        )

    async def look(self, batch_id: str) -> BatchView:
        await self._called()
        return self._view(self._of(batch_id))

    async def results(self, view: BatchView) -> AsyncGenerator[ResultLine, None]:
        made = self._of(view.batch_id)
        count = self._count_done(made)
        for number, row in enumerate(reversed(made.lines)):
            if row.body.decode() in self.leave_out:
                continue
            if number >= count:
                yield ResultLine(row_id=row.row_id, answer=Answer(kind=FailureKind.EXPIRED), done=False)
                continue
            answer = Answer(kind=None, http_status=200, body=ANSWER, prompt_tokens=1, completion_tokens=1)
            yield ResultLine(row_id=row.row_id, answer=answer)

    async def cancel(self, batch_id: str) -> None:
        await self._called()
        made = self._of(batch_id)
        if made.cancelled_s < 0 and not self.deaf:
            made.cancelled_s = _now_s()

    async def files(self, *, since_ms: int) -> tuple[BatchFile, ...]:
        return ()

    async def delete_files(self, refs: Iterable[str]) -> None:
        return None

    def billed(self) -> Counter[bytes]:
        """How often each row was done, by body, once all has ended."""
        return Counter(row.body for made in self.made for row in list(reversed(made.lines))[: self._count_done(made)])

    # ---------------------------------------------------------------------------------------------------------------

    async def _called(self) -> None:
        await asyncio.sleep(0.05)
        if self.away:
            raise BatchFault("it does not answer", kind=FailureKind.UNREACHABLE, may_be_done=False)

    def _of(self, batch_id: str) -> Made:
        for made in self.made:
            if made.batch_id == batch_id and not self.forgets:
                return made
        raise BatchFault("no such batch", kind=FailureKind.MISSING_FROM_UPSTREAM, may_be_done=False)

    def _count_done(self, made: Made) -> int:
        until_s = made.cancelled_s if made.cancelled_s >= 0 else _now_s()
        share = 0.0 if self._errors(made) else min(1.0, (until_s - made.made_s) / self.latency_s)
        return int(len(made.lines) * (min(share, 0.5) if self.expires else share))

    def _errors(self, made: Made) -> tuple[VendorBatchError, ...]:
        return tuple(
            VendorBatchError(code="bad_line", message="cannot be read", line=number)
            for number, row in enumerate(made.lines, 1)
            if row.body in self.bad_lines
        )

    def _view(self, made: Made) -> BatchView:
        over = _now_s() - made.made_s >= self.latency_s and not self.stuck
        state = VendorBatchState.IN_PROGRESS
        errors = self._errors(made)
        kind = None
        if errors and over:
            state, kind = VendorBatchState.FAILED, FailureKind.INVALID_REQUEST
        elif made.cancelled_s >= 0:
            state = VendorBatchState.CANCELLED
        elif over:
            state = VendorBatchState.EXPIRED if self.expires else VendorBatchState.COMPLETED
        return BatchView(
            batch_id=made.batch_id,
            state=state,
            state_text=state.value,
            tag=made.order.tag,
            total=len(made.lines),
            succeeded=self._count_done(made),
            errors=errors,
            kind=kind,
        )


def _now_s() -> float:
    """After a scene all of its time is over."""
    try:
        return asyncio.get_running_loop().time()
    except RuntimeError:
        return math.inf
