"""The auditor: what must hold of the database after every commit, recounted without a line of the product's code.

It reads by SQL and decodes frames itself, and keeps a ledger of its own of what vendors received, answered and billed.
The first law that is broken ends the world.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

import msgspec
import zstandard

from world.coverage import Coverage, Move

PENDING, RESERVED = 0, 1
SUCCESSES = frozenset(range(16, 32))
CLOSED_BYTE = {"cancelled": 52, "expired": 53, "stopped": 54}
FLAG_BYTE = {"plain": 16, "truncated": 17, "refused": 18, "filtered": 19, "empty": 20}
ROW, BYTE, ATTEMPTS, USED, COST, UNPRICED, NO_USAGE, DOUBTS = range(8)
BODY, REQUEST_ID = 12, 13
"""Positions in a stored record."""
FREE_KINDS = frozenset({"rate_limited", "unreachable", "quota_exhausted", "auth", "overloaded"})
"""Attempts that may use up none (overloaded: in an outage, which cannot be seen from outside)."""


class Law(StrEnum):
    """What the auditor holds the product to."""

    RESERVED_BEFORE_SENT = "only rows that are durably reserved are sent"
    NOT_TWICE = "no row is sent again after its outcome was durable"
    ONE_HOLDER = "only the holder of a valid lease sends a segment's rows"
    FENCE = "only a segment's holder, by its epoch, changes its rows"
    MOVES = "bytes move as the row map's table says"
    OWN_ANSWER = "a row's record is what a vendor said to that row, and said to whoever wrote it"
    TALLIES = "tallies count what row maps count"
    RECORDS = "records say what row maps say"
    COST = "cost is the exact sum of what durable attempts cost"
    USAGE = "the usage table equals the rows' cost"
    ATTEMPTS = "attempts are counted once each"
    MAX_ATTEMPTS = "no row uses more attempts than it may"
    DOUBTS = "possible double payments are no fewer than the real ones"
    ORPHANS = "orphan spend is what lost segments' answers cost"
    CAP = "known, possible and orphan cost and allowances stay within the cap"
    ALLOWANCES = "what was drawn and not spent comes back"
    STATES = "states move as their table says"
    STANDS_STILL = "a settled batch stands still until a retry"
    GROWS = "within a round completed and failed only grow"
    KEEPS_ANSWERS = "an answer is never replaced by a failure"
    COMPLETE = "every row ends, and counts add up"
    ENDS = "every run ends"
    DEADLINE = "a batch has ended soon after its deadline"
    READ = "a reader gets every row as it is stored, in order"
    OWN_CHECK = "the product's own check finds nothing"


class Broken(Exception):
    def __init__(self, law: Law, what: str) -> None:
        super().__init__(f"{law.name}: {what}")
        self.law = law


class Cursor(Protocol):
    """Of the database driver."""

    @property
    def connection(self) -> Any: ...

    def execute(self, sql: str, parameters: tuple[Any, ...] = ...) -> Any: ...


@dataclass(eq=False)
class Send:
    """One attempt, as the vendor knows it."""

    name: str
    batch_id: str
    index: int
    worker: tuple[str, str]
    round: int
    stale: bool
    """Sent by a worker that could not know yet that it was replaced."""
    kind: str = ""
    flag: str = "plain"
    body: bytes = b""
    cost_picousd: int = 0
    unpriced: int = 0
    no_usage: int = 0
    paid: bool = False
    """The vendor bills it."""
    delivered: bool = False
    durable: bool = False


@dataclass
class SegmentMirror:
    """A segment as of the last commit."""

    first_index: int
    row_map: bytes
    previous: bytes | None
    open: int
    state: str
    round: int
    epoch: int
    holder: int
    closed_as: str
    counted: bytes
    counts: Counter[int]


@dataclass
class BatchMirror:
    state: str = ""
    phase: str = ""
    round: int = 0
    settled: tuple[Any, ...] | None = None
    ends: tuple[int, int] = (0, 0)
    """Succeeded, failed."""
    cost: int = 0
    unpriced: int = 0
    no_usage: int = 0
    counts: Counter[int] = field(default_factory=Counter)


ALLOWED: dict[str, frozenset[str]] = {
    "": frozenset({"accepting", "queued", "terminal"}),
    "accepting": frozenset({"queued", "running", "paused", "cancelling", "terminal"}),
    "queued": frozenset({"running", "paused", "cancelling", "terminal"}),
    "running": frozenset({"paused", "cancelling", "terminal"}),
    "paused": frozenset({"queued", "running", "cancelling", "terminal"}),
    "cancelling": frozenset({"terminal"}),
    "terminal": frozenset(),
}
"""Within a round. From `terminal` only a new round leads on."""


class Auditor:
    def __init__(self, cursor: Cursor, coverage: Coverage) -> None:
        self._db = cursor
        self._coverage = coverage
        self._unzip = zstandard.ZstdDecompressor().decompress
        self.broken: Broken | None = None
        self.sends: dict[str, Send] = {}
        self.of_row: dict[tuple[str, int], list[Send]] = defaultdict(list)
        self.segments: dict[tuple[str, int], SegmentMirror] = {}
        self._by_batch: dict[str, list[SegmentMirror]] = {}
        self.batches: dict[str, BatchMirror] = {}
        self.worker_ids: dict[tuple[str, str], int] = {}
        self.superseded: set[tuple[str, str]] = set()
        """Workers that may act on a lease they have lost, because they cannot know yet."""
        self.max_attempts: dict[str, int] = {}
        self.soft: set[str] = set()
        """Batches whose cap was lowered or is soft: it may stand above what is spent."""
        self.crashed: set[tuple[str, str]] = set()
        self._blob_row = 0
        self._spent = 0
        self._changes = -1
        self.commits = 0
        self.patience_ms = 10**12
        """After a deadline."""

    # ------------------------------------------------------------------------------------------------------- sending

    def sent(self, worker: tuple[str, str], batch_id: str, index: int) -> Send:
        """A vendor received a row."""
        segment, row = self._find(batch_id, index)
        stale = worker in self.superseded
        send = Send(f"s{len(self.sends)}", batch_id, index, worker, segment.round, stale)
        self.sends[send.name] = send
        self.of_row[batch_id, index].append(send)
        if stale:
            return send
        who = f"{worker[0]}/{worker[1]} sent row {index} of {batch_id}"
        byte = segment.row_map[row]
        if byte >= 16:
            self._break(Law.NOT_TWICE, f"{who}, which has ended as {byte}")
        if segment.holder != self.worker_ids.get(worker) or segment.state != "held":
            self._break(Law.ONE_HOLDER, f"{who}; the segment is {segment.state}, held by worker {segment.holder}")
        if byte != RESERVED:
            self._break(Law.RESERVED_BEFORE_SENT, f"{who}, whose byte is {byte}")
        return send

    def _find(self, batch_id: str, index: int) -> tuple[SegmentMirror, int]:
        for segment in self._by_batch[batch_id]:
            if segment.first_index <= index < segment.first_index + len(segment.row_map):
                return segment, index - segment.first_index
        raise AssertionError(f"no segment of {batch_id} has row {index}")

    def _break(self, law: Law, what: str) -> None:
        if self.broken is None:
            self.broken = Broken(law, what)

    # ------------------------------------------------------------------------------------------------- after a commit

    def committed(self, worker: tuple[str, str], call: str) -> None:
        """`worker`: whose call of the store it was."""
        self.commits += 1
        if self.broken is not None:
            return
        try:
            self._look(worker, call)
        except Broken as broken:
            self.broken = broken

    def _look(self, worker: tuple[str, str], call: str) -> None:
        if worker not in self.worker_ids:
            found = self._db.execute(
                "SELECT id FROM worker WHERE name = ? AND incarnation = ?", (worker[0], worker[1])
            ).fetchone()
            if found:
                self.worker_ids[worker] = found[0]
        changes = self._db.connection.total_changes
        if changes == self._changes or call in ("heartbeat", "take_lease"):
            return
        self._changes = changes
        me = self.worker_ids.get(worker, -1)
        phases = {row[0]: row for row in self._db.execute(BATCHES).fetchall()}
        self._look_at_segments(me, call, phases)
        self._look_at_blobs(worker)
        for batch_id, row in phases.items():
            self._look_at_batch(batch_id, row)
        for gone in self.batches.keys() - phases.keys():
            del self.batches[gone]
        usage = self._db.execute("SELECT coalesce(sum(cost_picousd), 0) FROM usage").fetchone()[0]
        if usage != self._spent:
            raise Broken(Law.USAGE, f"the table says {usage}, durable attempts cost {self._spent}")

    def _look_at_segments(self, me: int, call: str, phases: dict[str, Any]) -> None:
        seen = set()
        for row in self._db.execute(SEGMENTS).fetchall():
            key = (row[0], row[1])
            if row[0] not in phases:
                continue  # being dropped
            seen.add(key)
            old = self.segments.get(key)
            now = (row[3], row[5], row[6], row[7], row[8], row[9], row[10])
            if old is not None and now == (
                old.row_map, old.open, old.state, old.round, old.epoch, old.holder, old.closed_as
            ):
                continue
            new = mirror(row)
            where = f"segment {key[1]} of {key[0]}"
            self._check_shape(where, new)
            if old is None:
                self._by_batch.setdefault(key[0], []).append(new)
                self.batches.setdefault(key[0], BatchMirror()).counts.update(new.counts)
                self.segments[key] = new
                continue
            self._check_change(where, (old, new), (me, call))
            counts = self.batches[key[0]].counts
            counts.subtract(old.counts)
            counts.update(new.counts)
            old.__dict__.update(new.__dict__)
        for key in self.segments.keys() - seen:
            gone = self.segments.pop(key)
            self._by_batch[key[0]].remove(gone)

    def _check_shape(self, where: str, new: SegmentMirror) -> None:
        still_open = 0 if new.closed_as else new.row_map.count(PENDING) + new.row_map.count(RESERVED)
        if new.open != still_open or (new.state == "settled") != (still_open == 0):
            raise Broken(Law.COMPLETE, f"{where} is {new.state}, says {new.open} open rows and has {still_open}")

    def _check_change(self, where: str, change: tuple[SegmentMirror, SegmentMirror], who: tuple[int, str]) -> None:
        old, new = change
        me, call = who
        if new.epoch < old.epoch or new.round < old.round:
            raise Broken(Law.FENCE, f"{where}: epoch {old.epoch} to {new.epoch}, round {old.round} to {new.round}")
        if new.round > old.round:
            self._check_reopened(where, old, new)
            return
        if new.row_map != old.row_map:
            taken = new.epoch > old.epoch
            holder = new.holder or old.holder if not taken else me
            if holder != me or (not taken and old.state != "held"):
                raise Broken(Law.FENCE, f"{where}, held by worker {old.holder}, was changed by worker {me} ({call})")
            for row, (before, after) in enumerate(zip(old.row_map, new.row_map, strict=True)):
                if before != after:
                    self._check_move(f"{where}, row {row}", (before, after), new.previous[row] if new.previous else 0)
        if new.closed_as and not old.closed_as:
            for byte, counted in zip(new.row_map, new.counted, strict=True):
                if byte == PENDING or byte == RESERVED:
                    self._coverage.hit(
                        Move.CLOSE_RESTORED if counted != CLOSED_BYTE[new.closed_as]
                        else Move.CLOSE_PENDING if byte == PENDING else Move.CLOSE_RESERVED
                    )

    def _check_move(self, where: str, move: tuple[int, int], previous: int) -> None:
        before, after = move
        if (before, after) == (PENDING, RESERVED):
            self._coverage.hit(Move.RESERVE)
        elif (before, after) == (RESERVED, PENDING):
            self._coverage.hit(Move.CLEAR)
        elif before == RESERVED and after in SUCCESSES:
            self._coverage.hit(Move.RESTORE if previous == after else Move.SUCCEED)
        elif before == RESERVED and after >= 32:
            if previous in SUCCESSES:
                raise Broken(Law.KEEPS_ANSWERS, f"{where}: {previous} in the round before, now {after}")
            self._coverage.hit(Move.FAIL)
        else:
            raise Broken(Law.MOVES, f"{where}: {before} to {after}")

    def _check_reopened(self, where: str, old: SegmentMirror, new: SegmentMirror) -> None:
        if old.state != "settled":
            raise Broken(Law.MOVES, f"{where} was reopened while {old.state}")
        chosen = frozenset(
            self._db.execute("SELECT reopen_bytes FROM batch WHERE batch_id = ?", (where.split(" of ")[1],)).fetchone()[0]
        )
        for row, (before, after) in enumerate(zip(old.counted, new.row_map, strict=True)):
            expected = PENDING if before in chosen else before
            previous = new.previous[row] if new.previous else 0
            if after != expected or previous != (before if before in chosen else 0):
                raise Broken(Law.MOVES, f"{where}, row {row}: reopened from {before} to {after}, before {previous}")
            if before in chosen:
                self._coverage.hit(
                    Move.REOPEN_SUCCESS if before in SUCCESSES
                    else Move.REOPEN_CLOSED if old.row_map[row] <= RESERVED else Move.REOPEN_FAILURE
                )

    # --------------------------------------------------------------------------------------------------------- records

    def _look_at_blobs(self, worker: tuple[str, str]) -> None:
        for rowid, key, data in self._db.execute(
            "SELECT rowid, key, data FROM blob WHERE rowid > ? ORDER BY rowid", (self._blob_row,)
        ).fetchall():
            self._blob_row = rowid
            if key.startswith(("part/", "result/")):
                frames = self._db.execute(FRAMES, (key,)).fetchall()
                for batch_id, number, offset, length in frames:
                    for record in self._unpack(data[offset : offset + length]):
                        self._book(worker, (batch_id, number), record)
        # A dropped batch's blobs may have been the last ones, whose numbers are then given out again.
        self._blob_row = min(self._blob_row, self._db.execute("SELECT coalesce(max(rowid), 0) FROM blob").fetchone()[0])

    def _unpack(self, frame: bytes) -> list[list[Any]]:
        records: list[list[Any]] = msgspec.msgpack.decode(self._unzip(frame))
        return records

    def _book(self, worker: tuple[str, str], key: tuple[str, int], record: list[Any]) -> None:
        """Marks the attempt that a new record tells of as durable."""
        segment = self.segments[key]
        index = segment.first_index + record[ROW]
        where = f"row {index} of {key[0]}"
        sends = self.of_row[key[0], index]
        send = self.sends.get(record[REQUEST_ID]) if record[REQUEST_ID] else None
        if send is not None and (send.batch_id, send.index) != (key[0], index):
            raise Broken(Law.OWN_ANSWER, f"{where} has what was said to row {send.index} of {send.batch_id}")
        if send is not None and not send.durable:
            self._book_send(worker, where, (send, record))
        elif segment.previous and record[BYTE] == segment.previous[record[ROW]] and record[BYTE] in SUCCESSES:
            # The earlier answer stands again; the attempt that failed is in the sums alone.
            for other in sends:
                if other.delivered and not other.durable and other.worker == worker and other.round == segment.round:
                    self._make_durable(other)
        durable = [other for other in sends if other.durable]
        if record[COST] != sum(other.cost_picousd for other in durable):
            raise Broken(
                Law.COST, f"{where} cost {record[COST]}, its durable attempts {[o.cost_picousd for o in durable]}"
            )
        if record[ATTEMPTS] < len(durable):
            raise Broken(Law.ATTEMPTS, f"{where} says {record[ATTEMPTS]} attempts, {len(durable)} are durable")
        if record[USED] > self.max_attempts[key[0]]:
            raise Broken(Law.MAX_ATTEMPTS, f"{where} used {record[USED]} of {self.max_attempts[key[0]]} attempts")

    def _book_send(self, worker: tuple[str, str], where: str, what: tuple[Send, list[Any]]) -> None:
        send, record = what
        if not send.delivered or send.worker != worker:
            raise Broken(Law.OWN_ANSWER, f"{where}: {send.name} was sent by {send.worker}, written by {worker}")
        if record[BYTE] in SUCCESSES:
            if send.kind or record[BODY] != send.body or record[BYTE] != FLAG_BYTE[send.flag]:
                raise Broken(Law.OWN_ANSWER, f"{where}: {send.name} ended as {send.kind or send.flag}, not {record[BYTE]}")
        elif not send.kind:
            raise Broken(Law.OWN_ANSWER, f"{where}: {send.name} was answered, its record says {record[BYTE]}")
        self._make_durable(send)

    def _make_durable(self, send: Send) -> None:
        send.durable = True
        batch = self.batches[send.batch_id]
        batch.cost += send.cost_picousd
        batch.unpriced += send.unpriced
        batch.no_usage += send.no_usage
        self._spent += send.cost_picousd

    # --------------------------------------------------------------------------------------------------------- batches

    def _look_at_batch(self, batch_id: str, row: tuple[Any, ...]) -> None:
        _, phase, closing, _, round_, rows, segments_open, settled_at, cap, cap_soft, deadline = row
        batch = self.batches.setdefault(batch_id, BatchMirror())
        counts = dict(self._db.execute(COUNTS, (batch_id, round_)).fetchall())
        sums = self._db.execute(SUMS, (batch_id, round_)).fetchone()
        cost, possible, orphan, unpriced, no_usage, attempts = sums
        self._check_state(batch_id, batch, (row, attempts))
        ends = {byte: count for byte, count in batch.counts.items() if byte >= 16 and count}
        if phase in ("open", "settled") and {byte: n for byte, n in counts.items() if n} != ends:
            raise Broken(Law.TALLIES, f"{batch_id}: tallies {counts}, row maps {ends}")
        if (cost, unpriced, no_usage) != (batch.cost, batch.unpriced, batch.no_usage):
            raise Broken(
                Law.COST,
                f"{batch_id}: tallies {(cost, unpriced, no_usage)}, durable attempts "
                f"{(batch.cost, batch.unpriced, batch.no_usage)}",
            )
        still_open = sum(1 for segment in self._by_batch.get(batch_id, ()) if segment.open)
        if segments_open != still_open or (phase == "settled" and still_open):
            raise Broken(Law.COMPLETE, f"{batch_id} is {phase}, says {segments_open} open segments, has {still_open}")
        if phase == "settled" and sum(ends.values()) != rows:
            raise Broken(Law.COMPLETE, f"{batch_id} has settled with {sum(ends.values())} of {rows} rows ended")
        if phase == "open" and not still_open:
            raise Broken(Law.COMPLETE, f"{batch_id} is open, and none of its segments is")
        succeeded = sum(n for byte, n in ends.items() if byte in SUCCESSES)
        failed = sum(n for byte, n in ends.items() if byte >= 32)
        whole = "reopening" not in (phase, batch.phase) and round_ == batch.round
        if whole and (succeeded < batch.ends[0] or failed < batch.ends[1]):
            raise Broken(Law.GROWS, f"{batch_id}: {batch.ends} succeeded and failed, then {(succeeded, failed)}")
        batch.ends = (succeeded, failed)
        batch.phase = phase
        batch.round = round_
        if cap >= 0 and not cap_soft and batch_id not in self.soft:
            drawn = self._db.execute(
                "SELECT coalesce(sum(picousd), 0) FROM allowance WHERE batch_id = ?", (batch_id,)
            ).fetchone()[0]
            if cost + possible + orphan + drawn > cap:
                raise Broken(
                    Law.CAP, f"{batch_id}: cost {cost} + possible {possible} + orphan {orphan} + drawn {drawn} > {cap}"
                )
        stands = (round_, tuple(sorted(counts.items())), cost, attempts, settled_at, closing) if phase == "settled" else None
        if deadline and settled_at > deadline + self.patience_ms:
            raise Broken(Law.DEADLINE, f"{batch_id} settled {settled_at - deadline} ms after its deadline")
        if stands is not None and batch.settled is not None and stands != batch.settled:
            raise Broken(Law.STANDS_STILL, f"{batch_id}: {batch.settled}, then {stands}")
        batch.settled = stands

    def _check_state(self, batch_id: str, batch: BatchMirror, facts: tuple[tuple[Any, ...], int]) -> None:
        (_, phase, closing, paused, round_, *_), attempts = facts
        if phase == "settled":
            state = "terminal"
        elif phase in ("accepting", "reopening"):
            state = "accepting"
        elif closing == "cancelled":
            state = "cancelling"
        elif paused:
            state = "paused"
        else:
            state = "running" if attempts else "queued"
        if state == batch.state and round_ == batch.round:
            return
        if round_ != batch.round:
            allowed = batch.state == "terminal" and round_ == batch.round + 1
        else:
            allowed = state in ALLOWED[batch.state]
        if not allowed:
            raise Broken(Law.STATES, f"{batch_id}: {batch.state} (round {batch.round}) to {state} (round {round_})")
        batch.state = state

    # ----------------------------------------------------------------------------------------------------- at the end

    def finish(self, *, calm: bool) -> None:
        """All that the laws say of a world at rest. `calm`: nobody crashed or was replaced, so nothing may be lost."""
        if self.broken is not None:
            raise self.broken
        for batch_id in self.batches:
            attempts = self._check_rows(batch_id)
            self._check_sums(batch_id, attempts, calm=calm)
        left = self._db.execute("SELECT batch_id, worker_id, picousd FROM allowance WHERE picousd > 0").fetchall()
        if left:
            raise Broken(Law.ALLOWANCES, f"{left} is still drawn though everybody has ended")

    def _check_rows(self, batch_id: str) -> tuple[int, int]:
        """(attempts, doubts) by the rows' last records."""
        index = attempts = doubts = 0
        for (of, number), segment in sorted(self.segments.items()):
            if of != batch_id:
                continue
            if segment.first_index != index:
                raise Broken(Law.COMPLETE, f"segment {number} of {batch_id} begins at {segment.first_index}, not {index}")
            index += len(segment.row_map)
            last: dict[int, list[Any]] = {}
            said: dict[int, list[list[Any]]] = defaultdict(list)
            for data, offset, length in self._db.execute(FRAMES_IN_ORDER, (batch_id, number)).fetchall():
                for record in self._unpack(data[offset : offset + length]):
                    last[record[ROW]] = record
                    said[record[ROW]].append(record)
            for row in range(len(segment.counted)):
                of_row = last.get(row)
                self._check_row((batch_id, segment.first_index + row), (segment, row), said.get(row, []))
                if of_row is not None:
                    attempts += of_row[ATTEMPTS]
                    doubts += of_row[DOUBTS]
        return attempts, doubts

    def check_read(self, batch_id: str, rows: list[tuple[int, int, int, bytes]]) -> None:
        """What a reader got: (request_index, byte, cost, body) of each row."""
        segments = [segment for (of, _), segment in sorted(self.segments.items()) if of == batch_id]
        stored = b"".join(segment.counted for segment in segments)
        if [row[0] for row in rows] != list(range(len(stored))) or bytes(row[1] for row in rows) != stored:
            raise Broken(Law.READ, f"{batch_id}: read {bytes(row[1] for row in rows)!r}, stored {stored!r}")
        for index, byte, cost, body in rows:
            spent = sum(send.cost_picousd for send in self.of_row[batch_id, index] if send.durable)
            if cost != spent:
                raise Broken(Law.READ, f"row {index} of {batch_id} reads as costing {cost}, it cost {spent}")
            if byte in SUCCESSES and json.loads(body)["to"] != [batch_id, index]:
                raise Broken(Law.READ, f"row {index} of {batch_id} reads {body!r}")

    def _check_row(self, name: tuple[str, int], place: tuple[SegmentMirror, int], said: list[list[Any]]) -> None:
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
                send = self.sends[answer["send"]]
                if answer["to"] != [name[0], name[1]] or send.kind or FLAG_BYTE[send.flag] != byte:
                    raise Broken(Law.OWN_ANSWER, f"{where} has the answer to {answer['to']}, {send.kind or send.flag}")
        sends = self.of_row[name]
        doubts = (said[-1][DOUBTS] if said else 0) + (segment.row_map[row] == RESERVED)
        # (A row that was closed while it was out and then opened again is in doubt in the batch's sum alone.)
        unread = sum(1 for send in sends if send.paid and not (send.durable and send.body))
        if any(send.stale for send in sends):
            return
        if doubts < unread and not segment.round:
            raise Broken(Law.DOUBTS, f"{where}: {unread} paid attempts were not read, {doubts} are in doubt")
        for round_, used in Counter(
            send.round for send in sends if not (send.durable and send.kind in FREE_KINDS)
        ).items():
            if used > self.max_attempts[name[0]]:
                raise Broken(Law.MAX_ATTEMPTS, f"{where} was sent {used} times in round {round_}, for {self.max_attempts[name[0]]}")

    def _check_sums(self, batch_id: str, by_rows: tuple[int, int], *, calm: bool) -> None:
        round_ = self.batches[batch_id].round
        attempts, doubts, orphan = self._db.execute(SUMS_AT_END, (batch_id, round_)).fetchone()
        closed = sum(
            1
            for (of, _), segment in self.segments.items()
            if of == batch_id and segment.closed_as
            for byte in segment.row_map
            if byte == RESERVED
        )
        if not by_rows[0] <= attempts <= by_rows[0] + closed:
            raise Broken(Law.ATTEMPTS, f"{batch_id}: tallies {attempts}, rows {by_rows[0]}, closed in doubt {closed}")
        unread = sum(
            send.paid and not (send.durable and send.body)
            for (of, _), sends in self.of_row.items()
            if of == batch_id and not any(send.stale for send in sends)
            for send in sends
        )
        if doubts < max(by_rows[1], unread):
            raise Broken(
                Law.DOUBTS, f"{batch_id}: tallies say {doubts} doubts, rows {by_rows[1]}; {unread} were paid and not read"
            )
        lost = [s for s in self.sends.values() if s.batch_id == batch_id and s.delivered and not s.durable]
        if orphan > sum(send.cost_picousd for send in lost):
            raise Broken(Law.ORPHANS, f"{batch_id}: {orphan} of orphan spend, {len(lost)} answers were lost")
        quiet = [send for send in lost if send.worker not in self.crashed]
        if quiet and calm:
            raise Broken(Law.RECORDS, f"{batch_id}: {quiet[0].name} was answered and forgotten, though nobody crashed")
        if orphan < sum(send.cost_picousd for send in quiet):
            raise Broken(
                Law.ORPHANS,
                f"{batch_id}: {orphan} of orphan spend, but workers that lived to tell of it lost answers of "
                f"{sum(send.cost_picousd for send in quiet)}",
            )


def mirror(row: tuple[Any, ...]) -> SegmentMirror:
    _, _, first_index, row_map, previous, open_, state, round_, epoch, holder, closed_as = row
    counted = row_map
    if closed_as:
        counted = bytes(
            byte if byte > RESERVED else ((previous[at] if previous else 0) or CLOSED_BYTE[closed_as])
            for at, byte in enumerate(row_map)
        )
    return SegmentMirror(
        first_index, row_map, previous, open_, state, round_, epoch, holder, closed_as, counted, Counter(counted)
    )


BATCHES = """SELECT batch_id, phase, closing, paused, round, rows, segments_open, settled_at_ms, cap_picousd, cap_soft,
    deadline_ms FROM batch WHERE phase <> 'dropping'"""
SEGMENTS = """SELECT batch_id, number, first_index, row_map, previous_map, open, state, round, epoch, holder, closed_as
    FROM segment ORDER BY batch_id, number"""
FRAMES = 'SELECT batch_id, number, "offset", length FROM part WHERE blob_key = ?'
FRAMES_IN_ORDER = """SELECT data, "offset", length FROM part JOIN blob ON key = blob_key
    WHERE batch_id = ? AND number = ? ORDER BY round, epoch, seq"""
COUNTS = "SELECT byte, sum(rows) FROM tally_count WHERE batch_id = ? AND round = ? GROUP BY byte"
SUMS = """SELECT coalesce(sum(cost_picousd), 0), coalesce(sum(possible_picousd), 0), coalesce(sum(orphan_picousd), 0),
    coalesce(sum(unpriced), 0), coalesce(sum(no_usage), 0), coalesce(sum(attempts), 0)
    FROM tally WHERE batch_id = ? AND round = ?"""
SUMS_AT_END = """SELECT coalesce(sum(attempts), 0), coalesce(sum(doubts), 0), coalesce(sum(orphan_picousd), 0)
    FROM tally WHERE batch_id = ? AND round = ?"""
