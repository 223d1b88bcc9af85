"""The most a row can cost: its bytes as input tokens and its own bound on output tokens, at its lane's price.

A row without a bound or a price has none (0), and under a cap is refused at submit unless the cap was allowed to be
soft. A zero-rated price bounds every row at 0, which is no lack of a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from batchwright.core.batch_spec import Destination, LaneKey
from batchwright.core.errors import Finding, InputRefused
from batchwright.core.pricing import Price, worst_case
from batchwright.core.rows import SourceRow
from batchwright.engine.floor import FindPrice, destination_of

FINDINGS_MAX = 100


LanePrice = Callable[[str], Price | None]
"""A lane key's text -> its price; None: not known."""


def lane_prices(find_price: FindPrice, destinations: Sequence[Destination]) -> LanePrice:
    """Looks each lane of a batch up once."""
    prices: dict[str, Price | None] = {}

    def find(lane: str) -> Price | None:
        if lane not in prices:
            key = LaneKey.parse(lane)
            prices[lane] = find_price(destination_of(key, destinations), key.model)
        return prices[lane]

    return find


def with_worst_cases(chunks: Iterable[Sequence[SourceRow]], price_of: LanePrice) -> Iterator[Sequence[SourceRow]]:
    """Sets every sendable row's `worst_picousd`, and whether it has none."""
    for chunk in chunks:
        for source in chunk:
            if not source.lane:
                continue
            price = price_of(source.lane)
            row = source.row
            if price is not None:
                row.worst_picousd = worst_case(price, len(row.body), row.output_tokens) or 0
            source.unbounded = not row.worst_picousd and not (price is not None and price.zero_rated)
        yield chunk


def refuse_unbounded(chunks: Iterable[Sequence[SourceRow]], price_of: LanePrice) -> Iterator[Sequence[SourceRow]]:
    """Raises InputRefused at the end of an input that has rows without a worst case: a cap could not hold for them."""
    findings: list[Finding] = []
    total = 0
    for chunk in chunks:
        for position, source in enumerate(chunk):
            if not source.unbounded:
                continue
            total += 1
            if len(findings) < FINDINGS_MAX:
                findings.append(_unbounded(source, position, priced=price_of(source.lane) is not None))
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


def _unbounded(source: SourceRow, position: int, *, priced: bool) -> Finding:
    row = source.row
    lacking = [] if row.output_tokens else ["no bound on its tokens (no max_tokens, or input kept elsewhere)"]
    lacking += [] if priced else [f"no known price for model {row.model!r} at {LaneKey.parse(source.lane).vendor}"]
    lacks = " and ".join(lacking)
    return Finding(
        line=row.line or position + 1, code="unbounded_cost", message=f"{lacks}: expected a bound under a cap"
    )
