"""The auditor: what must hold of the database after every commit, recounted without a line of the product's code.

It reads by SQL and decodes frames itself, and keeps a ledger of its own of what vendors received, answered and billed.
The first law that is broken ends the world. What holds of a world at rest is asked by `world.last_audit`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from world.coverage import Coverage, Fault, Move
from world.databases import Database
from world.laws import Broken, Law
from world.mirrors import (
    ALLOWED,
    ATTEMPTS,
    BATCHES,
    BODY,
    BYTE,
    CLOSED_BYTE,
    COST,
    COUNTS,
    FLAG_BYTE,
    FRAMES,
    PENDING,
    REQUEST_ID,
    RESERVED,
    ROW,
    SEGMENTS,
    SUCCESSES,
    SUMS,
    USED,
    VENDOR,
    BatchMirror,
    SegmentMirror,
    Send,
    mirror,
    unpack,
)


class Auditor:
    def __init__(self, database: Database, coverage: Coverage) -> None:
        self.db = database
        self._coverage = coverage
        self.broken: Broken | None = None
        self.sends: dict[str, Send] = {}
        self.of_row: dict[tuple[str, int], list[Send]] = defaultdict(list)
        self.segments: dict[tuple[str, int], SegmentMirror] = {}
        self.by_batch: dict[str, list[SegmentMirror]] = {}
        self.batches: dict[str, BatchMirror] = {}
        self.worker_ids: dict[tuple[str, str], int] = {}
        self.superseded: set[tuple[str, str]] = set()
        """Workers that may act on a lease they have lost, because they cannot know yet."""
        self.max_attempts: dict[str, int] = {}
        self.ways: dict[str, dict[int, frozenset[tuple[str, str]]]] = {}
        """By batch and row: where it may go, and as which model."""
        self.repeats: dict[str, dict[int, int]] = {}
        """By batch: rows that share the outcome of an earlier one, and which."""
        self.soft: set[str] = set()
        """Batches whose cap was lowered or is soft: it may stand above what is spent."""
        self.crashed: set[tuple[str, str]] = set()
        self._spent = 0
        self._changes = -1
        self.commits = 0
        self.patience_ms = 10**12
        """After a deadline."""

    # ------------------------------------------------------------------------------------------------------- sending

    def sent(self, worker: tuple[str, str], request: dict[str, Any], vendor: str) -> Send:
        """A vendor received a row."""
        batch_id, index = request["batch"], request["index"]
        segment, row = self._find(batch_id, index)
        stale = worker in self.superseded
        send = Send(f"s{len(self.sends)}", batch_id, index, worker, segment.round, stale, vendor)
        self.sends[send.name] = send
        self._check_way(send, request["model"])
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

    def _check_way(self, send: Send, model: str) -> None:
        ways = self.ways.get(send.batch_id, {}).get(send.index)
        if ways is None:
            return
        if (send.vendor, model) not in ways:
            self._break(Law.ROUTE, f"row {send.index} of {send.batch_id} went to {send.vendor} as {model}, not {ways}")
        earlier = self.of_row[send.batch_id, send.index]
        if earlier and earlier[-1].vendor != send.vendor and earlier[-1].round == send.round:
            self._coverage.hit(Fault.MOVED_ON)

    def billed(self, send: Send) -> None:
        """The vendor knows what it bills for the row: the real money, of which the product may learn nothing."""
        batch = self.batches[send.batch_id]
        batch.billed += send.billed_picousd
        if 0 <= batch.cap < batch.billed and send.batch_id not in self.soft and not self.superseded:
            self._break(Law.CAP, f"vendors bill {batch.billed} for {send.batch_id}, its cap is {batch.cap}")

    def _find(self, batch_id: str, index: int) -> tuple[SegmentMirror, int]:
        for segment in self.by_batch[batch_id]:
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
            found = self.db.execute(
                "SELECT id FROM worker WHERE name = ? AND incarnation = ?", (worker[0], worker[1])
            ).fetchone()
            if found:
                self.worker_ids[worker] = found[0]
        changes = self.db.changes()
        if changes == self._changes or call in ("heartbeat", "take_lease"):
            return
        self._changes = changes
        me = self.worker_ids.get(worker, -1)
        phases = {row[0]: row for row in self.db.execute(BATCHES).fetchall()}
        self._look_at_segments(me, call, phases)
        self._look_at_blobs(worker)
        for batch_id, row in phases.items():
            self._look_at_batch(batch_id, row)
        for gone in self.batches.keys() - phases.keys():
            del self.batches[gone]
        usage = self.db.execute("SELECT coalesce(sum(cost_picousd), 0) FROM usage").fetchone()[0]
        if usage != self._spent:
            raise Broken(Law.USAGE, f"the table says {usage}, durable attempts cost {self._spent}")

    def _look_at_segments(self, me: int, call: str, phases: dict[str, Any]) -> None:
        seen = set()
        for row in self.db.execute(SEGMENTS).fetchall():
            key = (row[0], row[1])
            if row[0] not in phases:
                continue  # being dropped
            seen.add(key)
            old = self.segments.get(key)
            now = (row[3], row[5], row[6], row[7], row[8], row[9], row[10])
            if old is not None and now == (
                old.row_map,
                old.open,
                old.state,
                old.round,
                old.epoch,
                old.holder,
                old.closed_as,
            ):
                continue
            new = mirror(row)
            where = f"segment {key[1]} of {key[0]}"
            self._check_shape(where, new)
            if old is None:
                self.by_batch.setdefault(key[0], []).append(new)
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
            self.by_batch[key[0]].remove(gone)

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
                    previous = new.previous[row] if new.previous else 0
                    if before == PENDING and after >= 16:
                        self._check_shared(where.split(" of ")[1], new.first_index + row, (after, previous))
                    else:
                        self._check_move(f"{where}, row {row}", (before, after), previous)
        if new.closed_as and not old.closed_as:
            for byte, counted in zip(new.row_map, new.counted, strict=True):
                if byte <= RESERVED:
                    self._coverage.hit(
                        Move.CLOSE_RESTORED
                        if counted != CLOSED_BYTE[new.closed_as]
                        else Move.CLOSE_PENDING
                        if byte == PENDING
                        else Move.CLOSE_RESERVED
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

    def _check_shared(self, batch_id: str, index: int, what: tuple[int, int]) -> None:
        """A row that was never at a vendor ends as the row it repeats has ended, durably, or keeps its earlier answer.
        `what`: (its byte, the one of the round before)."""
        after, previous = what
        leader = self.repeats.get(batch_id, {}).get(index)
        if leader is None:
            raise Broken(Law.MOVES, f"row {index} of {batch_id}: pending to {after}, and it repeats no row")
        segment, row = self._find(batch_id, leader)
        if segment.counted[row] != after and not (previous == after and after in SUCCESSES):
            raise Broken(
                Law.MOVES, f"row {index} of {batch_id} ended as {after}, row {leader} as {segment.counted[row]}"
            )
        self._coverage.hit(Move.SHARE)

    def _check_reopened(self, where: str, old: SegmentMirror, new: SegmentMirror) -> None:
        if old.state != "settled":
            raise Broken(Law.MOVES, f"{where} was reopened while {old.state}")
        chosen = frozenset(
            self.db.execute("SELECT reopen_bytes FROM batch WHERE batch_id = ?", (where.split(" of ")[1],)).fetchone()[
                0
            ]
        )
        for row, (before, after) in enumerate(zip(old.counted, new.row_map, strict=True)):
            expected = PENDING if before in chosen else before
            previous = new.previous[row] if new.previous else 0
            if after != expected or previous != (before if before in chosen else 0):
                raise Broken(Law.MOVES, f"{where}, row {row}: reopened from {before} to {after}, before {previous}")
            if before in chosen:
                self._coverage.hit(
                    Move.REOPEN_SUCCESS
                    if before in SUCCESSES
                    else Move.REOPEN_CLOSED
                    if old.row_map[row] <= RESERVED
                    else Move.REOPEN_FAILURE
                )

    # --------------------------------------------------------------------------------------------------------- records

    def _look_at_blobs(self, worker: tuple[str, str]) -> None:
        for key, data in self.db.new_blobs():
            if key.partition("/")[2].startswith(("part/", "result/")):
                frames = self.db.execute(FRAMES, (key,)).fetchall()
                for batch_id, number, offset, length in frames:
                    for record in unpack(data[offset : offset + length]):
                        self._book(worker, (batch_id, number), record)

    def _book(self, worker: tuple[str, str], key: tuple[str, int], record: list[Any]) -> None:
        """Marks the attempt that a new record tells of as durable."""
        segment = self.segments[key]
        index = segment.first_index + record[ROW]
        where = f"row {index} of {key[0]}"
        sends = self.of_row[key[0], index]
        send = self.sends.get(record[REQUEST_ID]) if record[REQUEST_ID] else None
        leader = self.repeats.get(key[0], {}).get(index, -1)
        if send is not None and (send.batch_id, send.index) == (key[0], leader):
            if not send.durable or (record[BYTE] in SUCCESSES and record[BODY] != send.body):
                raise Broken(Law.OWN_ANSWER, f"{where} shares what was not said, or is not durable, to row {leader}")
            send = None  # nothing of it is this row's own
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
        if record[VENDOR] != send.vendor:
            raise Broken(Law.OWN_ANSWER, f"{where}: {send.vendor} got {send.name}, its record names {record[VENDOR]}")
        if not send.delivered or send.worker != worker:
            raise Broken(Law.OWN_ANSWER, f"{where}: {send.name} was sent by {send.worker}, written by {worker}")
        if record[BYTE] in SUCCESSES:
            if send.kind or record[BODY] != send.body or record[BYTE] != FLAG_BYTE[send.flag]:
                raise Broken(
                    Law.OWN_ANSWER, f"{where}: {send.name} ended as {send.kind or send.flag}, not {record[BYTE]}"
                )
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
        counts = dict(self.db.execute(COUNTS, (batch_id, round_)).fetchall())
        sums = self.db.execute(SUMS, (batch_id, round_)).fetchone()
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
        still_open = sum(1 for segment in self.by_batch.get(batch_id, ()) if segment.open)
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
        batch.cap = -1 if cap_soft else cap
        if cap >= 0 and not cap_soft and batch_id not in self.soft:
            drawn = self.db.execute(
                "SELECT coalesce(sum(picousd), 0) FROM allowance WHERE batch_id = ?", (batch_id,)
            ).fetchone()[0]
            if cost + possible + orphan + drawn > cap:
                raise Broken(
                    Law.CAP, f"{batch_id}: cost {cost} + possible {possible} + orphan {orphan} + drawn {drawn} > {cap}"
                )
        stands = (
            (round_, tuple(sorted(counts.items())), cost, attempts, settled_at, closing) if phase == "settled" else None
        )
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
