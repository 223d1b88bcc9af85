"""The most a row can cost: its bytes as input tokens and its own bound on output tokens, at the dearest price of the
lanes it may go to.

A row without a bound or a price has none (0), and under a cap is refused at submit unless the cap was allowed to be
soft. A zero-rated price bounds every row at 0, which is no lack of a bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from batchwright.core.batch_spec import Destination, LaneKey, Routes
from batchwright.core.errors import UNBOUNDED_COST, Finding, InputRefused
from batchwright.core.pricing import Price, worst_case
from batchwright.core.routes import NO_ROUTES, RouteLanes
from batchwright.core.rows import SourceRow
from batchwright.engine.floor import FindPrice, destination_of
from batchwright.wire.json_text import string
from batchwright.wire.row_checks import why_unbounded

FINDINGS_MAX = 100


class LanePrices:
    """The prices of a batch's lanes, each looked up once; called with a lane key's text. None: not known."""

    def __init__(self, find_price: FindPrice, destinations: Sequence[Destination], routes: Routes = NO_ROUTES) -> None:
        self._find_price = find_price
        self._destinations = destinations
        self._routes = RouteLanes(routes, destinations)
        self._found: dict[str, Price | None] = {}

    def __call__(self, lane: str) -> Price | None:
        if lane not in self._found:
            key = LaneKey.parse(lane)
            self._found[lane] = self._find_price(destination_of(key, self._destinations), key.model)
        return self._found[lane]

    def lanes(self, source: SourceRow) -> Sequence[str]:
        """Every lane that a sendable row may be sent to."""
        return self._routes.get(source.row.route) or (source.lane,)

    def first_unpriced(self, source: SourceRow) -> str:
        """The first of a row's lanes without a price; empty: all have one."""
        return next((lane for lane in self.lanes(source) if self(lane) is None), "")

    def set_dearest(self, source: SourceRow) -> None:
        """Sets the worst case of a row of a route, and whether it has none: that of the dearest of its lanes."""
        row = source.row
        dearest, unbounded = 0, False
        for lane in self.lanes(source):
            price = self(lane)
            # On another lane of its route the body names another model.
            longer = max(0, len(string(LaneKey.parse(lane).model)) - len(string(row.model)))
            worst = 0 if price is None else worst_case(price, row.sent_bytes + longer, row.output_tokens) or 0
            unbounded |= not worst and not (price is not None and price.zero_rated)
            dearest = max(dearest, worst)
        row.worst_picousd = 0 if unbounded else dearest
        source.unbounded = unbounded


def with_worst_cases(chunks: Iterable[Sequence[SourceRow]], prices: LanePrices) -> Iterator[Sequence[SourceRow]]:
    """As `set_worst_cases`, of each chunk as it comes."""
    for chunk in chunks:
        set_worst_cases(chunk, prices)
        yield chunk


def set_worst_cases(chunk: Sequence[SourceRow], prices: LanePrices) -> None:
    """Sets every sendable row's `worst_picousd`, and whether it has none."""
    for source in chunk:
        if not source.lane:
            continue
        row = source.row
        if row.route:
            prices.set_dearest(source)
            continue
        price = prices(source.lane)
        if price is not None:
            row.worst_picousd = worst_case(price, row.sent_bytes, row.output_tokens) or 0
        source.unbounded = not row.worst_picousd and not (price is not None and price.zero_rated)


def refuse_unbounded(
    chunks: Iterable[Sequence[SourceRow]], prices: LanePrices, first_index: int = 0
) -> Iterator[Sequence[SourceRow]]:
    """Raises InputRefused at the end of an input that has rows without a worst case: a cap could not hold for them."""
    findings: list[Finding] = []
    total = 0
    for chunk in chunks:
        for index, source in enumerate(chunk, first_index):
            if not source.unbounded:
                continue
            total += 1
            if len(findings) < FINDINGS_MAX:
                findings.append(unbounded_finding(source, index, unpriced=prices.first_unpriced(source)))
        first_index += len(chunk)
        if not total:
            yield chunk
    if total:
        raise unbounded_refusal(findings, total)


def unbounded_refusal(findings: Sequence[Finding], total: int) -> InputRefused:
    """`findings`: of the first of those `total` rows."""
    rows = "1 row has" if total == 1 else f"{total:,} rows have"
    return InputRefused(
        f"{rows} no upper bound on the cost, so that --max-cost could not hold; nothing was sent. Give max_tokens "
        "(--max-tokens N) and, for the model, a price (`prices` in the settings), or allow a soft cap with "
        "--allow-unpriced",
        findings=tuple(findings),
        total=total,
    )


def unbounded_finding(source: SourceRow, request_index: int, *, unpriced: str) -> Finding:
    """What an unbounded row lacks. `unpriced`: the first of its lanes without a price; empty: none is."""
    row = source.row
    lacking = [] if row.output_tokens else [f"no bound on its tokens ({why_unbounded(row.body, row.endpoint)})"]
    if unpriced:
        key = LaneKey.parse(unpriced)
        lacking.append(f"no known price for model {key.model!r} at {key.vendor}")
    lacks = " and ".join(lacking)
    return Finding(
        line=row.line,
        code=UNBOUNDED_COST,
        message=f"{lacks}: expected a bound under a cap",
        request_index=request_index,
    )
