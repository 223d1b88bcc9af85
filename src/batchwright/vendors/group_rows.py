"""Rows at a vendor's batch API, and the group that they are in there: what is known of each while it is under way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Protocol, TypeVar

from batchwright.ports.groups import Group, RowAttempt
from batchwright.ports.vendor import Answer, RowAsk
from batchwright.ports.vendor_batches import BatchView

T = TypeVar("T")


class StoreThread(Protocol):
    """Where the store may be waited for."""

    async def do(self, work: Callable[[], T]) -> T: ...


class Row:
    """A row at the batch API, from `send_row` to its answer. Implements `ports.vendor.GroupCall`."""

    __slots__ = ("_abandoned", "ask", "body", "endpoint", "on_end")

    def __init__(
        self,
        ask: RowAsk,
        endpoint: str,
        body: bytes,
        *,
        on_end: Callable[[Answer], None],
        abandoned: Callable[[Row], None],
    ) -> None:
        self.ask = ask
        self.endpoint = endpoint
        self.body = body
        self.on_end: Callable[[Answer], None] | None = on_end
        """None: it has its answer, or nobody here waits for one."""
        self._abandoned = abandoned

    @property
    def attempt(self) -> RowAttempt:
        return RowAttempt(self.ask.row_index, self.ask.attempts)

    def answer(self, answer: Answer) -> None:
        on_end, self.on_end = self.on_end, None
        if on_end is not None:
            on_end(answer)

    def abort(self) -> None:
        if self.on_end is not None:
            self.on_end = None
            self._abandoned(self)

    def leave(self) -> None:
        self.on_end = None


def row_id(tag: str, attempt: RowAttempt) -> str:
    """What a row is called at the vendor: no other row of any group is called so."""
    return f"{tag[-8:]}-{attempt.row_index}-{attempt.attempts}"


class End(Enum):
    """What is to become of the rows of a group that have no answer."""

    ANSWERED = auto()
    """There are none."""
    SENT_ANEW = auto()
    """Nothing of them was done: they go into other groups."""
    SPLIT = auto()
    """The vendor refused all of it for something in it: in two halves."""


@dataclass(eq=False)
class GroupWork:
    """A group and who waits for its rows."""

    group: Group
    rows: dict[str, Row] = field(default_factory=dict)
    """By what each is called at the vendor; those that somebody here waits for, or waited for."""
    ours: bool = True
    """This process keeps it; False: an earlier or another one did."""
    waiting: str = ""
    """What it waits for, for a person."""
    recalled: str = ""
    """Why it was called back; empty: it was not."""
    recall: asyncio.Event = field(default_factory=asyncio.Event)
    view: BatchView | None = None

    @property
    def ids(self) -> Sequence[str]:
        """What its rows are called there, in order."""
        return self.group.ids or [row_id(self.group.tag, attempt) for attempt in self.group.rows]

    def left(self) -> list[Row]:
        """Those that wait for an answer."""
        return [row for row in self.rows.values() if row.on_end is not None]
