"""A batch service as the vendor of a run: rows go there in chunks, and each gets the answer of its item.

To the worker this is a vendor like any other: what it sends is durably reserved before, what comes back is
checkpointed, failed rows are sent again under their own request_index, a pause pauses, and the run's file is one file
in order. What is different stands here:

- Rows that are sent in one turn of the loop, or within `LINGER_S`, share a chunk; `ChunkSize` says how many.
- A chunk is journalled before it is submitted and when its batch is named (`chunk_journal`). The successor of a killed
  process finds its rows' answers there: a row whose bytes are those of a left-over chunk joins it and is not submitted.
- A refused array is halved; a row that is refused alone has failed.
- A chunk that nobody waits for any more (the second Ctrl-C, a cancelled batch, a deadline) is cancelled at the service.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b

from batchwright.client import calls
from batchwright.client.asking import Asker
from batchwright.client.chunk_journal import ChunkJournal, Head, LeftChunk
from batchwright.client.chunk_size import ChunkSize
from batchwright.client.chunks import Carrier, Chunk, Row
from batchwright.client.errors import (
    BadRequest,
    BatchRejected,
    CreditSpent,
    IdempotencyConflict,
    KeyRefused,
    NoAnswer,
    NoSuchBatchThere,
    RateLimited,
    ServiceError,
    ServiceUnavailable,
)
from batchwright.client.row_answers import ReadAnswer, answer_of, closed, missing
from batchwright.client.values import RowResult
from batchwright.core.batch_spec import CHUNK_OF
from batchwright.core.errors import StoreError, told_of_fault
from batchwright.core.failures import FailureKind
from batchwright.ports.vendor import Answer, CallListener

CHUNKS_AT_ONCE = 4
LINGER_S = 0.05
"""Rows that come one by one wait so long for others: each submit costs something."""
TELL_S = 1.0
"""So long rows that are found at the service are counted before a person is told of them, in one line."""
MAX_CHUNK_BYTES = 8 * 1024 * 1024
KEEP_AGAIN_S = 1.0
"""Between two tries of a journal that cannot be written."""
DROPPED_AFTER_S = 60.0
"""Answers are in the store well within: a checkpoint takes a fraction of a second."""
CLOSING_S = 5.0
"""For the cancels of an end at once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The store that the rows are in."""

    mark: str
    has: Callable[[str], bool]
    """Whether a batch of this id is in it. Reads the store: called in a thread."""


class RefusedCall:
    """Implements `ports.vendor.RelayedCall`: a batch takes seconds to begin, and nobody waits for one answer so."""

    def __init__(self, listener: CallListener) -> None:
        answer = Answer(
            kind=FailureKind.INVALID_REQUEST,
            code="batches_only",
            message="it is a batch service that takes batches alone; name a vendor of its own for single calls",
        )
        self._handle = asyncio.get_running_loop().call_soon(listener.end, answer, None, b"")

    def abort(self) -> None:
        self._handle.cancel()

    def hold(self, held: bool) -> None:
        """Nothing comes."""


class ServiceVendor:
    """Implements `ports.vendor.Vendor`. To be used on the loop's thread."""

    max_in_flight = 0

    @property
    def waiting(self) -> str:
        return next((chunk.waiting for chunk in self._tasks if chunk.waiting), "")

    def __init__(
        self, asker: Asker, journal: ChunkJournal, *, read: ReadAnswer, report: Callable[[str], None], home: Home
    ) -> None:
        self._journal = journal
        self._home = home
        self._is_home: bool | None = None
        """Whether the service's batches are in the store that this run is in. None: it has named none yet."""
        self._carrier = Carrier(asker, report=report)
        self._clock, self._chance = asker.clock, asker.chance
        self._read = read
        self._report = report
        self._size = ChunkSize()
        self._pending: deque[Row] = deque()
        self._queued: deque[Chunk] = deque()
        self._tasks: dict[Chunk, asyncio.Task[None]] = {}
        self._cancels: set[asyncio.Task[None]] = set()
        self._unkept: set[Chunk] = set()
        """Those that the journal could not be written for the last time."""
        self._homes: dict[Row, Chunk] = {}
        self._left: dict[str, deque[tuple[Chunk, int]]] = {}
        """Rows of dead processes' chunks, by their digest."""
        self._answered: deque[tuple[float, str]] = deque()
        """(when, key) of chunks whose answers were handed over."""
        self._fetched: deque[tuple[float, str]] = deque()
        """The same of left-over ones: they are kept until the end, since some of their rows may not be back yet."""
        self._joined = (0, 0)
        """Rows found in chunks of earlier runs since that was last told; those of them in chunks that are too old."""
        self._telling: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._closing = False

    async def open(self) -> None:
        """Finds what a dead process left at the service."""
        left = await asyncio.to_thread(self._journal.left_over, self._clock.now_ms())
        for found in left:
            self._remember(found)

    def send(self, endpoint: str, body: bytes, on_end: Callable[[Answer], None]) -> Row:
        digest = blake2b(endpoint.encode() + b"\n" + body, digest_size=16).hexdigest()
        row = Row(endpoint, body, digest, on_end=on_end, abandoned=self._abandon)
        if not self._join(row):
            self._pending.append(row)
            self._look_soon(at_once=len(self._pending) >= self._size.rows)
        return row

    def relay(self, endpoint: str, body: bytes, listener: CallListener, *, stream: bool) -> RefusedCall:
        return RefusedCall(listener)

    async def close(self) -> None:
        self._closing = True
        for timer in (self._linger, self._telling):
            if timer is not None:
                timer.cancel()
        self._tell_of_joined()
        for chunk in list(self._tasks):
            self._give_up(chunk)
        if self._cancels:
            await asyncio.wait(self._cancels, timeout=CLOSING_S)
            for task in self._cancels:
                task.cancel()
        for _, key in (*self._answered, *self._fetched):
            await asyncio.to_thread(self._journal.drop, key)
        await asyncio.to_thread(self._journal.close)

    # -------------------------------------------------------------------------------------------- rows into chunks

    def _look_soon(self, *, at_once: bool) -> None:
        if self._closing or (self._linger is not None and not at_once):
            return
        if self._linger is not None:
            self._linger.cancel()
        loop = asyncio.get_running_loop()
        self._linger = loop.call_later(0.0 if at_once else LINGER_S, self._look)

    def _look(self) -> None:
        """Begins as many chunks as may be under way."""
        self._linger = None
        while len(self._tasks) < CHUNKS_AT_ONCE and not self._closing:
            chunk = self._queued.popleft() if self._queued else self._cut()
            if chunk is None:
                return
            self._begin(chunk)

    def _cut(self) -> Chunk | None:
        rows: list[Row] = []
        size = 0
        while self._pending and len(rows) < self._size.rows:
            row = self._pending[0]
            if rows and size + len(row.body) > MAX_CHUNK_BYTES:
                break
            self._pending.popleft()
            if row.on_end is not None:
                rows.append(row)
                size += len(row.body)
        return self._chunk(rows) if rows else None

    def _chunk(self, rows: list[Row]) -> Chunk:
        key = self._chance.hex_id(32)
        items = [calls.item(row.endpoint, row.body) for row in rows]
        body = calls.array_body(items, key, metadata={CHUNK_OF: self._home.mark})
        chunk = Chunk(key=key, body=body, rows=list(rows), digests=[row.digest for row in rows])
        for row in rows:
            self._homes[row] = chunk
        return chunk

    def _begin(self, chunk: Chunk) -> None:
        task = asyncio.create_task(self._carry(chunk), name=f"chunk {chunk.key[:8]}")
        self._tasks[chunk] = task
        task.add_done_callback(lambda _: self._done(chunk))

    def _done(self, chunk: Chunk) -> None:
        self._tasks.pop(chunk, None)
        if not self._closing:
            self._look_soon(at_once=True)

    # ------------------------------------------------------------------------------------------ chunks and their end

    async def _carry(self, chunk: Chunk) -> None:
        try:
            await self._drop_old()
            await self._carry_through(chunk)
        except ServiceError as error:
            self._fail(chunk, error)
        except Exception as error:
            text = f"a fault of batchwright itself: {told_of_fault(error)}"
            self._report(f"a chunk of {len(chunk.rows)} rows: {text}")
            self._end(chunk, lambda: Answer(kind=FailureKind.INTERNAL, code="internal", message=text))

    async def _carry_through(self, chunk: Chunk) -> None:
        if not chunk.batch_id:
            if not chunk.left_over:
                head = Head(key=chunk.key, rows=chunk.digests, written_ms=self._clock.now_ms())
                await self._kept(chunk, partial(self._journal.write, head, chunk.body))
            begun_s = self._clock.now_s()
            await self._carrier.submit(chunk)
            self._size.answered(len(chunk.rows), self._clock.now_s() - begun_s)
            await self._kept(chunk, partial(self._journal.name, chunk.key, chunk.batch_id))
        if self._is_home is None:
            self._is_home = await asyncio.to_thread(self._home.has, chunk.batch_id)
        ended = await self._carrier.wait(chunk)
        seen: set[int] = set()

        def take(item: RowResult) -> None:
            if 0 <= item.request_index < len(chunk.rows) and item.ok is not None and item.request_index not in seen:
                seen.add(item.request_index)
                self._take(chunk, item)

        await self._carrier.items(chunk, take)
        chunk.ended = ended
        self._end(chunk, lambda: closed(ended.state, chunk.batch_id) or missing(chunk.batch_id))
        (self._fetched if chunk.left_over else self._answered).append((self._clock.now_s(), chunk.key))

    async def _kept(self, chunk: Chunk, write: Callable[[], None]) -> None:
        """Returns once it is in the journal: a disk that is full now keeps rows waiting and ends none."""
        try:
            while True:
                try:
                    await asyncio.to_thread(write)
                except StoreError as error:
                    if not self._unkept:
                        self._report(f"{error} Tried again every {KEEP_AGAIN_S:g} s")
                    self._unkept.add(chunk)
                    chunk.waiting = "waits for its journal to be written"
                    await self._clock.sleep(KEEP_AGAIN_S)
                else:
                    return
        finally:
            if chunk in self._unkept:
                self._unkept.remove(chunk)
                chunk.waiting = ""

    def _take(self, chunk: Chunk, item: RowResult) -> None:
        row = chunk.rows[item.request_index]
        if chunk.left_over and not item.ok:
            return  # nothing was paid: it is sent anew
        if row is None:
            chunk.items[item.request_index] = item
            return
        self._answer(row, item)

    def _answer(self, row: Row, item: RowResult) -> None:
        self._homes.pop(row, None)
        answer = answer_of(item, row.endpoint, self._read)
        answer.is_counted = bool(self._is_home)
        row.answer(answer)

    def _end(self, chunk: Chunk, answer: Callable[[], Answer]) -> None:
        """For rows that have none yet. Of a left-over chunk they are sent anew."""
        for row in chunk.rows:
            if row is None or row.on_end is None:
                continue
            self._homes.pop(row, None)
            if chunk.left_over:
                self._pending.append(row)
            else:
                row.answer(answer())
        if chunk.left_over:
            self._look_soon(at_once=True)

    def _fail(self, chunk: Chunk, error: ServiceError) -> None:
        """The service did not take it, or does not give its results."""
        if isinstance(error, BatchRejected | BadRequest) and not chunk.batch_id:
            self._split(chunk, error)
            return
        kind = _kind_of(error, named=bool(chunk.batch_id))

        def answer() -> Answer:
            return Answer(
                kind=kind,
                http_status=error.http_status,
                code=error.code,
                message=str(error),
                wait_s=error.retry_after_s,
            )

        gone = isinstance(error, NoSuchBatchThere | IdempotencyConflict)
        if (chunk.batch_id or error.unheard or isinstance(error, ServiceUnavailable)) and not gone:
            # It may be paid for: a row that is sent again later joins it and is not submitted anew.
            rows, chunk.rows, chunk.left_over = chunk.rows, [None] * len(chunk.rows), True
            self._index(chunk)
            for row in rows:
                if row is not None:
                    self._homes.pop(row, None)
                    row.answer(answer())
            return
        self._answered.append((self._clock.now_s() - DROPPED_AFTER_S, chunk.key))
        self._end(chunk, answer)

    def _split(self, chunk: Chunk, error: ServiceError) -> None:
        """One row too many, or one that spoils the others, is found by halving."""
        self._answered.append((self._clock.now_s() - DROPPED_AFTER_S, chunk.key))
        rows = [row for row in chunk.rows if row is not None and row.on_end is not None]
        if isinstance(error, BatchRejected):
            self._size.refused(len(chunk.rows))
        if len(rows) > 1:
            middle = len(rows) // 2
            self._queued.extendleft((self._chunk(rows[middle:]), self._chunk(rows[:middle])))
            return
        kind = FailureKind.TOO_LARGE if isinstance(error, BatchRejected) else FailureKind.INVALID_REQUEST
        for row in rows:
            self._homes.pop(row, None)
            row.answer(
                Answer(kind=kind, http_status=error.http_status, code=error.code, param=error.param, message=str(error))
            )

    # ----------------------------------------------------------------------------------- what a dead process left

    def _remember(self, found: LeftChunk) -> None:
        chunk = Chunk(
            key=found.key,
            body=found.body,
            rows=[None] * len(found.rows),
            digests=found.rows,
            left_over=True,
            earlier=True,
            too_old=found.too_old,
            batch_id=found.batch_id,
        )
        self._index(chunk)

    def _index(self, chunk: Chunk) -> None:
        for index, digest in enumerate(chunk.digests):
            self._left.setdefault(digest, deque()).append((chunk, index))

    def _tell_of_joined(self) -> None:
        """Only rows that are to be sent count: of the others at the service nobody here wants to know any more."""
        joined, too_old = self._joined
        self._joined = (0, 0)
        if joined:
            rows = "1 row that is to be sent was" if joined == 1 else f"{joined:,} rows that are to be sent were"
            self._report(f"{rows} at the service when an earlier run ended; the answers are fetched there")
        if too_old:
            self._report(
                f"of {too_old:,} of them it was not heard whether the service had taken them, more than a day ago: it "
                "may have forgotten their key by now, and then they are paid for twice"
            )

    def _count_joined(self, chunk: Chunk) -> None:
        if chunk.earlier:
            joined, too_old = self._joined
            self._joined = (joined + 1, too_old + chunk.too_old)
            if not joined:
                self._telling = asyncio.get_running_loop().call_later(TELL_S, self._tell_of_joined)

    def _join(self, row: Row) -> bool:
        """Whether a left-over chunk has this very row, or will; it is answered from there then."""
        places = self._left.get(row.digest)
        while places:
            chunk, index = places.popleft()
            if chunk.ended is None:
                chunk.rows[index] = row
                self._homes[row] = chunk
                self._count_joined(chunk)
                if chunk not in self._tasks and chunk not in self._queued:
                    self._queued.append(chunk)
                    self._look_soon(at_once=False)
                return True
            item = chunk.items.pop(index, None)
            if item is not None:
                self._count_joined(chunk)
                asyncio.get_running_loop().call_soon(self._answer, row, item)
                return True
        return False

    # --------------------------------------------------------------------------------------------- giving up

    def _abandon(self, row: Row) -> None:
        chunk = self._homes.pop(row, None)
        if chunk is not None and not chunk.wanted:
            self._give_up(chunk)

    def _give_up(self, chunk: Chunk) -> None:
        """Nobody waits for it: what it has not done yet is not to be done, nor paid for."""
        if chunk in self._queued:
            self._queued.remove(chunk)
        task = self._tasks.pop(chunk, None)
        if task is None:
            return
        task.cancel()
        if chunk.batch_id and chunk.ended is None:
            cancel = asyncio.create_task(self._carrier.cancel(chunk.batch_id), name=f"cancel {chunk.batch_id}")
            self._cancels.add(cancel)
            cancel.add_done_callback(self._cancels.discard)

    async def _drop_old(self) -> None:
        now_s = self._clock.now_s()
        while self._answered and now_s - self._answered[0][0] >= DROPPED_AFTER_S:
            await asyncio.to_thread(self._journal.drop, self._answered.popleft()[1])


def _kind_of(error: ServiceError, *, named: bool) -> FailureKind:
    """What a chunk's failure is to each of its rows."""
    match error:
        case NoAnswer():
            return FailureKind.NETWORK if error.may_have_arrived or error.unheard else FailureKind.UNREACHABLE
        case ServiceUnavailable():
            return FailureKind.NETWORK if error.unheard else FailureKind.OVERLOADED
        case RateLimited():
            return FailureKind.RATE_LIMITED
        case KeyRefused():
            return FailureKind.AUTH
        case CreditSpent():
            return FailureKind.QUOTA_EXHAUSTED
        case NoSuchBatchThere() if named:
            return FailureKind.MISSING_FROM_UPSTREAM
        case _:
            return FailureKind.BAD_RESPONSE
