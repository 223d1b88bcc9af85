"""What the auditor holds the product to, and how it says that a law was broken."""

from __future__ import annotations

from enum import StrEnum


class Law(StrEnum):
    """What the auditor holds the product to."""

    ROUTE = "a row only goes where it may, as the model that it is there"
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
    OBJECTS = "an object that is named is there, whole, until nothing names it; one that nobody names goes"
    READ = "a reader gets every row as it is stored, in order"
    OWN_CHECK = "the product's own check finds nothing"


class Broken(Exception):
    def __init__(self, law: Law, what: str) -> None:
        super().__init__(f"{law.name}: {what}")
        self.law = law
