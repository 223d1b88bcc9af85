"""What today's price table makes of an answer that is stored: nothing is sent, only what can be known changes.

A record's money is the sum over all attempts of its row; its usage is that of one attempt: the last, or the one whose
answer stands. So one attempt of a row can be priced later, and only where it is sure that this one has no price:

    usage, no price                     priced
    no usage                            a price of zero makes it 0; else it stays unknown
    usage, price from a table           priced again if asked to, where the row's cost is this attempt's alone
    a cost that the vendor stated       stays
    an earlier attempt without a price  stays without: its usage is not kept

What is known never becomes unknown: a model that has left the table keeps the cost it had.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import assert_never

import msgspec

from batchwright.core import row_map
from batchwright.core.failures import FailureKind
from batchwright.core.pricing import Price, answer_cost
from batchwright.core.records import UNKNOWN, Record

MOVED_BYTES = frozenset({row_map.KIND_BYTES[FailureKind.INTERNAL], row_map.KIND_BYTES[FailureKind.UNROUTABLE]})
"""Ends without being sent: the moment in such a record is not that of the attempt whose usage it may still hold, so
that the day of the spending is not known."""


class Verdict(StrEnum):
    UNCHANGED = "unchanged"
    """Known already, the vendor's own, or never answered."""
    PRICED = "priced"
    """Its answer had no price and has one now."""
    CHANGED = "changed"
    """Its answer had a table's price and has today's now."""
    NO_PRICE = "no_price"
    """Today's table has none for its model."""
    BEYOND_REASON = "beyond_reason"
    """Today's price gives more than one answer can cost."""
    NO_USAGE = "no_usage"
    """The vendor sent no usage, and the model is not free."""
    UNCLEAR = "unclear"
    """Some attempt of the row has no price, but it cannot be told that it is the one whose usage is kept."""
    MIXED = "mixed"
    """Priced by a table, but the row's cost may hold other attempts' too, and what each of them cost is not kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repriced:
    verdict: Verdict
    record: Record
    """As it is to be stored; the very same one unless the verdict is PRICED or CHANGED."""


class _Own(Enum):
    """Where the cost of the attempt comes from whose usage the record holds."""

    NO_PRICE = auto()
    NO_USAGE = auto()
    TABLE = auto()
    OTHER = auto()
    UNCLEAR = auto()


def reprice(record: Record, price: Price | None, *, every: bool, may_state_cost: Callable[[], bool]) -> Repriced:
    """`price`: today's of the row's lane; `every`: also where a table's price is known. `may_state_cost` tells whether
    the vendor may have stated the stored answer's cost; asked only where the numbers alone do not tell."""
    own = _own_cost(record, may_state_cost)
    match own:
        case _Own.OTHER:
            return Repriced(verdict=Verdict.UNCHANGED, record=record)
        case _Own.UNCLEAR:
            return Repriced(verdict=Verdict.UNCLEAR, record=record)
        case _Own.TABLE:
            return _price_again(record, price if every else None)
        case _Own.NO_PRICE | _Own.NO_USAGE:
            return _price_first(record, price, lacks_usage=own is _Own.NO_USAGE)
        case _:
            assert_never(own)


def _own_cost(record: Record, may_state_cost: Callable[[], bool]) -> _Own:
    has_usage = record.prompt_tokens != UNKNOWN
    unknown = record.unpriced + record.no_usage
    if not (record.unpriced if has_usage else record.no_usage):
        return _Own.TABLE if has_usage and record.price_id else _Own.OTHER
    if record.byte in MOVED_BYTES:
        return _Own.UNCLEAR
    if unknown == record.attempts:
        return _Own.NO_PRICE if has_usage else _Own.NO_USAGE  # all attempts, so this one too
    if record.price_id:
        return _Own.TABLE if has_usage else _Own.UNCLEAR
    if not record.body or (not has_usage and not row_map.is_success(record.byte)) or may_state_cost():
        return _Own.UNCLEAR
    return _Own.NO_PRICE if has_usage else _Own.NO_USAGE


def _price_first(record: Record, price: Price | None, *, lacks_usage: bool) -> Repriced:
    if price is None:
        return Repriced(verdict=Verdict.NO_USAGE if lacks_usage else Verdict.NO_PRICE, record=record)
    if lacks_usage and not price.zero_rated:
        return Repriced(verdict=Verdict.NO_USAGE, record=record)
    cost_picousd = _cost(price, record)
    if cost_picousd is None:
        return Repriced(verdict=Verdict.BEYOND_REASON, record=record)
    priced = msgspec.structs.replace(
        record,
        cost_picousd=record.cost_picousd + cost_picousd,
        unpriced=record.unpriced - (not lacks_usage),
        no_usage=record.no_usage - lacks_usage,
        price_id=price.price_id,
    )
    return Repriced(verdict=Verdict.PRICED, record=priced)


def _price_again(record: Record, price: Price | None) -> Repriced:
    if price is None:
        return Repriced(verdict=Verdict.UNCHANGED, record=record)
    cost_picousd = _cost(price, record)
    if cost_picousd is None:
        return Repriced(verdict=Verdict.BEYOND_REASON, record=record)
    if (cost_picousd, price.price_id) == (record.cost_picousd, record.price_id):
        return Repriced(verdict=Verdict.UNCHANGED, record=record)
    if record.attempts > 1 and (record.cost_picousd or record.unpriced):
        return Repriced(verdict=Verdict.MIXED, record=record)
    priced = msgspec.structs.replace(record, cost_picousd=cost_picousd, price_id=price.price_id)
    return Repriced(verdict=Verdict.CHANGED, record=priced)


def _cost(price: Price, record: Record) -> int | None:
    return answer_cost(
        price,
        prompt_tokens=record.prompt_tokens,
        completion_tokens=record.completion_tokens,
        cached_tokens=record.cached_tokens,
    )
