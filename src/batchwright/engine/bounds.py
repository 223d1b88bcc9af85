"""The most a row can cost: its bytes as input tokens and its own bound on output tokens, at its lane's price.

A row without a bound or a price has none (0), and under a cap is refused at submit unless the cap was allowed to be
soft. A zero-rated price bounds every row at 0, which is no lack of a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from batchwright.core.batch_spec import LaneKey
from batchwright.core.errors import Finding, InputRefused
from batchwright.core.pricing import Price, worst_case
from batchwright.core.rows import SourceRow
from batchwright.engine.floor import FindPrice

FINDINGS_MAX = 100


def with_worst_cases(chunks: Iterable[Sequence[SourceRow]], find_price: FindPrice) -> Iterator[Sequence[SourceRow]]:
    """Sets every sendable row's `worst_picousd`."""
    prices: dict[str, Price | None] = {}
    for chunk in chunks:
        for source in chunk:
            lane = source.lane
            if not lane:
                continue
            if lane not in prices:
                key = LaneKey.parse(lane)
                prices[lane] = find_price(key.vendor, key.model)
            price = prices[lane]
            if price is not None:
                row = source.row
                row.worst_picousd = worst_case(price, len(row.body), row.output_tokens) or 0
        yield chunk


def refuse_unbounded(chunks: Iterable[Sequence[SourceRow]], find_price: FindPrice) -> Iterator[Sequence[SourceRow]]:
    """Raises InputRefused at the end of an input that has rows without a worst case: a cap could not hold for them."""
    findings: list[Finding] = []
    total = 0
    free: dict[str, bool] = {}
    for chunk in chunks:
        for position, source in enumerate(chunk):
            if not source.lane or source.row.worst_picousd:
                continue
            if source.lane not in free:
                key = LaneKey.parse(source.lane)
                price = find_price(key.vendor, key.model)
                free[source.lane] = price is not None and price.zero_rated
            if free[source.lane]:
                continue
            total += 1
            if len(findings) < FINDINGS_MAX:
                findings.append(_unbounded(source, position))
        if not total:
            yield chunk
    if total:
        raise InputRefused(
            f"{total:,} rows have no upper bound on their cost, so that --max-cost could not hold; nothing was sent. "
            "Give them max_tokens (--max-tokens N) and their model a price (`prices` in the settings), or allow a soft "
            "cap with --allow-unpriced",
            findings=tuple(findings),
            total=total,
        )


def _unbounded(source: SourceRow, position: int) -> Finding:
    row = source.row
    lacks = "no max_tokens" if not row.output_tokens else f"no known price for model {row.model!r}"
    return Finding(
        line=row.line or position + 1, code="unbounded_cost", message=f"{lacks}: expected a bound under a cap"
    )
