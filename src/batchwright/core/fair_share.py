"""Whose turn it is: an account's virtual time, and what deadlines and answers change of it.

An account's virtual time grows by the tokens it is served, divided by its weight, so that whoever has the least of it
has had the least of its share and comes first. A segment is charged with an estimate when it is claimed, because its
answers come much later; once it is let go, what was estimated is replaced by what was used. An account with a batch
that is nearly due is lent some virtual time, never given any: it comes first until the loan is used up, and waits as
much longer once the batch has ended.

Virtual time has no unit of its own: `PER_TOKEN` a token at weight 1. It is a 64-bit integer: 9e15 tokens at weight 1.
"""

from __future__ import annotations

from typing import NamedTuple

PER_TOKEN = 1_000
"""Virtual time of one token at weight 1."""
WEIGHT_ONE = 100
"""Weights are counted in hundredths."""
WEIGHT_MIN = 10
WEIGHT_MAX = 10_000
"""In hundredths: a tenth to a hundredfold. Wider bounds would leave too few digits of virtual time, or of tokens."""
IN_FLIGHT_MAX = 1_000_000
"""Segments that may be held of an account at once; more than any number of workers has."""
BYTES_PER_TOKEN = 1
"""Of a segment's input as it is packed: text takes some four bytes a token and packs to a quarter."""
TOKENS_PER_ANSWER = 256
"""Taken for a row's answer until it is there."""
HORIZON_MS = 900_000
"""A batch that is due within it counts as urgent."""
LOAN_TOKENS = 4_000_000
"""The most that an account is lent, at the deadline itself: some eight segments of 500 rows of 1,000 tokens."""


PRIORITY_MAX = 100
"""Of a batch among those of its account, and as much below 0."""


class Settled(NamedTuple):
    """What a checkpoint leaves of a segment's charge."""

    charged: int
    """Tokens charged for rows that are still open; 0 once it is let go."""
    tokens: int
    """To be added to what its account has been served; below 0: the estimate was too high."""


def estimate_tokens(input_bytes: int, *, rows: int, open_rows: int) -> int:
    """What the open rows of a segment will use, at least 1. `input_bytes`: of all its rows, packed."""
    return max(1, input_bytes * open_rows // (BYTES_PER_TOKEN * max(1, rows)) + TOKENS_PER_ANSWER * open_rows)


def charge(tokens: int, weight: int) -> int:
    """Virtual time of so many tokens (also below 0) for an account of this weight, in hundredths."""
    virtual = abs(tokens) * PER_TOKEN * WEIGHT_ONE // weight
    return virtual if tokens >= 0 else -virtual


def settle(charged: int, used: int, *, leaves: bool) -> Settled:
    """Replaces what was estimated by what was used. `charged` is above 0 as long as the segment is held; `leaves`: it
    has ended, or is given back.

    Until then too much is left charged, for rows to come, and only what has gone beyond the estimate is added.
    """
    left = charged - used
    if leaves:
        return Settled(0, -left)
    if left < 1:
        return Settled(1, 1 - left)
    return Settled(left, 0)


def used_tokens(tokens: int, *, unknown: int, charged: int, open_rows: int) -> int:
    """What answers used: the tokens that were counted, and of `unknown` answers that came without a count what was
    estimated. `open_rows`: before these answers."""
    return tokens + (unknown * charged // open_rows if open_rows > 0 else 0)


def loan(slack_ms: int) -> int:
    """Virtual time lent to an account whose most urgent batch is due in `slack_ms`: none at the horizon and before,
    all of it at the deadline and after."""
    near_ms = HORIZON_MS - max(0, slack_ms)
    return LOAN_TOKENS * PER_TOKEN * near_ms // HORIZON_MS if near_ms > 0 else 0


def beginning(own: int, present: int | None) -> int:
    """Where an account stands that begins to wait again, or for the first time (`own` 0). `present`: the least of those
    that compete with it now; None: nobody does.

    It gets nothing for the time when it had nothing to send; and who has had more than the others does not lose that
    by a short rest.
    """
    return own if present is None else max(own, present)


def compete(one: str, other: str) -> bool:
    """Whether two sets of lanes (their texts joined by newlines) have a lane in common."""
    return not frozenset(one.split("\n")).isdisjoint(other.split("\n"))
