"""Rows that are at a vendor's own batch API, by group: what the store keeps of each, from before it is sent.

    kept          its tag and its rows are durable; the vendor may or may not have it
    named         the vendor has it, under this id

A row of a group is named by its request_index and the attempts that it had before: whoever sends that very attempt
again, after a crash or elsewhere, finds its group and asks the vendor for it instead. A group stays for as long as its
batch does, unless nothing of it was ever done.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import msgspec


class RowAttempt(NamedTuple):
    row_index: int
    """The row's request_index."""
    attempts: int
    """That it had before this one, over all rounds."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    tag: str
    """Ours alone, and never given twice: the vendor keeps it, and finds the group by it."""
    batch_id: str
    """The batch of ours that its rows are of."""
    vendor: str
    """The destination's name."""
    rows: tuple[RowAttempt, ...]
    ids: tuple[str, ...] = ()
    """What each row is called at the vendor; empty: by tag and attempt (`vendors.group_rows.row_id`)."""
    vendor_batch_id: str = ""
    """Empty: nobody has heard of one."""
    keeper: str = ""
    """Which process keeps it, as others may ask whether that has ended; empty: nobody does any more."""
    kept_at_ms: int
    """When it was kept, by the calendar."""


class Groups(Protocol):
    """Synchronous; safe to call from any thread. Errors: StoreError."""

    def keep_group(self, group: Group) -> None:
        """Returns once it is durable. One of the same tag stays as it is."""

    def name_group(self, tag: str, vendor_batch_id: str) -> None:
        """The vendor has made this batch of it."""

    def drop_group(self, tag: str) -> None:
        """Nothing of it was done, and nothing will be: its rows are sent anew."""

    def groups_of(self, batch_id: str) -> Sequence[Group]:
        """The oldest first."""
