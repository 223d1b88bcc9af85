"""The queue of accounts: where each stands among those that wait for the same lanes (`core.fair_share`).

A row a (account, set of lanes). All that is charged to an account is added to each of its rows; each row began where
its own competitors stood. What is read at a claim is the first few rows of a set by index, however many wait.

`state` is written without a look at what it was wherever something begins to wait, and set back only by who holds the
row and then finds nothing: of two such transactions the later sees what the earlier did.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import Connection, and_, bindparam, case, exists, func, select, text, update

from batchwright.core import fair_share
from batchwright.ports.observer import Fairness
from batchwright.ports.stored import Share
from batchwright.store import dialect
from batchwright.store.prepared import Prepared, StoredRow
from batchwright.store.schema import (
    HELD_IN_TURN,
    NOT_QUEUED,
    PICKABLE,
    PICKABLE_BY,
    QUEUED,
    pick,
    queue,
    segment,
    share,
)

RESTS, WAITS, FULL = 0, 1, 2
"""States of a row. FULL: something waits, and workers hold as many segments of the account as they may."""


class LaneSetHead(NamedTuple):
    lane_set: str
    virtual: int
    """The least of those that wait."""
    deadline_ms: int
    """The nearest of batches that wait; 0: none has one."""


@dataclass(slots=True)
class Served:
    """What one transaction changes of an account's place."""

    virtual: int = 0
    claims: int = 0


def _lane_sets() -> Prepared:
    """Steps from each set that somebody waits in to the next by index; how many wait in it costs nothing."""
    first = select(func.min(queue.c.lane_set).label("lane_set")).where(text(QUEUED))
    sets = first.cte("sets", recursive=True)
    following = select(func.min(queue.c.lane_set)).where(text(QUEUED), queue.c.lane_set > sets.c.lane_set)
    sets = sets.union_all(
        select(following.correlate(sets).scalar_subquery()).select_from(sets).where(sets.c.lane_set.is_not(None))
    )
    least = select(func.min(queue.c.virtual)).where(queue.c.lane_set == sets.c.lane_set, text(QUEUED))
    due = select(func.min(pick.c.deadline_ms)).where(pick.c.lane_set == sets.c.lane_set, text(PICKABLE_BY))
    return Prepared(
        select(
            sets.c.lane_set,
            least.correlate(sets).scalar_subquery().label("virtual"),
            due.correlate(sets).scalar_subquery().label("deadline_ms"),
        ).where(sets.c.lane_set.is_not(None))
    )


_LANE_SETS = _lane_sets()
_FIRST = Prepared(
    select(queue.c.account, queue.c.virtual)
    .where(queue.c.lane_set == bindparam("lanes"), text(QUEUED))
    .order_by(queue.c.virtual, queue.c.account)
    .limit(bindparam("at_most"))
)
_URGENT = Prepared(
    select(pick.c.account, pick.c.batch_id, pick.c.deadline_ms)
    .where(
        pick.c.lane_set == bindparam("lanes"),
        text(PICKABLE_BY),
        pick.c.deadline_ms <= bindparam("until_ms"),
    )
    .order_by(pick.c.deadline_ms)
    .limit(bindparam("at_most"))
)
_next = pick.alias("next")
_first_of_place = (
    select(_next.c.batch_id)
    .where(
        _next.c.account == queue.c.account,
        _next.c.lane_set == queue.c.lane_set,
        # `PICKABLE`, in words that name the table.
        text("next.ready = 1 AND next.waiting > 0"),
    )
    .order_by(_next.c.behind, _next.c.turn, _next.c.seq)
    .limit(1)
    .correlate(queue)
    .scalar_subquery()
)
# By the key of both: what is not queued is left out by who reads it, lest another index were taken for that.
_PLACES = Prepared(
    select(
        queue.c.account,
        queue.c.lane_set,
        queue.c.state,
        queue.c.virtual,
        queue.c.turn.label("account_turn"),
        share.c.weight,
        share.c.in_flight,
        pick.c.batch_id,
        pick.c.behind,
        pick.c.turn,
        pick.c.seq,
        pick.c.deadline_ms,
    )
    .select_from(queue)
    .join(share, share.c.account == queue.c.account, isouter=True)
    .join(pick, and_(pick.c.batch_id == _first_of_place, pick.c.lane_set == queue.c.lane_set), isouter=True)
    .where(dialect.OneOf(queue.c.account, "accounts"))
)
_PICKS = Prepared(
    select(pick.c.batch_id, pick.c.behind, pick.c.turn, pick.c.seq, pick.c.deadline_ms)
    .where(pick.c.account == bindparam("of_account"), pick.c.lane_set == bindparam("lanes"), text(PICKABLE))
    .order_by(pick.c.behind, pick.c.turn, pick.c.seq)
    .limit(bindparam("at_most"))
)
_HELD = Prepared(
    select(func.count().label("held")).select_from(
        select(segment.c.account)
        .where(segment.c.account == bindparam("of_account"), text(HELD_IN_TURN))
        .limit(bindparam("at_most"))
        .subquery()
    )
)
_RESTING = Prepared(select(func.max(queue.c.virtual).label("virtual")).where(text(NOT_QUEUED)))
_ENTER = Prepared(
    dialect.insert_or_change(
        queue,
        lambda new: {
            "state": WAITS,
            "virtual": case(
                (and_(queue.c.state != WAITS, queue.c.virtual < new.virtual), new.virtual), else_=queue.c.virtual
            ),
        },
    ),
    ("account", "lane_set", "state", "virtual"),
)
_CHARGE = Prepared(
    update(queue)
    .where(queue.c.account == bindparam("of_account"))
    .values(
        virtual=queue.c.virtual + bindparam("more"),
        turn=queue.c.turn + bindparam("claims"),
        # One that held all it may holds less now, or finds out anew that it does not.
        state=case((queue.c.state == FULL, WAITS), else_=queue.c.state),
    )
)
_LOCK = Prepared(
    select(queue.c.state)
    .where(queue.c.account == bindparam("of_account"), queue.c.lane_set == bindparam("lanes"))
    .with_for_update(skip_locked=True)
)
_REST = Prepared(
    update(queue)
    .where(
        queue.c.account == bindparam("of_account"),
        queue.c.lane_set == bindparam("lanes"),
        ~exists().where(pick.c.account == queue.c.account, pick.c.lane_set == queue.c.lane_set, text(PICKABLE)),
    )
    .values(state=RESTS)
)
_FILL = Prepared(
    update(queue)
    .where(queue.c.account == bindparam("of_account"), queue.c.lane_set == bindparam("lanes"), text(QUEUED))
    .values(state=FULL)
)
_SET_SHARE = dialect.insert_or_replace(share, ("weight", "in_flight"))
_SHARES = select(share).order_by(share.c.account)
_SHARE_OF = Prepared(select(share.c.weight, share.c.in_flight).where(share.c.account == bindparam("of_account")))
_ACCOUNTS = (
    select(queue.c.state, func.count(queue.c.account.distinct()).label("accounts"))
    .where(queue.c.state != RESTS)
    .group_by(queue.c.state)
)
_LAST = Prepared(
    select(func.max(queue.c.virtual).label("virtual")).where(queue.c.lane_set == bindparam("lanes"), text(QUEUED))
)
_WAKE = update(queue).where(queue.c.account == bindparam("of_account"), queue.c.state == FULL).values(state=WAITS)


def lane_sets(connection: Connection) -> list[LaneSetHead]:
    """The sets of lanes that something waits for."""
    return [
        LaneSetHead(row.lane_set, int(row.virtual or 0), int(row.deadline_ms or 0))
        for row in _LANE_SETS.all(connection, {})
    ]


def first(connection: Connection, lane_set: str, at_most: int) -> list[StoredRow]:
    """(account, virtual) of those that come first in a set of lanes."""
    return _FIRST.all(connection, {"lanes": lane_set, "at_most": at_most})


def urgent(connection: Connection, lane_set: str, until_ms: int, at_most: int) -> list[StoredRow]:
    """(account, batch_id, deadline_ms) of batches due until then, the next first."""
    return _URGENT.all(connection, {"lanes": lane_set, "until_ms": until_ms, "at_most": at_most})


def places(connection: Connection, accounts: Sequence[str]) -> dict[str, list[StoredRow]]:
    """Where these accounts wait: lane_set, virtual, account_turn; weight and in_flight (None: as every account has
    it), and the batch whose turn is next there (batch_id and what `picks` says; None: there is none)."""
    found: dict[str, list[StoredRow]] = {}
    for row in _PLACES.all(connection, {"accounts": dialect.many(connection, accounts)}):
        if row.state == WAITS:
            found.setdefault(row.account, []).append(row)
    return found


def picks(connection: Connection, account: str, lane_set: str, at_most: int) -> list[StoredRow]:
    """(batch_id, behind, turn, seq, deadline_ms) of the batches whose turn is next."""
    return _PICKS.all(connection, {"of_account": account, "lanes": lane_set, "at_most": at_most})


def count_held(connection: Connection, account: str, at_most: int) -> int:
    """Segments of the account that workers hold which work for all accounts; no more are counted than `at_most`."""
    row = _HELD.first(connection, {"of_account": account, "at_most": at_most})
    assert row is not None
    return int(row.held)


def share_of(connection: Connection, account: str) -> Share:
    row = _SHARE_OF.first(connection, {"of_account": account})
    return Share(account=account) if row is None else Share(account=account, weight=row.weight, in_flight=row.in_flight)


def enter(connection: Connection, places_: Iterable[tuple[str, str]]) -> None:
    """Something waits for these (account, set of lanes) from now on."""
    wanted = sorted(places_)
    if not wanted:
        return
    heads = lane_sets(connection)
    resting: int | None = None
    rows = []
    for account, lanes in wanted:
        present = [head.virtual for head in heads if fair_share.compete(head.lane_set, lanes)]
        if not present and resting is None:
            row = _RESTING.first(connection, {})
            resting = 0 if row is None or row.virtual is None else int(row.virtual)
        least = min(present) if present else resting
        rows.append({"account": account, "lane_set": lanes, "state": WAITS, "virtual": fair_share.beginning(0, least)})
    _ENTER.run_many(connection, rows)


def charge(connection: Connection, served: Mapping[str, Served]) -> None:
    """Adds to what accounts were served."""
    rows = [
        {"of_account": account, "more": change.virtual, "claims": change.claims}
        for account, change in sorted(served.items())
    ]
    if rows:
        _CHARGE.run_many(connection, rows)


def rest(connection: Connection, places_: Iterable[tuple[str, str]]) -> None:
    """A claim has found nothing for these (account, set of lanes); so has this, once nobody else can add to them."""
    for account, lanes in sorted(places_):
        place = {"of_account": account, "lanes": lanes}
        if _LOCK.first(connection, place) is not None:
            _REST.run(connection, place)


def fill(connection: Connection, bounds: Mapping[tuple[str, str], int]) -> None:
    """A claim has found these (account, set of lanes) to hold all they may, by the bound."""
    for (account, lanes), in_flight in sorted(bounds.items()):
        place = {"of_account": account, "lanes": lanes}
        locked = _LOCK.first(connection, place) is not None
        if locked and count_held(connection, account, in_flight) >= in_flight:
            _FILL.run(connection, place)


def set_share(connection: Connection, given: Share) -> None:
    values = {"account": given.account, "weight": given.weight, "in_flight": given.in_flight}
    connection.execute(_SET_SHARE, values)
    connection.execute(_WAKE, {"of_account": given.account})


def shares(connection: Connection) -> list[Share]:
    return [
        Share(account=row.account, weight=row.weight, in_flight=row.in_flight) for row in connection.execute(_SHARES)
    ]


def fairness(connection: Connection) -> Fairness:
    """How far accounts that wait for the same lanes are apart: two looks by index a set of lanes."""
    counts = {row.state: int(row.accounts) for row in connection.execute(_ACCOUNTS)}
    spread = 0
    for head in lane_sets(connection):
        row = _LAST.first(connection, {"lanes": head.lane_set})
        spread = max(spread, int(row.virtual or 0) - head.virtual if row is not None else 0)
    return Fairness(
        waiting=counts.get(WAITS, 0), at_bound=counts.get(FULL, 0), spread_tokens=spread // fair_share.PER_TOKEN
    )
