"""What tokens cost, exactly: rates are integers of 1e-12 USD per *million* tokens, and a cost is rounded once.

(1e-12 USD per single token would already be a rounding for prices in another currency.) What has no price is None at
its source and never a price of zero; `zero_rated` is a zero that somebody stated.
"""

from __future__ import annotations

import msgspec

RATE_TOKENS = 1_000_000
"""Rates are for so many tokens."""
MAX_ANSWER_PICOUSD = 10**15
"""A thousand USD. More for one answer is a slip, of a vendor or of a price table, and counts as not known: no bill is
made of it, and some thousand such answers still fit a sum of 64 bits."""

NO_OUTPUT = -1
"""In place of a row's bound on output tokens: its answer has none that could be charged (vectors)."""


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """Rates of a row with more than `above_tokens` input tokens: they hold for all its tokens, not for those above."""

    above_tokens: int
    input_rate: int
    output_rate: int
    cached_rate: int


class Price(msgspec.Struct, frozen=True, kw_only=True):
    """One model's price at one vendor. Rates in picousd per million tokens."""

    price_id: str
    """Where it is from, with its date, vendor and model; kept with every row that was priced by it."""
    input_rate: int
    output_rate: int
    cached_rate: int
    """For the part of the input that the vendor read from its cache."""
    request_picousd: int = 0
    """For each answered request, whatever its tokens."""
    zero_rated: bool = False
    """Nothing is charged, and that is known."""
    tiers: tuple[Tier, ...] = ()
    """Ascending by `above_tokens`."""


def cost_of(price: Price, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> int:
    """Picousd of one answer. Counts are 0 or more; `cached_tokens` are among `prompt_tokens`, never beside them."""
    rates: Price | Tier = price
    for tier in price.tiers:
        if prompt_tokens > tier.above_tokens:
            rates = tier
    cached = min(cached_tokens, prompt_tokens)
    scaled = (
        (prompt_tokens - cached) * rates.input_rate + cached * rates.cached_rate + completion_tokens * rates.output_rate
    )
    return price.request_picousd + _rounded(scaled)


def answer_cost(price: Price, *, prompt_tokens: int, completion_tokens: int, cached_tokens: int) -> int | None:
    """`cost_of` by counts as a vendor sends them (below 0: it sent none); None: beyond what one answer can cost."""
    if price.zero_rated:
        return 0
    cost_picousd = cost_of(price, max(0, prompt_tokens), max(0, completion_tokens), max(0, cached_tokens))
    return cost_picousd if cost_picousd <= MAX_ANSWER_PICOUSD else None


def worst_case(price: Price, body_bytes: int, output_tokens: int) -> int | None:
    """The most that one attempt of a row can cost: no token is shorter than a byte, and no answer longer than the row's
    own bound (or NO_OUTPUT). None: it has no such bound (`output_tokens` 0) and output is charged for."""
    possible: list[Price | Tier] = [price]
    if price.tiers:
        possible += [tier for tier in price.tiers if body_bytes > tier.above_tokens]
    worst = 0
    for rates in possible:
        if rates.output_rate and not output_tokens:
            return None
        input_rate = rates.input_rate if rates.input_rate > rates.cached_rate else rates.cached_rate
        scaled = body_bytes * input_rate + max(0, output_tokens) * rates.output_rate
        worst = max(worst, -(-scaled // RATE_TOKENS))
    return price.request_picousd + worst


def _rounded(scaled: int) -> int:
    """To a whole picousd, half to even as in `core.money`."""
    whole, rest = divmod(scaled, RATE_TOKENS)
    half = RATE_TOKENS // 2
    return whole + 1 if rest > half or (rest == half and whole % 2) else whole
