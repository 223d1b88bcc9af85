"""What happens to a segment whose worker was lost: the rows in doubt are dealt with once, at the claim.

A row still RESERVED may be at a vendor, may have been answered and paid for, or may never have been sent: nobody
knows. It gets a note of one attempt in doubt and goes back to PENDING, or ends: as `in_doubt` under
`on_uncertain=fail`, as `worker_lost` when it was the only row its worker had reserved at three deaths.

A row that was at a batch service is in no doubt: it is asked for there under the key it was submitted with, which makes
no second batch of it.

A row that was at a vendor's own batch API is in no doubt either, and its worker did not die of it: it is as it was.

A death says little of a row that had company, so it uses up none of its attempts. But a row that was out at many of
them is a suspect: its holder sends it with nothing else out, until it comes back or is proved guilty. So a row that
kills its workers ends alone after some deaths, and no row beside it ends with it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from batchwright.core import row_map
from batchwright.core.answer_schema import AnswerSchema, ended_by_answer
from batchwright.core.failures import FailureKind
from batchwright.core.records import REPAIR_TRIED, Record, Tally

POISON_DEATHS = 3
"""Deaths at which a row was all that its worker had out: from so many on it counts as their cause. Fewer, or a row that
was the last of its segment alone, would blame rows for machines that are switched off at a bad moment."""
SUSPECT_DEATHS = 5
"""Deaths at which a row was reserved, from which on it is sent alone. With fewer a few kills in a row would have
hundreds of innocent rows sent one by one; the window of a segment, halved at each death, keeps them few until then."""

MESSAGES: dict[FailureKind, str] = {
    FailureKind.IN_DOUBT: "the worker ended while this row was out; whether it was answered and billed is not known",
    FailureKind.WORKER_LOST: "this row was out alone each time its worker ended abruptly; it is not sent again",
}


class OnUncertain(StrEnum):
    RETRY = "retry"
    """A row in doubt is sent again, and counted as a possible double payment."""
    FAIL = "fail"
    """A row in doubt ends as `in_doubt`: never paid twice, maybe paid for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resolution:
    row_map: bytes
    records: list[Record]
    """A note or an outcome for each row that was in doubt, cumulative."""
    first: tuple[int, ...]
    """Rows that went back to pending and are to be sent before the others."""
    window: int
    """How many rows of this segment the next holder may have reserved at once; 0 is no limit of this kind."""
    tally: Tally
    """What the taker adds to its own tally."""


def resolve(
    *,
    lost_map: bytes,
    last: Mapping[int, Record],
    previous_map: bytes | None,
    worst_picousd: Mapping[int, int],
    alone: bool,
    policy: OnUncertain,
    max_attempts: int,
    asked_once: frozenset[int] = frozenset(),
    resting: frozenset[int] = frozenset(),
    schema: AnswerSchema | None = None,
) -> Resolution:
    """Deals with every RESERVED row of a segment that was lost.

    `asked_once`: rows whose vendor takes the same request a second time for the first one and gives its answer. Of
    those nothing is in doubt, whatever the policy: they go back to pending as if they had not been sent.

    `resting`: rows at a vendor's batch API, by groups that are kept: they go back to pending, and nothing else.

    `last` has the latest record of rows that have one; `alone` says that the lost worker had a single row reserved in
    all its segments, and here. A row that had a success before this round (`previous_map`) and would end without one
    gets that success back, with the attempt added to its record. One that was out for a repair (`schema`) ends, where
    it has to, by the answer it had.
    """
    new_map = bytearray(lost_map)
    doubtful = [row for row, byte in enumerate(lost_map) if byte == row_map.RESERVED]
    suspected = [row for row in doubtful if row not in resting]
    # Whoever allows one attempt wants no second one, whatever became of the first.
    uses_attempt = alone or max_attempts == 1
    records: list[Record] = []
    tally = Tally()
    for row in doubtful:
        before = last.get(row)
        base = before if before is not None else Record(row=row, byte=row_map.RESERVED, attempts=0, used=0)
        if row in resting:
            records.append(_moved(new_map, base, None, previous=0))
            continue
        if row in asked_once and base.alone + alone < POISON_DEATHS:
            died = msgspec.structs.replace(base, alone=base.alone + alone, deaths=base.deaths + 1)
            records.append(_moved(new_map, died, None, previous=0))
            continue
        noted = _noted(base, alone=alone, uses_attempt=uses_attempt)
        end = _end_of(noted, policy=policy, attempts_left=not uses_attempt or noted.used < max_attempts)
        previous = previous_map[row] if previous_map is not None else 0
        record = _moved(new_map, noted, end, previous=previous, schema=schema)
        records.append(record)
        tally.attempts += 1
        tally.retries += 1 if base.used or base.rate_limits else 0
        tally.doubts += 1
        tally.possible_picousd += worst_picousd.get(row, 0)
        if record.byte != row_map.PENDING:
            tally.counts[record.byte] = tally.counts.get(record.byte, 0) + 1
    return Resolution(
        row_map=bytes(new_map),
        records=records,
        first=tuple(row for row in doubtful if new_map[row] == row_map.PENDING),
        window=max(1, len(suspected) // 2) if suspected else 0,
        tally=tally,
    )


def _noted(base: Record, *, alone: bool, uses_attempt: bool) -> Record:
    """The row's record with one attempt in doubt, and one death, more."""
    return msgspec.structs.replace(
        base,
        attempts=base.attempts + 1,
        used=base.used + uses_attempt,
        doubts=base.doubts + 1,
        alone=base.alone + alone,
        deaths=base.deaths + 1,
        repair=REPAIR_TRIED if base.repair else 0,
    )


def _end_of(noted: Record, *, policy: OnUncertain, attempts_left: bool) -> FailureKind | None:
    """How the row ends; None: it is sent again."""
    if noted.alone >= POISON_DEATHS:
        return FailureKind.WORKER_LOST
    return FailureKind.IN_DOUBT if policy is OnUncertain.FAIL or not attempts_left else None


def _moved(
    new_map: bytearray,
    noted: Record,
    end: FailureKind | None,
    *,
    previous: int,
    schema: AnswerSchema | None = None,
) -> Record:
    """Moves the row's byte, and gives its record the same one. `previous`: what the row had before this round, or 0."""
    row = noted.row
    if end is None:
        row_map.clear(new_map, row)
        return msgspec.structs.replace(noted, byte=row_map.PENDING)
    by_answer = ended_by_answer(noted, schema) if schema is not None and noted.repair else None
    if by_answer is not None and (row_map.is_success(by_answer.byte) or not row_map.is_success(previous)):
        row_map.finish(new_map, row, by_answer.byte)
        return by_answer
    if row_map.is_success(previous):
        row_map.restore(new_map, row, previous)
        return msgspec.structs.replace(noted, byte=previous)
    byte = row_map.KIND_BYTES[end]
    row_map.finish(new_map, row, byte)
    return msgspec.structs.replace(noted, byte=byte, body=b"", http_status=0, code=end.value, message=MESSAGES[end])


def suspects(first: Sequence[int], records: Mapping[int, Record]) -> tuple[int, ...]:
    """Of the doubtful rows of a segment (`first`) those that are to be out alone, the most suspect first."""
    chosen = [row for row in first if records[row].alone or records[row].deaths >= SUSPECT_DEATHS]
    return tuple(sorted(chosen, key=lambda row: (-records[row].alone, -records[row].deaths)))
