"""What a run would cost before it is run: from the rows alone (`Estimating.guessed`), or from a sample of them that was
asked (`sampled`). What is not known stays None, never 0."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from batchwright.core import row_map
from batchwright.core.batch_spec import LaneKey
from batchwright.core.endpoints import EMBEDDINGS
from batchwright.core.estimating import Asked, AskedStratum, Range, estimate_sum, range_of, unseen_length
from batchwright.core.pricing import Price, cost_of
from batchwright.core.records import SIMULATED, UNKNOWN
from batchwright.core.rows import RowView, SourceRow
from batchwright.core.strata import Strata, Stratum
from batchwright.core.token_guess import LEARNED_SPREAD, NOTHING, Learned, TokenGuess
from batchwright.ports.batches import Batches
from batchwright.wire.prompt_text import guess_prompt

DEFAULT_OUTPUT_TOKENS = 300
"""Of an answer of which nothing is known: what its row's bound allows, but no more than this."""
LEARN_BATCHES, LEARN_ROWS = 10, 200
"""The newest batches that are looked at, and the first rows of each."""

PriceOf = Callable[[str], Price | None]
"""By the text of a lane."""
LearnedBy = Mapping[tuple[str, str], Learned]
"""By vendor and model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Three:
    low: int
    likely: int
    high: int | None
    """None: nothing bounds it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """Of a lane, or of all. Picousd."""

    live: Three | None
    """None: nothing of it has a price."""
    batch: Three | None
    """At the price of the vendor's own batches; None: the data has none."""
    without_price: int
    """Rows; of all answered rows of a sample as many as they stand for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneEstimate:
    lane: LaneKey
    rows: int
    body_bytes: int
    tokens_in: Three
    tokens_out: Three
    costs: Costs
    without_bound: int
    """Rows that do not say how long their answers may be."""
    learned_rows: int
    """Earlier answers of this model that the guess goes by; 0: none."""
    asked: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    lanes: tuple[LaneEstimate, ...]
    """The most rows first."""
    costs: Costs
    confidence: float | None
    """Of the ranges from a sample; None: they are guesses between bounds."""
    rows_to_narrow: int = 0

    def sum(self, name: str) -> int:
        return sum(int(getattr(lane, name)) for lane in self.lanes)

    def tokens(self, name: str) -> Three:
        return add_threes([getattr(lane, name) for lane in self.lanes])


@dataclass(slots=True)
class _Sums:
    """Over the rows of one lane."""

    price: Price | None
    batch: Price | None
    learned: Learned
    rows: int = 0
    body_bytes: int = 0
    tokens_in: TokenGuess = NOTHING
    out_low: int = 0
    out_likely: float = 0.0
    out_high: int = 0
    without_bound: int = 0
    live: list[int] = field(default_factory=lambda: [0, 0, 0])
    later: list[int] = field(default_factory=lambda: [0, 0, 0])

    def add(self, source: SourceRow, tokens_in: TokenGuess) -> None:
        bound = source.row.output_tokens
        self.rows += 1
        self.body_bytes += len(source.row.body)
        self.tokens_in = self.tokens_in.plus(tokens_in)
        low, likely, high = self._lengths(source, bound)
        self.out_low += low
        self.out_likely += likely
        self.out_high += high
        self.without_bound += high == 0 and source.row.endpoint != EMBEDDINGS
        for price, sums in ((self.price, self.live), (self.batch, self.later)):
            if price is not None:
                for place, (into, out) in enumerate(zip(tokens_in, (low, likely, high), strict=True)):
                    sums[place] += 0 if price.zero_rated else cost_of(price, math.ceil(into), math.ceil(out), 0)

    def _lengths(self, source: SourceRow, bound: int) -> tuple[int, float, int]:
        """Of its answer, in tokens: least, likely, most (0: not bounded)."""
        if source.row.endpoint == EMBEDDINGS:
            return 0, 0.0, 0
        likely = self.learned.output_tokens or float(DEFAULT_OUTPUT_TOKENS)
        return 1, min(likely, bound) if bound else likely, bound

    def three(self, sums: Sequence[int]) -> Three:
        return Three(low=sums[0], likely=sums[1], high=None if self.without_bound else sums[2])

    def estimate(self, lane: str) -> LaneEstimate:
        free = self.price is not None and self.price.zero_rated
        live = Three(low=0, likely=0, high=0) if free else self.three(self.live) if self.price is not None else None
        out_high = None if self.without_bound else self.out_high
        return LaneEstimate(
            lane=LaneKey.parse(lane),
            rows=self.rows,
            body_bytes=self.body_bytes,
            tokens_in=_three_of(self.tokens_in),
            tokens_out=Three(low=self.out_low, likely=round(self.out_likely), high=out_high),
            costs=Costs(
                live=live,
                batch=self.three(self.later) if self.batch is not None else None,
                without_price=0 if self.price is not None else self.rows,
            ),
            without_bound=self.without_bound,
            learned_rows=self.learned.rows if self.learned.says_something else 0,
        )


class Estimating:
    """All rows of an input on their way past."""

    def __init__(
        self, price_of: PriceOf, batch_price_of: PriceOf, learned: LearnedBy, strata: Strata | None = None
    ) -> None:
        """`strata`: what draws a sample of them."""
        self._price_of, self._batch_price_of = price_of, batch_price_of
        self._learned = learned
        self._strata = strata
        self._lanes: dict[str, _Sums] = {}
        self.rows = 0
        self.refused = 0

    def add(self, rows: Sequence[SourceRow]) -> None:
        for source in rows:
            index, self.rows = self.rows, self.rows + 1
            if source.finding is not None:
                self.refused += 1
                continue
            sums = self._lanes.get(source.lane)
            if sums is None:
                sums = self._lanes[source.lane] = self._begin(source.lane)
            guess = guess_prompt(source.row.body)
            if self._strata is not None:
                # By what the vendor counts, not by bytes: base64 and escapes are long and few tokens.
                self._strata.add(index, source.lane, size=guess.likely + 1, bound=source.row.output_tokens)
            if ratio := sums.learned.ratio:
                guess = guess.scaled(ratio, LEARNED_SPREAD)
            sums.add(source, guess)

    def _begin(self, lane: str) -> _Sums:
        key = LaneKey.parse(lane)
        learned = self._learned.get((key.vendor, key.model), Learned())
        return _Sums(self._price_of(lane), self._batch_price_of(lane), learned)

    @property
    def rows_by_lane(self) -> dict[str, int]:
        return {lane: sums.rows for lane, sums in self._lanes.items()}

    def guessed(self) -> Estimate:
        lanes = sorted((sums.estimate(lane) for lane, sums in self._lanes.items()), key=lambda one: -one.rows)
        return Estimate(lanes=tuple(lanes), costs=add_costs(lanes), confidence=None)

    def sampled(self, strata: Sequence[Stratum], answers: Mapping[int, RowView]) -> Estimate:
        """`answers`: of the drawn rows, by their position in the input."""
        parts = [
            _LaneSample(sums, [stratum for stratum in strata if stratum.lane == lane], answers).estimate(lane)
            for lane, sums in self._lanes.items()
        ]
        lanes = tuple(sorted((part.lane for part in parts), key=lambda one: -one.rows))
        live = range_of(estimate_sum(stratum for part in parts for stratum in part.live), most=_most(parts))
        later = None
        if parts and all(part.later for part in parts):
            later = three_of_range(range_of(estimate_sum(stratum for part in parts for stratum in part.later)))
        known = any(lane.costs.live is not None for lane in lanes)
        costs = Costs(
            live=three_of_range(live) if known else None,
            batch=later,
            without_price=sum(lane.costs.without_price for lane in lanes),
        )
        return Estimate(lanes=lanes, costs=costs, confidence=live.confidence, rows_to_narrow=live.rows_to_narrow)


@dataclass(frozen=True, slots=True)
class _LanePart:
    lane: LaneEstimate
    live: list[AskedStratum]
    """Costs of its asked rows; empty: none is known."""
    later: list[AskedStratum]
    most: float


def _most(parts: Sequence[_LanePart]) -> float:
    return sum(part.most for part in parts)


class _LaneSample:
    """A lane's strata with the answers of the rows that were asked."""

    def __init__(self, sums: _Sums, strata: Sequence[Stratum], answers: Mapping[int, RowView]) -> None:
        self._sums = sums
        self._strata = strata
        self._answers = answers
        ended = [self._view(row.position) for stratum in strata for row in stratum.drawn]
        self._ended = [view for view in ended if view is not None]
        lengths = [length for view in self._ended if (length := _output(view)) is not None]
        self._mean = sum(lengths) / len(lengths) if lengths else 0.0
        self._longest = unseen_length(lengths)

    def estimate(self, lane: str) -> _LanePart:
        sums = self._sums
        free = sums.price is not None and sums.price.zero_rated
        tokens_in = self._asked(_input, rate=0.0)
        tokens_out = self._asked(_output, rate=1.0)
        live = self._asked(_cost, rate=self._output_rate())
        priced = sum(len(stratum.asked) for stratum in live)
        batch = sums.batch
        later = [] if batch is None else self._asked(lambda view: _later(view, batch), rate=batch.output_rate / 10**6)
        bounded = not sums.without_bound
        most = float(sums.live[2]) if bounded and sums.price is not None and not free else math.inf
        found = Costs(
            live=three_of_range(range_of(estimate_sum(live), most=most)) if priced else None,
            batch=three_of_range(range_of(estimate_sum(later))) if later else None,
            without_price=round(sums.rows * (1 - priced / len(self._ended))) if self._ended else sums.rows,
        )
        estimate = LaneEstimate(
            lane=LaneKey.parse(lane),
            rows=sums.rows,
            body_bytes=sums.body_bytes,
            tokens_in=three_of_range(range_of(estimate_sum(tokens_in))),
            tokens_out=three_of_range(
                range_of(estimate_sum(tokens_out), most=float(sums.out_high) if bounded else math.inf)
            ),
            costs=found,
            without_bound=sums.without_bound,
            learned_rows=0,
            asked=len(self._ended),
        )
        return _LanePart(estimate, live if priced else [], later, most)

    def _view(self, index: int) -> RowView | None:
        view = self._answers.get(index)
        return view if view is not None and row_map.is_end(view.byte) else None

    def _asked(self, value_of: Callable[[RowView], float | None], *, rate: float) -> list[AskedStratum]:
        """`rate`: by how much the value rises with a token of output."""
        strata = []
        for stratum in self._strata:
            asked = []
            for row in stratum.drawn:
                view = self._view(row.position)
                value = value_of(view) if view is not None else None
                if view is not None and value is not None:
                    asked.append(Asked(row.size, value, rate * self._longer(view)))
            strata.append(AskedStratum(stratum.lane, stratum.rows, stratum.size_sum, asked))
        return strata

    def _longer(self, view: RowView) -> float:
        """By how many tokens its answer would be longer than the mean, were it one of the longest."""
        bound = view.input.output_tokens
        longest = min(self._longest, bound) if bound else self._longest
        return max(0.0, longest - self._mean)

    def _output_rate(self) -> float:
        """Picousd a token. Where only the vendor knows its prices: no more than all of a cost was for the output."""
        if self._sums.price is not None:
            return self._sums.price.output_rate / 10**6
        pairs = [(cost, out) for view in self._ended if (cost := _cost(view)) and (out := _output(view))]
        tokens = sum(out for _, out in pairs)
        return sum(cost for cost, _ in pairs) / tokens if tokens else 0.0


def _input(view: RowView) -> float | None:
    return _tokens(view, "prompt_tokens")


def _output(view: RowView) -> int | None:
    return _tokens(view, "completion_tokens")


def _tokens(view: RowView, name: str) -> int | None:
    """None: it was answered without a count. A row without an answer used none."""
    record = view.record
    if record is None:
        return 0
    found = int(getattr(record, name))
    if found != UNKNOWN:
        return found
    return None if row_map.is_success(view.byte) else 0


def _cost(view: RowView) -> float | None:
    """Of all its attempts; None: some of it is not known."""
    record = view.record
    if record is None:
        return 0.0
    return None if record.unpriced or record.no_usage else float(record.cost_picousd)


def _later(view: RowView, price: Price) -> float | None:
    into, out = _tokens(view, "prompt_tokens"), _tokens(view, "completion_tokens")
    if into is None or out is None:
        return None
    cached = max(0, view.record.cached_tokens) if view.record is not None else 0
    return float(cost_of(price, into, out, cached)) if into or out else 0.0


def _three_of(guess: TokenGuess) -> Three:
    return Three(low=round(guess.low), likely=round(guess.likely), high=round(guess.high))


def three_of_range(found: Range) -> Three:
    return Three(low=round(found.low), likely=round(found.likely), high=round(found.high))


def add_threes(parts: Iterable[Three]) -> Three:
    low = likely = high = 0
    bounded = True
    for part in parts:
        low, likely = low + part.low, likely + part.likely
        bounded &= part.high is not None
        high += part.high or 0
    return Three(low=low, likely=likely, high=high if bounded else None)


def add_costs(lanes: Sequence[LaneEstimate]) -> Costs:
    """Of guesses, whose bounds may be added up. The batch price only where every lane has one."""
    live = [lane.costs.live for lane in lanes if lane.costs.live is not None]
    later = [lane.costs.batch for lane in lanes if lane.costs.batch is not None]
    return Costs(
        live=add_threes(live) if live else None,
        batch=add_threes(later) if later and len(later) == len(lanes) else None,
        without_price=sum(lane.costs.without_price for lane in lanes),
    )


async def learn(batches: Batches) -> dict[tuple[str, str], Learned]:
    """What the newest batches' answers say of their models: tokens for what is guessed, and lengths of answers."""
    found: dict[tuple[str, str], Learned] = {}
    for status in await batches.find(limit=LEARN_BATCHES, chunks=False):
        if not status.counts.succeeded:
            continue
        async for views in batches.rows(status.batch_id, end=LEARN_ROWS, wanted=row_map.SUCCESS_BYTES):
            for view in views:
                record = view.record
                if record is None or record.prompt_tokens <= 0 or record.completion_tokens < 0:
                    continue
                if record.vendor == SIMULATED:
                    continue  # made up
                learned = found.setdefault((record.vendor, view.input.model), Learned())
                learned.add(guess_prompt(view.input.body).likely, record.prompt_tokens, record.completion_tokens)
    return found


async def answers_of(batches: Batches, batch_id: str, picked: Iterable[int]) -> dict[int, RowView]:
    """The rows of a sample's batch, by their position in the input that they were picked from."""
    positions = sorted(picked)
    found: dict[int, RowView] = {}
    async for views in batches.rows(batch_id):
        found |= {positions[view.request_index]: view for view in views}
    return found
