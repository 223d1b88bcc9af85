"""The rows of a stored file on their way into its batch: in the background, whole or not at all.

What is written of a row is what its batch makes of it: its lane, its custom id, the most it can cost. Its body stays in
the file, and the segment says where (`wire.file_bodies`).

The batch is durable (`accepting`) before its rows are read. Whoever takes them in holds the batch's lock; an intake
whose lock is free was left by a process that ended, and is begun again by the next that looks, from the file as it is
stored. If the file has lines that cannot be sent, the batch ends as refused, with the first of what is wrong.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from batchwright.core.batch_spec import BatchSpec
from batchwright.core.errors import BatchwrightError, Finding, NoSuchBatch, NoSuchFile
from batchwright.core.records import SegmentInput
from batchwright.core.routes import RouteLanes
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.engine.bounds import LanePrices, set_worst_cases
from batchwright.engine.floor import FindPrice
from batchwright.engine.intake import WRITE_BYTES, Place, make_segment
from batchwright.engine.outages import Outages, Who
from batchwright.engine.repeated_ids import hash_number, repeated_hashes
from batchwright.engine.stored_upload import Passage, read_passages
from batchwright.engine.sweeper import SWEEP_EVERY_S, run_lock_name
from batchwright.engine.writer import Writer
from batchwright.ports.clock import Clock
from batchwright.ports.files import FileBatchRow, LineError
from batchwright.ports.locks import HeldLock, TakingLocks
from batchwright.ports.store import NewSegment, Store
from batchwright.wire.file_bodies import FileLine, find_bodies
from batchwright.wire.frames import pack_input_of_file
from batchwright.wire.json_text import BOM
from batchwright.wire.line_reader import LongLine
from batchwright.wire.openai_input import CODES, OpenAILineDecoder
from batchwright.wire.problems import Problem

MAX_ERRORS = 100
"""Kept of a file that cannot be sent; reading ends there."""
MAX_REPEATED = 100_000
"""Distinct repeated ids that are told apart, so that the first lines with one are named."""
AT_ONCE = 2
"""Files read at the same time by one process; the others wait in `accepting`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileIntakeParts:
    store: Store
    writer: Writer
    clock: Clock
    locks: TakingLocks
    holder: str
    """This process, for people."""
    find_price: FindPrice
    model_of: Callable[[], str]
    """Of rows that name none; empty: those are refused."""
    max_rows: int
    max_row_bytes: int
    claimable: Callable[[], None]
    """Is told when rows became claimable."""
    report: Callable[[str], None]
    """Takes a sentence about something that went wrong and was survived."""
    outages: Outages


class FileIntakes:
    """All intakes of files in this process. `run` must be running for `start` to lead anywhere."""

    def __init__(self, parts: FileIntakeParts) -> None:
        self._parts = parts
        self._group: asyncio.TaskGroup | None = None
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def run(self) -> None:
        """Until it is cancelled: takes over what other processes left, at once and every few seconds. What is being
        taken in then is left for whoever comes next."""
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                while True:
                    await self._take_over()
                    await self._parts.clock.sleep(SWEEP_EVERY_S)
        finally:
            self._group = None

    def lock(self, batch_id: str) -> HeldLock | None:
        """None: another has it. May wait for a database. To be taken before the batch is made, so that nobody takes a
        new one for abandoned."""
        return self._parts.locks.take(run_lock_name(batch_id), holder=self._parts.holder)

    def start(self, batch_id: str, lock: HeldLock) -> None:
        """Takes the batch's rows in, in a task of its own, and releases the lock. Without `run` the batch is left for
        the next that looks."""
        if self._group is None:
            lock.release()
            return
        self._group.create_task(self._run_one(batch_id, lock), name=f"intake of {batch_id}")

    async def _take_over(self) -> None:
        parts = self._parts
        try:
            for batch_id in await asyncio.to_thread(parts.store.accepting_file_batches):
                lock = await asyncio.to_thread(self.lock, batch_id)
                if lock is not None:
                    self.start(batch_id, lock)
        except BatchwrightError as error:
            text = f"Files that wait to be taken in were not looked at; the next look comes: {error}"
            if line := parts.outages.met(Who.INTAKE, error, text, now_s=parts.clock.now_s()):
                parts.report(line)
        else:
            if over := parts.outages.passed(Who.INTAKE, parts.clock.now_s()):
                parts.report(f"{over}; files are taken in")

    async def _run_one(self, batch_id: str, lock: HeldLock) -> None:
        try:
            async with self._turn:
                await FileIntake(self._parts, batch_id).run()
        except NoSuchBatch:
            pass  # removed meanwhile
        except BatchwrightError as error:
            self._parts.report(f"The rows of {batch_id} were not taken in; it is tried again: {error}")
        except Exception as error:  # a fault of ours, told as often as it is met; other files go on
            self._parts.report(f"The rows of {batch_id} were not taken in: {type(error).__name__}: {error}")
        finally:
            lock.release()


class FileIntake:
    """One reading of one file into one batch."""

    def __init__(self, parts: FileIntakeParts, batch_id: str) -> None:
        self._parts, self._batch_id = parts, batch_id
        self._errors: list[LineError] = []
        self._rows = 0
        self._models: set[str] = set()

    async def run(self) -> None:
        """Ends with the batch claimable or refused. Raises BatchwrightError where neither could be, to be tried again;
        asked about a batch that is not accepting any more it does nothing."""
        parts, batch_id = self._parts, self._batch_id
        stored = await asyncio.to_thread(parts.store.get_batch, batch_id)
        if not stored.facts.accepting:
            return
        row = await asyncio.to_thread(parts.store.get_file_batch, batch_id)
        await parts.writer.do(lambda: parts.store.begin_intake_again(batch_id))
        try:
            await self._take_in(row, stored.spec)
        except NoSuchFile:
            self._refuse("invalid_file", "The file was removed before its lines were read.")
        except BatchwrightError:
            raise
        except Exception as error:  # a fault of ours: the batch is not to be tried for ever
            parts.report(f"The rows of {batch_id} were not taken in: {type(error).__name__}: {error}")
            self._refuse("internal_error", "A fault of the service itself; its log has more under the batch's id.")
        now_ms = parts.clock.now_ms()
        if self._errors:
            errors = sorted(self._errors, key=lambda error: error.line or 0)[:MAX_ERRORS]
            await parts.writer.do(lambda: parts.store.refuse_file_batch(batch_id, errors, now_ms))
            return
        model = next(iter(self._models)) if len(self._models) == 1 else ""
        await parts.writer.do(lambda: parts.store.close_file_intake(batch_id, now_ms, model=model))
        await parts.writer.do(self._close_if_over)
        parts.claimable()

    def _close_if_over(self) -> None:
        """A batch that was cancelled, or whose time ran out, while it was read: none of its rows is sent."""
        self._parts.store.expire_due(self._parts.clock.now_ms())
        while self._parts.store.close_step(self._batch_id, self._parts.clock.now_ms()):
            pass

    async def _take_in(self, row: FileBatchRow, spec: BatchSpec) -> None:
        """Leaves every row durable and not claimable, or errors."""
        parts, batch_id = self._parts, self._batch_id
        segments = self._segments(row, spec)

        def next_write() -> list[NewSegment]:
            """As many segments as one transaction is to have; none: that was all."""
            taken: list[NewSegment] = []
            size = 0
            while size < WRITE_BYTES and (segment := next(segments, None)) is not None:
                taken.append(segment)
                size += len(segment.input) + len(segment.records) + len(segment.id_hashes)
            return taken

        while taken := await asyncio.to_thread(next_write):
            await parts.writer.do(lambda taken=taken: parts.store.add_segments(batch_id, taken))  # type: ignore[misc]  # no type for a default
        if not self._rows and not self._errors:
            self._refuse("empty_file", "The file has no lines; expected at least one request.")
        if len(self._errors) < MAX_ERRORS:
            await asyncio.to_thread(self._find_repeated, row)

    def _segments(self, row: FileBatchRow, spec: BatchSpec) -> Iterator[NewSegment]:
        """A segment of each passage that has rows. Bad rows too, so that repeated ids are found among all; but none of
        a line that is too long. Ends at the last error that is kept."""
        route_lanes = RouteLanes(spec.routes, spec.destinations)
        prices = LanePrices(self._parts.find_price, spec.destinations, spec.routes)
        options = RowOptions(
            destinations=spec.destinations,
            routes=spec.routes,
            model=self._parts.model_of(),
            max_row_bytes=self._parts.max_row_bytes,
        )
        decoder = OpenAILineDecoder(options, row.endpoint)
        number = first_index = 0
        for first_line, passage in self._passages(row.file_id):
            lines, sources = self._decode(passage, decoder, first_line)
            if len(self._errors) >= MAX_ERRORS or self._rows > self._parts.max_rows:
                return
            if sources:
                set_worst_cases(sources, prices)
                place = Place(number=number, first_index=first_index, now_ms=self._parts.clock.now_ms())
                pack = partial(_pack, passage, lines)
                segment = make_segment(sources, route_lanes, place, pack=pack)
                yield replace(segment, piece_bytes=passage.packed_bytes)
                number, first_index = number + 1, first_index + len(sources)

    def _decode(
        self, passage: Passage, decoder: OpenAILineDecoder, first_line: int
    ) -> tuple[list[FileLine], list[SourceRow]]:
        """The rows and their lines."""
        lines: list[FileLine] = []
        sources: list[SourceRow] = []
        for number, line in enumerate(passage.lines, first_line):
            if not isinstance(line, LongLine) and _is_blank(line.line):
                continue
            self._rows += 1
            if self._rows > self._parts.max_rows:
                self._refuse("too_many_tasks", f"The file has more than {self._parts.max_rows:,} requests.")
                break
            if isinstance(line, LongLine):
                source = decoder.refuse_long(line.head, number, self._too_long(line))
            else:
                source = decoder.decode(line.line, number)
                lines.append(line)
                sources.append(source)
            for finding in () if source.finding is None else (source.finding, *source.also):
                self._note(finding)
            if len(self._errors) >= MAX_ERRORS:
                break
            if len(self._models) < 2 and source.finding is None:
                self._models.add(source.row.named_model)
        return lines, sources

    def _passages(self, file_id: str) -> Iterator[tuple[int, Passage]]:
        """(the number of its first line, the passage)."""
        first_line = 1
        for passage in read_passages(self._parts.store, file_id, self._parts.max_row_bytes):
            yield first_line, passage
            first_line += len(passage.lines)

    def _lines(self, file_id: str) -> Iterator[tuple[int, bytes]]:
        """(its number, the line) of all lines but those that are too long."""
        for first_line, passage in self._passages(file_id):
            for number, line in enumerate(passage.lines, first_line):
                if not isinstance(line, LongLine):
                    yield number, line.line

    def _find_repeated(self, row: FileBatchRow) -> None:
        store, batch_id = self._parts.store, self._batch_id
        repeated = repeated_hashes(lambda: store.id_hashes(batch_id), self._rows, at_most=MAX_REPEATED)
        if not repeated:
            return
        first_lines: dict[str, int] = {}
        decoder = OpenAILineDecoder(RowOptions(max_row_bytes=self._parts.max_row_bytes), row.endpoint)
        for number, line in self._lines(row.file_id):
            custom_id = decoder.decode(line, number).row.custom_id
            if custom_id is None or hash_number(custom_id) not in repeated:
                continue
            first = first_lines.setdefault(custom_id, number)
            if first != number:
                shown = custom_id if len(custom_id) <= 100 else custom_id[:100] + "..."
                message = (
                    f"The custom_id '{shown}' of this request was used before, on line {first}. Each custom_id of a "
                    "batch must be its own."
                )
                self._errors.append(
                    LineError(code="duplicate_custom_id", line=number, message=message, param="custom_id")
                )
            if len(self._errors) >= 2 * MAX_ERRORS:
                return

    def _note(self, finding: Finding) -> None:
        code = CODES.get(finding.code, finding.code)
        message = finding.message[:1].upper() + finding.message[1:]
        self._errors.append(LineError(code=code, line=finding.line, message=message, param=finding.param or None))

    def _refuse(self, code: str, message: str) -> None:
        """For a reason that is no line's."""
        self._errors.append(LineError(code=code, line=None, message=message, param=None))

    def _too_long(self, line: LongLine) -> Problem:
        limit = self._parts.max_row_bytes
        return Problem("row_too_large", f"the line has {line.size:,} bytes; a row may have at most {limit:,}")


def _is_blank(line: bytes) -> bool:
    return not line or line.isspace() or line.rstrip() == BOM


def _pack(passage: Passage, lines: Sequence[FileLine], rows: SegmentInput) -> bytes:
    return pack_input_of_file(rows, find_bodies(passage.pieces, lines, [row.body for row in rows.rows]))
