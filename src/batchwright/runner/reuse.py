"""Answers that are there already: which rows of an input need not be sent (`--reuse`, `--cache`).

A row has the request of an earlier one where all is equal that a vendor gets: its endpoint, its body (but for spaces
and the like, `wire.canonical_body`) and the way it goes, as a batch's identity has it: who gets it, where, as which
model; not under whose key. A custom_id is a label and never sent, so it does not count. Only plain successes are taken
over: a row that failed, or whose answer was cut off, refused, filtered or empty, is asked again, and so is one whose
answer does not match the schema that the new batch has.

An answer is taken over as part of the intake: it is a row of the new batch that ended when it came in, durable in the
transaction that makes the batch claimable. A process that dies before that leaves nothing, and the same command begins
anew.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from batchwright.core import row_map
from batchwright.core.answer_schema import AnswerSchema
from batchwright.core.batch_spec import Kept
from batchwright.core.batch_state import BatchState
from batchwright.core.errors import InputRefused, UsageError
from batchwright.core.records import Record
from batchwright.core.routes import Directions
from batchwright.core.rows import RowView, SourceRow
from batchwright.ports.batches import Batches, BatchStatus
from batchwright.runner.figures import count_text
from batchwright.runner.interrupts import Interrupted
from batchwright.runner.matching import Matching
from batchwright.runner.request import Reuse
from batchwright.runner.request_hashes import Hasher
from batchwright.runner.same_way import directions_of
from batchwright.runner.seams import Seams
from batchwright.runner.source import Source
from batchwright.runner.standing import kept_text

if TYPE_CHECKING:
    from batchwright.wire.answer_match import AnswerMatch

EARLIER_BATCHES = 20
"""Of the same file that are looked at, the newest: one that was broken off early has few answers, the one before it
perhaps all."""
PAGE_BATCHES = 50
_TAKEN_BYTES = frozenset({row_map.PLAIN_SUCCESS})


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sources:
    """Batches whose answers may be taken over, newest first."""

    asked: Sequence[BatchStatus]
    """Of the same file, or named."""
    other: Sequence[BatchStatus]


class KeptAnswers:
    """Found before a batch is submitted; `given` marks its rows as they are taken in. Use it as a context manager."""

    def __init__(
        self, source: Source, directions: Directions, reuse: Reuse, seams: Seams, answers: AnswerSchema | None = None
    ) -> None:
        """`answers`: what the new batch's have to match; what does not is asked anew."""
        self._match = _match_of(answers)
        self._source, self._reuse, self._seams = source, reuse, seams
        self._matching = Matching()
        self._hash = Hasher(directions)
        self.kept: Kept | None = None
        """None: there is no batch to take answers from."""
        self.texts: list[str] = []
        """What of it is told, once the batch is durable."""

    def __enter__(self) -> KeptAnswers:
        return self

    def __exit__(self, *error: object) -> None:
        self._matching.__exit__(None, None, None)

    async def find(self, path: str) -> None:
        """Reads the input, and the earlier batches. `path`: the input's; empty: it has none. Raises NoSuchBatch,
        InputRefused where the input cannot be read, and Interrupted."""
        sources = await self._sources(path)
        if not sources.asked and not sources.other:
            where = "no other batch is here" if self._reuse.cache else "no earlier batch of this file is here"
            self.texts.append(f"There are no answers to take over: {where}.")
            return
        await asyncio.to_thread(self._add_input)
        rows = self._matching.open
        by_batch: dict[str, int] = defaultdict(int)
        beside = 0
        for number, batch in enumerate(sources.asked):
            found, left = await self._offer(batch, compares=number == 0)
            by_batch[batch.batch_id] = found
            beside += left
        reused = rows - self._matching.open
        for batch in sources.other:
            if not self._matching.open:
                break
            await self._offer(batch, compares=False)
        again, gone = self._matching.lacking()
        fresh = self._matching.open - again
        changed = min(fresh, beside + gone)
        cached = rows - self._matching.open - reused
        self.kept = Kept(reused=reused, cached=cached, again=again, changed=changed, new=fresh - changed)
        self.texts += _texts(self.kept, {batch_id: found for batch_id, found in by_batch.items() if found})

    def given(self, chunks: Iterator[Sequence[SourceRow]]) -> Iterator[Sequence[SourceRow]]:
        """The rows, those with an answer marked so. Raises InputRefused if the input is not what was looked at."""
        if self.kept is None or not self.kept.answers:
            yield from chunks
            return
        answers = self._matching.answers()
        following = next(answers, None)
        first = 0
        for chunk in chunks:
            for position, source in enumerate(chunk, first):
                if following is None or following.row != position:
                    continue
                # Looked at twice: no row is to get the answer of another, whatever happened to the file meanwhile.
                if source.finding is not None or self._hash(source.row) != following.hash:
                    name = self._source.name
                    raise InputRefused(f"{name} was changed while it was read, so nothing was sent; run it again")
                source.kept = following.record
                following = next(answers, None)
            first += len(chunk)
            yield chunk

    # -----------------------------------------------------------------------------------------------------------------

    async def _sources(self, path: str) -> _Sources:
        batches = self._seams.batches
        asked: list[BatchStatus] = []
        if self._reuse.of_file and not self._reuse.batch and not path:
            raise UsageError(
                "--reuse: this input has no path by which an earlier batch of it could be found; name the batch: "
                "--reuse BATCH (`batchwright list` shows them)"
            )
        if self._reuse.batch:
            asked = [await batches.status(await batches.resolve(self._reuse.batch))]
        elif self._reuse.of_file and path:
            asked = [batch for batch in await batches.find(source=path, limit=EARLIER_BATCHES) if _is_there(batch)]
        other = [batch async for batch in _all(batches)] if self._reuse.cache else []
        named = {batch.batch_id for batch in asked}
        return _Sources(asked=asked, other=[batch for batch in other if batch.batch_id not in named])

    def _add_input(self) -> None:
        for rows in self._source.look():
            self._stop_if_asked()
            self._matching.add(None if row.finding is not None else self._hash(row.row) for row in rows)
            self._seams.display.reading(self._source.rows)
        self._matching.seal()

    async def _offer(self, batch: BatchStatus, *, compares: bool) -> tuple[int, int]:
        """Answers of one batch: (taken, rows of it that are not in the input). `compares`: rows without one are told of
        too."""
        hasher = Hasher(directions_of(batch))
        taken = beside = 0
        wanted = None if compares else _TAKEN_BYTES
        async for views in self._seams.batches.rows(batch.batch_id, wanted=wanted, texts_of=wanted):
            self._stop_if_asked()
            more = await asyncio.to_thread(self._offer_rows, views, batch.batch_id, hasher)
            taken, beside = taken + more[0], beside + more[1]
            if not self._matching.open and not compares:
                break
        return taken, beside

    def _offer_rows(self, views: Sequence[RowView], batch_id: str, hasher: Hasher) -> tuple[int, int]:
        taken = beside = 0
        for view in views:
            record = view.record
            if view.byte in row_map.NEVER_SENDABLE:
                beside += 1
            elif view.byte != row_map.PLAIN_SUCCESS or record is None or not self._matches(record):
                self._matching.lack(hasher(view.input))
            elif self._matching.give(hasher(view.input), _taken_over(view, record, batch_id)):
                taken += 1
            else:
                beside += 1
        return taken, beside

    def _matches(self, record: Record) -> bool:
        return self._match is None or not self._match.finding(record.body)

    def _stop_if_asked(self) -> None:
        if self._seams.interrupts.count:
            raise Interrupted


def _match_of(answers: AnswerSchema | None) -> AnswerMatch | None:
    if answers is None:
        return None
    from batchwright.wire.answer_match import AnswerMatch  # which imports jsonschema

    return AnswerMatch(answers.text)


async def _all(batches: Batches) -> AsyncIterator[BatchStatus]:
    """Newest first."""
    before = ""
    while page := await batches.find(before=before, limit=PAGE_BATCHES, chunks=False):
        for batch in page:
            if _is_there(batch):
                yield batch
        before = page[-1].batch_id


def _is_there(batch: BatchStatus) -> bool:
    """Whether its rows are there to be looked at: all of them, or none that counts."""
    return batch.state not in (BatchState.ACCEPTING, BatchState.REFUSED)


def _taken_over(view: RowView, record: Record, batch_id: str) -> Record:
    """The same answer, as the record of a row that was never sent and cost nothing."""
    return Record(
        row=0,
        byte=record.byte,
        attempts=0,
        used=0,
        http_status=record.http_status,
        body=record.body,
        request_id=record.request_id,
        vendor=record.vendor,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        cached_tokens=record.cached_tokens,
        reused=record.reused or batch_id,
        reused_row=record.reused_row if record.reused else view.request_index,
    )


def _texts(kept: Kept, by_batch: dict[str, int]) -> list[str]:
    """What was taken over, and what is asked."""
    texts = [f"{kept_text(kept)}."]
    if len(by_batch) > 1:
        each = ", ".join(f"{count_text(found)} of {batch_id}" for batch_id, found in by_batch.items())
        texts.append(f"Taken over: {each}.")
    return texts
