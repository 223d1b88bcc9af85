"""What can befall a store on a server, beside what every world meets, and when it does: chosen by the seed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from random import Random


class StoreFault(StrEnum):
    CUT_BEFORE = "connection cut before a transaction"
    CUT_WITHIN = "connection cut between two statements"
    CUT_AT_COMMIT = "connection cut at the commit, nothing landed"
    CUT_AFTER = "connection cut at the commit, yet it landed"
    SERIALIZATION = "transaction ended by the server: serialization"
    DEADLOCK = "transaction ended by the server: deadlock"
    STATEMENT_TIMEOUT = "statement cancelled by the server: too long"
    LOCK_TIMEOUT = "lock not had in time"
    DISK_FULL = "statement refused by the server: its disk is full"
    DISK_FULL_AT_COMMIT = "commit refused by the server: its disk is full"
    STANDBY = "transaction refused by the server: a standby, which only reads"
    HANG = "connection hangs until it is given up, nothing landed"
    HANG_LANDED = "connection hangs until it is given up, yet it landed"
    FAILOVER = "server lost at a commit, nothing landed; another takes its place"
    FAILOVER_LANDED = "server lost at a commit that landed; another takes its place"
    RESTART = "server restarts, and is away for a while"
    CLOCK = "clock of the server jumps; processes follow one after another"
    DEAF = "no wake-up ever comes"


SQLSTATES = {
    StoreFault.SERIALIZATION: "40001",
    StoreFault.DEADLOCK: "40P01",
    StoreFault.STATEMENT_TIMEOUT: "57014",
    StoreFault.LOCK_TIMEOUT: "55P03",
    StoreFault.DISK_FULL: "53100",
    StoreFault.STANDBY: "25006",
}
"""What the server is made to say."""
AT_A_TRANSACTION = (
    StoreFault.CUT_BEFORE,
    StoreFault.CUT_WITHIN,
    StoreFault.CUT_AT_COMMIT,
    StoreFault.CUT_AFTER,
    StoreFault.DISK_FULL_AT_COMMIT,
    StoreFault.FAILOVER,
    StoreFault.FAILOVER_LANDED,
    *SQLSTATES,
)
HANGS = (StoreFault.HANG, StoreFault.HANG_LANDED)
HANG_S = (8.0, 30.0)
"""Until a connection that says nothing is given up."""
FAILOVER_S = (0.5, 15.0)
"""Until another server has taken the place of one that was lost."""


@dataclass(frozen=True, kw_only=True)
class ServerPlan:
    rate: float
    """Chance of a fault at one transaction."""
    hang_rate: float
    restarts: tuple[tuple[float, float], ...]
    """(when, for how long), in seconds from the begin."""
    clock_jump: tuple[float, int] | None
    """(when, by how many ms)."""
    deaf: bool


def make_server_plan(seed: int, trouble_until_s: float) -> ServerPlan:
    chance = Random(seed * 104_729 + 5)
    moments_s = [chance.uniform(1.0, trouble_until_s) for _ in range(3)]
    jumps = chance.random() < 0.25
    return ServerPlan(
        rate=chance.choice((0.01, 0.05, 0.15)),
        hang_rate=chance.choice((0.0, 0.01, 0.03)),
        restarts=tuple((at_s, chance.choice((0.3, 3.0, 12.0))) for at_s in moments_s[: chance.choice((0, 0, 1, 2))]),
        clock_jump=(moments_s[2], int(chance.choice((1, -1)) * 10 ** chance.uniform(3, 6))) if jumps else None,
        deaf=chance.random() < 0.3,
    )
