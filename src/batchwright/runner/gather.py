"""What one pass over a batch's rows adds up to, independently of the tallies: the report is made of it, and the law.

A row costs a few dictionary steps here; only rows without success and rows whose cost is not known cost more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from batchwright.core import row_map
from batchwright.core.answer_schema import MATCHED_BYTES
from batchwright.core.batch_spec import VendorProtocol
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import Record
from batchwright.core.rows import RowView
from batchwright.ports.batches import BatchStatus

MAX_GROUPS = 200
"""Different (kind, code, parameter) that are told apart; what comes later is counted under its kind alone."""
MAX_KEPT_TEXT = 1000
"""Characters of a sample's message that are kept."""
_FIRST_FAILURE = min(row_map.FAILURE_BYTES)
_MISMATCH = row_map.FLAG_BYTES[Flag.SCHEMA_MISMATCH]


class GroupKey(NamedTuple):
    kind: FailureKind
    code: str
    """The vendor's own code, or empty."""
    param: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One row of a group, so that a person can look at it."""

    request_index: int
    custom_id: str | None
    http_status: int
    message: str
    line: int


@dataclass(slots=True)
class Group:
    sample: Sample
    count: int = 0


@dataclass(slots=True)
class AnsweredBy:
    rows: int = 0
    cost_picousd: int = 0


@dataclass(slots=True)
class Gathered:
    """Sums over the rows that passed through `add`."""

    by_vendor: dict[str, AnsweredBy] | None = None
    """Answers by who gave them; None: not asked for."""

    rows: int = 0
    by_byte: dict[int, int] = field(default_factory=dict)
    groups: dict[GroupKey, Group] = field(default_factory=dict)
    cost_picousd: int = 0
    rows_unpriced: int = 0
    """Rows with an answer that has no price."""
    rows_no_usage: int = 0
    """Rows with an answer that came without usage."""
    rows_died_with: int = 0
    """Rows that were out, or set aside to be sent, when a worker died."""
    rows_reused: int = 0
    """Rows with an answer that was taken over from another batch."""
    rows_shared: int = 0
    """Rows with the outcome of an earlier row of the batch, which they repeat."""
    may_have_been_sent: int = 0
    """Of the cancelled, expired and stopped rows."""
    repairs: int = 0
    """Answers that were asked for again, because they did not match the schema."""
    rows_repaired: int = 0
    """Rows of which an answer was asked for again,"""
    rows_mended: int = 0
    """and those of them that match now."""
    mismatch: Sample | None = None
    """The first row that was kept under the flag of a mismatch."""
    models_unpriced: set[str] = field(default_factory=set)

    def add(self, views: Sequence[RowView]) -> None:
        by_byte = self.by_byte
        first_failure = _FIRST_FAILURE
        for view in views:
            byte = view.byte
            by_byte[byte] = by_byte.get(byte, 0) + 1
            record = view.record
            if record is not None:
                self.cost_picousd += record.cost_picousd
                if record.unpriced:
                    self.rows_unpriced += 1
                    if len(self.models_unpriced) < MAX_GROUPS:
                        own = record.lane in (-1, view.input.lane)
                        self.models_unpriced.add(view.input.model if own else view.input.named_model)
                if record.no_usage:
                    self.rows_no_usage += 1
                if record.reused:
                    self.rows_reused += 1
                if view.input.shares >= 0 and not record.attempts:
                    self.rows_shared += 1
                if record.deaths:
                    self.rows_died_with += 1
                if record.repairs or byte == _MISMATCH:
                    self._add_checked(view, record)
            if byte >= first_failure:
                self._add_failure(view)
        if self.by_vendor is not None:
            self._split(self.by_vendor, views)
        self.rows += len(views)

    def _split(self, by_vendor: dict[str, AnsweredBy], views: Sequence[RowView]) -> None:
        for view in views:
            if view.record is not None and row_map.is_success(view.byte):
                found = by_vendor.setdefault(view.record.vendor, AnsweredBy())
                found.rows += 1
                found.cost_picousd += view.record.cost_picousd

    def _add_checked(self, view: RowView, record: Record) -> None:
        self.repairs += record.repairs
        self.rows_repaired += record.repairs > 0
        self.rows_mended += record.repairs > 0 and view.byte in MATCHED_BYTES
        if self.mismatch is None and view.byte == _MISMATCH:
            self.mismatch = _sample(view, record)

    def _add_failure(self, view: RowView) -> None:
        kind = row_map.BYTE_KINDS[view.byte]
        if view.may_have_been_sent:
            self.may_have_been_sent += 1
        record = view.record
        # What a closed row's record says is how an attempt ended before the end came, no cause of this end.
        cause = record if kind not in row_map.CLOSING_KINDS else None
        key = GroupKey(kind, cause.code, cause.param) if cause is not None else GroupKey(kind, "", "")
        group = self.groups.get(key)
        if group is None and len(self.groups) >= MAX_GROUPS:
            key = GroupKey(kind, "", "")
            group = self.groups.get(key)
        if group is None:
            group = self.groups[key] = Group(_sample(view, cause))
        group.count += 1

    def most_frequent(self) -> list[tuple[GroupKey, Group]]:
        """Groups, the largest first; of equals the one met first."""
        return sorted(self.groups.items(), key=lambda item: -item[1].count)


def gathering(status: BatchStatus) -> Gathered:
    """For the rows of this batch: where some may have gone through a batch API it matters who answered which."""
    apis = any(place.protocol is VendorProtocol.BATCH for place in status.spec.destinations)
    return Gathered(by_vendor={} if apis else None)


def _sample(view: RowView, cause: Record | None) -> Sample:
    """`cause`: the record that says why the row ended so; None: none does."""
    return Sample(
        request_index=view.request_index,
        custom_id=view.input.custom_id,
        http_status=cause.http_status if cause is not None else 0,
        message=cause.message[:MAX_KEPT_TEXT] if cause is not None else "",
        line=view.input.line,
    )
