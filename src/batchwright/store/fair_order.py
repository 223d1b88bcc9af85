"""The order of one claim over all accounts: who is next, and of which batch.

The account with the least virtual time first (`core.fair_share`), of those with a set of lanes that can take rows;
within it the batch of the highest priority, then the one that is nearly due, then the one longest without a claim.
Accounts are read by index from the front of the queue, a few more than are asked for; the rest may be ten thousand.

Two workers do not serve one account at the same moment as long as there are others: each takes the accounts it reads
as its turns, and reads their places once it has them. It gives its own no more than a segment above where another's
stood, though it was asked for more: they have moved on by about that when both are done. Where all are another's, it
goes beside that one: then there are fewer accounts than workers, and to wait would leave lanes empty.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import Connection

from batchwright.core import fair_share
from batchwright.ports.store import ClaimRequest
from batchwright.store import dialect, queueing
from batchwright.store.prepared import StoredRow
from batchwright.store.queueing import LaneSetHead, Served

READ_AT_MOST = 512
"""Accounts that one claim reads: those at which it finds nothing leave the queue with it, so that the next one, which
is due soon, reads others."""
URGENT_AT_MOST = 32
"""Batches nearly due that a claim looks at, by set of lanes."""


@dataclass(slots=True)
class _Batch:
    batch_id: str
    behind: int
    turn: int
    seq: int
    deadline_ms: int
    lane_sets: set[str] = field(default_factory=set)


@dataclass(slots=True)
class _Account:
    name: str
    weight: int
    turn: int
    room: int
    """Segments that it may still be given; -1: no bound."""
    loan: int = 0
    used: bool = False
    """Something was claimed from its first batch, or nothing could be."""
    virtual: dict[str, int] = field(default_factory=dict)
    """By set of lanes it waits in."""
    batches: dict[str, _Batch] = field(default_factory=dict)
    whole: bool = False
    """All batches were read that this claim can need; else the first of each set of lanes, which mostly is enough."""

    @property
    def key(self) -> int:
        return min(self.virtual.values()) - self.loan

    def open_lane_sets(self) -> set[str]:
        """Where it is in turn: with its least virtual time, and wherever the competitors are the same."""
        least = min(self.virtual, key=lambda lanes: (self.virtual[lanes], lanes))
        return {
            lanes
            for lanes, virtual in self.virtual.items()
            if virtual <= self.virtual[least] or fair_share.compete(lanes, least)
        }


@dataclass(frozen=True, slots=True)
class Candidate:
    account: str
    weight: int
    batch_id: str
    lane_sets: frozenset[str]


class FairOrder:
    def __init__(self, connection: Connection, request: ClaimRequest, now_ms: int) -> None:
        self._connection = connection
        self._request = request
        self._now_ms = now_ms
        self._excluded = Counter(lane_set for _, lane_set in request.exclude)
        self._lane_sets: list[LaneSetHead] | None = None
        self._accounts: dict[str, _Account] = {}
        self._seen = set(request.but_accounts)
        self._elsewhere: dict[str, float] = {}
        """Accounts that other workers are serving at this moment, and where they stood before that."""
        self._largest = 0
        """Virtual time of the largest segment so far."""
        self._line: deque[tuple[int, str]] = deque()
        """(virtual time, name) of accounts that were read, and are nobody's turn yet: no more are taken than needed."""
        self._unread: float = math.inf
        """Accounts that were not read stand no nearer than this."""
        self._taken = 0
        self._reads = request.limit
        """Accounts to be read at once: each may have just one segment. If that was too few, twice as many."""
        self._deadlines: dict[str, int] = {}
        self.served: dict[str, Served] = {}
        self.turns: dict[str, int] = {}
        """New ones, by batch."""
        self.vain: set[tuple[str, str]] = set()
        """(account, set of lanes) with nothing to claim."""
        self.full: dict[tuple[str, str], int] = {}
        """(account, set of lanes) that hold all they may, and that bound."""

    def next(self) -> Candidate | None:
        """None: nothing can be claimed, or more is not worth the search."""
        while True:
            account = min(self._accounts.values(), key=_standing, default=None)
            nearest = self._line[0][0] if self._line else self._unread
            if account is not None and account.key <= nearest:
                if self._taken and account.key > min(self._elsewhere.values(), default=math.inf) + self._largest:
                    return None  # all it could have now is more than others get meanwhile
                found = self._of(account)
                if found is not None:
                    return found
                del self._accounts[account.name]
            elif self._line:
                needed = max(1, self._request.limit - self._taken)
                some = [self._line.popleft() for _ in range(min(needed, len(self._line)))]
                self._enter({name: virtual for virtual, name in some})
            elif not self._read_more():
                return None

    def took(self, candidate: Candidate, tokens: int, *, given: int) -> None:
        """A segment was claimed from the batch. `tokens`: charged for it; `given`: virtual time that goes back."""
        self._taken += 1
        self._largest = max(self._largest, fair_share.charge(tokens, candidate.weight))
        account = self._accounts[candidate.account]
        virtual = fair_share.charge(tokens, account.weight) - given
        for lanes in account.virtual:
            account.virtual[lanes] += virtual
        account.turn += 1
        account.used = True
        account.batches[candidate.batch_id].turn = self.turns[candidate.batch_id] = account.turn
        served = self.served.setdefault(account.name, Served())
        served.virtual += virtual
        served.claims += 1
        account.room -= account.room > 0
        if not account.room:
            del self._accounts[account.name]

    def passed(self, candidate: Candidate) -> None:
        """Nothing of the batch could be had: what waits there is being claimed by others."""
        account = self._accounts[candidate.account]
        account.used = True
        account.batches[candidate.batch_id].lane_sets -= candidate.lane_sets

    # ------------------------------------------------------------------------------------------------------------

    def _of(self, account: _Account) -> Candidate | None:
        if account.used and not account.whole:
            self._read_whole(account)
        if not account.virtual:
            return None
        open_lanes = account.open_lane_sets()
        best = min(
            (batch for batch in account.batches.values() if not batch.lane_sets.isdisjoint(open_lanes)),
            key=self._rank,
            default=None,
        )
        if best is None:
            # What is left of it stands elsewhere.
            for lanes in open_lanes:
                del account.virtual[lanes]
            return self._of(account)
        lanes_now = frozenset(best.lane_sets & open_lanes)
        return Candidate(account.name, account.weight, best.batch_id, lanes_now)

    def _rank(self, batch: _Batch) -> tuple[int, float, int, int]:
        due_ms = batch.deadline_ms
        is_urgent = bool(due_ms) and due_ms - self._now_ms <= fair_share.HORIZON_MS
        return batch.behind, due_ms if is_urgent else math.inf, batch.turn, batch.seq

    def _read_more(self) -> bool:
        """Reads accounts further on in the queue; false: there are none, or enough were read."""
        if self._lane_sets is None:
            found = queueing.lane_sets(self._connection)
            self._lane_sets = sorted(
                (head for head in found if not self._request.is_full(head.lane_set)),
                key=lambda head: (head.virtual, head.lane_set),
            )
            urgent = self._read_urgent()
            self._seen.update(urgent)
            self._enter(dict.fromkeys(urgent, math.inf))
        elif self._unread == math.inf or len(self._seen) >= READ_AT_MOST:
            return self._go_beside()
        self._read_first()
        return True

    def _read_first(self) -> None:
        at_most = len(self._seen) + self._reads
        self._reads *= 2
        standing: dict[str, int] = {}
        unread = math.inf
        for head in self._lane_sets or ():
            if len(standing) >= at_most and head.virtual > max(standing.values()):
                unread = min(unread, head.virtual)
                break
            rows = queueing.first(self._connection, head.lane_set, at_most)
            for account, virtual in rows:
                standing[account] = min(virtual, standing.get(account, virtual))
            if len(rows) == at_most:
                unread = min(unread, rows[-1].virtual)
        self._unread = unread
        fresh = ((virtual, name) for name, virtual in standing.items() if virtual <= unread and name not in self._seen)
        self._line.extend(sorted(fresh))
        self._seen.update(name for _, name in self._line)

    def _read_urgent(self) -> list[str]:
        until_ms = self._now_ms + fair_share.HORIZON_MS
        for head in self._lane_sets or ():
            if not 0 < head.deadline_ms <= until_ms:
                continue
            for account, batch_id, deadline_ms in queueing.urgent(
                self._connection, head.lane_set, until_ms, URGENT_AT_MOST
            ):
                if account not in self._request.but_accounts and (batch_id, head.lane_set) not in self._request.exclude:
                    self._deadlines[account] = min(deadline_ms, self._deadlines.get(account, deadline_ms))
        return list(self._deadlines)

    def _go_beside(self) -> bool:
        """Serves accounts that others are serving; those with a bound are left to them, who alone can keep it."""
        if self.served or not self._elsewhere:
            return False
        names, self._elsewhere = list(self._elsewhere), {}
        self._open(names, beside=True)
        return bool(self._accounts)

    def _enter(self, names: Mapping[str, float]) -> None:
        """`names`: with where they stood when they were read."""
        turns = {f"claims of {name}": name for name in names}
        mine = {turns[turn] for turn in dialect.try_turns(self._connection, list(turns))}
        self._elsewhere |= {name: virtual for name, virtual in names.items() if name not in mine}
        self._open([name for name in names if name in mine])

    def _open(self, names: list[str], *, beside: bool = False) -> None:
        """Reads where the accounts stand, now that nobody else moves them, and which batches are next."""
        if names:
            for name, rows in queueing.places(self._connection, names).items():
                self._open_one(name, rows, beside=beside)

    def _open_one(self, name: str, rows: list[StoredRow], *, beside: bool) -> None:
        allowed = {head.lane_set for head in self._lane_sets or ()}
        in_flight = rows[0].in_flight or 0
        account = _Account(
            name=name,
            weight=rows[0].weight or fair_share.WEIGHT_ONE,
            turn=max(row.account_turn for row in rows),
            room=-1,
        )
        if name in self._deadlines:
            account.loan = fair_share.loan(self._deadlines[name] - self._now_ms)
        if in_flight:
            account.room = 0 if beside else in_flight - queueing.count_held(self._connection, name, in_flight)
            if not account.room:
                self.full |= {} if beside else {(name, row.lane_set): in_flight for row in rows}
                return
        enough = name not in self._deadlines
        for row in rows:
            if row.batch_id is None:
                self.vain.add((name, row.lane_set))
            elif row.lane_set in allowed:
                account.virtual[row.lane_set] = row.virtual
                enough &= self._add(account, row.lane_set, row)
        if account.virtual and not enough:
            self._read_whole(account)
        if account.virtual:
            self._accounts[name] = account

    def _read_whole(self, account: _Account) -> None:
        """As many batches of each set of lanes as can be needed, were each to give one segment."""
        account.whole = True
        for lanes in list(account.virtual):
            at_most = self._request.limit + self._excluded[lanes]
            rows = queueing.picks(self._connection, account.name, lanes, at_most)
            if not [row for row in rows if self._add(account, lanes, row)]:
                del account.virtual[lanes]

    def _add(self, account: _Account, lanes: str, row: StoredRow) -> bool:
        """False: the batch is left alone at these lanes."""
        if (row.batch_id, lanes) in self._request.exclude:
            return False
        batch = account.batches.get(row.batch_id)
        if batch is None:
            batch = _Batch(row.batch_id, row.behind, row.turn, row.seq, row.deadline_ms)
            account.batches[row.batch_id] = batch
        batch.turn = max(batch.turn, row.turn)
        batch.lane_sets.add(lanes)
        return True


def _standing(account: _Account) -> tuple[int, str]:
    return account.key, account.name
