"""What must hold of a world at rest: every row, every sum, and what a reader gets."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import Any

from world.auditor import Auditor
from world.laws import Broken, Law
from world.mirrors import (
    ATTEMPTS,
    BODY,
    BYTE,
    CLOSED_BYTE,
    DOUBTS,
    FLAG_BYTE,
    FRAMES_IN_ORDER,
    FREE_KINDS,
    RESERVED,
    ROW,
    SUCCESSES,
    SUMS_AT_END,
    SegmentMirror,
    unpack,
)


def finish(auditor: Auditor, *, calm: bool) -> None:
    """All that the laws say of a world at rest. `calm`: nobody crashed or was replaced, so nothing may be lost."""
    if auditor.broken is not None:
        raise auditor.broken
    for batch_id in auditor.batches:
        attempts = check_rows(auditor, batch_id)
        check_sums(auditor, batch_id, attempts, calm=calm)
    left = auditor.db.execute("SELECT batch_id, worker_id, picousd FROM allowance WHERE picousd > 0").fetchall()
    if left:
        raise Broken(Law.ALLOWANCES, f"{left} is still drawn though everybody has ended")


def check_rows(auditor: Auditor, batch_id: str) -> tuple[int, int]:
    """(attempts, doubts) by the rows' last records."""
    index = attempts = doubts = 0
    for (of, number), segment in sorted(auditor.segments.items()):
        if of != batch_id:
            continue
        if segment.first_index != index:
            raise Broken(Law.COMPLETE, f"segment {number} of {batch_id} begins at {segment.first_index}, not {index}")
        index += len(segment.row_map)
        last: dict[int, list[Any]] = {}
        said: dict[int, list[list[Any]]] = defaultdict(list)
        for *where, offset, length in auditor.db.execute(FRAMES_IN_ORDER, (batch_id, number)).fetchall():
            for record in unpack(auditor.db.bytes_of((*where,))[offset : offset + length]):
                last[record[ROW]] = record
                said[record[ROW]].append(record)
        for row in range(len(segment.counted)):
            of_row = last.get(row)
            check_row(auditor, (batch_id, segment.first_index + row), (segment, row), said.get(row, []))
            if of_row is not None:
                attempts += of_row[ATTEMPTS]
                doubts += of_row[DOUBTS]
    return attempts, doubts


def check_read(auditor: Auditor, batch_id: str, rows: list[tuple[int, int, int, bytes]]) -> None:
    """What a reader got: (request_index, byte, cost, body) of each row."""
    segments = [segment for (of, _), segment in sorted(auditor.segments.items()) if of == batch_id]
    stored = b"".join(segment.counted for segment in segments)
    if [row[0] for row in rows] != list(range(len(stored))) or bytes(row[1] for row in rows) != stored:
        raise Broken(Law.READ, f"{batch_id}: read {bytes(row[1] for row in rows)!r}, stored {stored!r}")
    for index, byte, cost, body in rows:
        spent = sum(send.cost_picousd for send in auditor.of_row[batch_id, index] if send.durable)
        if cost != spent:
            raise Broken(Law.READ, f"row {index} of {batch_id} reads as costing {cost}, it cost {spent}")
        if byte in SUCCESSES and json.loads(body)["to"][1] not in (index, auditor.repeats[batch_id].get(index)):
            raise Broken(Law.READ, f"row {index} of {batch_id} reads {body!r}")


def check_row(auditor: Auditor, name: tuple[str, int], place: tuple[SegmentMirror, int], said: list[list[Any]]) -> None:
    segment, row = place
    where = f"row {name[1]} of {name[0]}"
    byte = segment.counted[row]
    if byte <= RESERVED:
        raise Broken(Law.COMPLETE, f"{where} has not ended")
    if byte not in CLOSED_BYTE.values():  # closed, not answered: the map alone says so
        fitting = [record for record in said if record[BYTE] == byte]
        if not fitting:
            raise Broken(Law.RECORDS, f"{where} ended as {byte}, its records say {[r[BYTE] for r in said]}")
        if byte in SUCCESSES:
            answer = json.loads(fitting[-1][BODY])
            send = auditor.sends[answer["send"]]
            own = (name[1], auditor.repeats[name[0]].get(name[1]))
            if answer["to"][0] != name[0] or answer["to"][1] not in own or send.kind or FLAG_BYTE[send.flag] != byte:
                raise Broken(Law.OWN_ANSWER, f"{where} has the answer to {answer['to']}, {send.kind or send.flag}")
    sends = auditor.of_row[name]
    doubts = (said[-1][DOUBTS] if said else 0) + (segment.row_map[row] == RESERVED)
    # (A row that was closed while it was out and then opened again is in doubt in the batch's sum alone.)
    unread = sum(1 for send in sends if send.paid and not (send.durable and send.body))
    if any(send.stale for send in sends):
        return
    if doubts < unread and not segment.round:
        raise Broken(Law.DOUBTS, f"{where}: {unread} paid attempts were not read, {doubts} are in doubt")
    gone = auditor.crashed | auditor.superseded if auditor.max_attempts[name[0]] > 1 else frozenset()
    # What was lost with its worker used up no attempt, unless it was all that the worker had out.
    counted = [
        send
        for send in sends
        if not (send.durable and send.kind in FREE_KINDS) and (send.durable or send.worker not in gone)
    ]
    for round_, used in Counter(send.round for send in counted).items():
        if used > auditor.max_attempts[name[0]]:
            raise Broken(
                Law.MAX_ATTEMPTS,
                f"{where} was sent {used} times in round {round_}, for {auditor.max_attempts[name[0]]}",
            )


def check_sums(auditor: Auditor, batch_id: str, by_rows: tuple[int, int], *, calm: bool) -> None:
    round_ = auditor.batches[batch_id].round
    attempts, doubts, orphan = auditor.db.execute(SUMS_AT_END, (batch_id, round_)).fetchone()
    closed = sum(
        1
        for (of, _), segment in auditor.segments.items()
        if of == batch_id and segment.closed_as
        for byte in segment.row_map
        if byte == RESERVED
    )
    # (What was in doubt when it was closed, and then opened again, is in the batch's sums alone.)
    if not by_rows[0] <= attempts <= by_rows[0] + max(closed, doubts - by_rows[1]):
        raise Broken(Law.ATTEMPTS, f"{batch_id}: tallies {attempts}, rows {by_rows[0]}, closed in doubt {closed}")
    unread = sum(
        send.paid and not (send.durable and send.body)
        for (of, _), sends in auditor.of_row.items()
        if of == batch_id and not any(send.stale for send in sends)
        for send in sends
    )
    if doubts < max(by_rows[1], unread):
        raise Broken(
            Law.DOUBTS,
            f"{batch_id}: tallies say {doubts} doubts, rows {by_rows[1]}; {unread} were paid and not read",
        )
    lost = [s for s in auditor.sends.values() if s.batch_id == batch_id and s.delivered and not s.durable]
    if orphan > sum(send.cost_picousd for send in lost):
        raise Broken(Law.ORPHANS, f"{batch_id}: {orphan} of orphan spend, {len(lost)} answers were lost")
    quiet = [send for send in lost if send.worker not in auditor.crashed]
    # A worker whose commit hung for longer than its lease was replaced: its answers are orphans, and counted below.
    replaced = {
        tuple(row) for row in auditor.db.execute("SELECT name, incarnation FROM worker WHERE dead = 1").fetchall()
    }
    forgotten = [send for send in quiet if send.worker not in replaced]
    if forgotten and calm:
        raise Broken(Law.RECORDS, f"{batch_id}: {forgotten[0].name} was answered and forgotten, though nobody crashed")
    if orphan < sum(send.cost_picousd for send in quiet):
        raise Broken(
            Law.ORPHANS,
            f"{batch_id}: {orphan} of orphan spend, but workers that lived to tell of it lost answers of "
            f"{sum(send.cost_picousd for send in quiet)}",
        )
