"""Writes `src/batchwright/prices/shipped.json` from the installed `genai-prices`:

    uv run python tools/make_prices.py 2026-11-29

The date says of which day the prices are taken; what `batchwright.prices.shipped` documents is left out. Look at the
difference before it is committed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from importlib.metadata import version

import msgspec
from genai_prices import types
from genai_prices.data import providers

from batchwright.prices.shipped import SHIPPED_FILE, Clause, ModelEntry, ShippedTable, VendorEntry

MORE_NAMES = {
    "google": ("gemini",),
    "moonshotai": ("moonshot", "kimi"),
    "x-ai": ("xai", "grok"),
    "zhipuai": ("zhipu", "bigmodel"),
    "zai": ("z.ai",),
}
"""What people call vendors beside the data's own name for them."""
SKIPPED = frozenset({"openai-decisions"})
"""Not a vendor of its own: it shares OpenAI's address and would be found in its stead."""

OPERATORS = {
    types.ClauseStartsWith: ("<", "starts_with"),
    types.ClauseEndsWith: (">", "ends_with"),
    types.ClauseContains: ("*", "contains"),
    types.ClauseRegex: ("~", "regex"),
}


def names_of(clause: object) -> Clause:
    """A matching rule of the data, in the file's form."""
    if isinstance(clause, types.ClauseEquals):
        return clause.equals
    if isinstance(clause, types.ClauseOr):
        return ["|", *(names_of(part) for part in clause.or_)]
    if isinstance(clause, types.ClauseAnd):
        return ["&", *(names_of(part) for part in clause.and_)]
    operator, field = OPERATORS[type(clause)]
    return [operator, str(getattr(clause, field))]


def prices_on(model: types.ModelInfo, day: date) -> list[types.ModelPrice]:
    """The price in force on that day; several where it depends on the time of day."""
    if isinstance(model.prices, types.ModelPrice):
        return [model.prices]
    moments = [datetime.combine(day, time(hour), UTC) for hour in range(24)]
    found: list[types.ModelPrice] = []
    for moment in moments:
        price = model.get_prices(moment)
        if price not in found:
            found.append(price)
    return found


def batch_rates(model: types.ModelInfo, day: date) -> tuple[str, str, str]:
    """Input, output and cached at the vendor's own batch API; empty texts where the data has no rates of its own."""
    noon = datetime.combine(day, time(12), UTC)
    live = model.get_prices(noon)
    there = model.get_prices(noon, {"processing": "batch"})
    found = [rate_at([there], field, 0) for field in ("input_mtok", "output_mtok", "cache_read_mtok")]
    tiered = any(isinstance(rate, types.TieredPrices) for rate in vars(there).values())
    if there == live or found[0] is None or tiered:
        return "", "", ""
    return text_of(found[0]), text_of(found[1] or Decimal(0)), text_of(found[0] if found[2] is None else found[2])


def rate_at(prices: list[types.ModelPrice], field: str, above: int) -> Decimal | None:
    """The dearest rate for more than `above` input tokens (0: the base rate)."""
    rates = []
    for price in prices:
        rate = getattr(price, field)
        if isinstance(rate, types.TieredPrices):
            applicable = [tier.price for tier in rate.tiers if tier.start <= above] if above else []
            rate = applicable[-1] if applicable else rate.base
        if rate is not None:
            rates.append(rate)
    return max(rates) if rates else None


def text_of(rate: Decimal | None) -> str:
    """Ten digits: some of the data's rates went through a binary fraction on their way (0.18000000000000002)."""
    return "" if rate is None else f"{Context(prec=10).plus(rate).normalize():f}"


def entry_of(model: types.ModelInfo, day: date) -> ModelEntry:
    prices = prices_on(model, day)
    first = rate_at(prices, "input_mtok", 0)
    output = rate_at(prices, "output_mtok", 0)
    if first is None or (output is None and not is_without_output(model)):
        return ModelEntry(model.id, names_of(model.match))
    per_thousand = rate_at(prices, "requests_kcount", 0)
    starts = sorted(
        {
            tier.start
            for price in prices
            for field in ("input_mtok", "output_mtok", "cache_read_mtok")
            if isinstance(rate := getattr(price, field), types.TieredPrices)
            for tier in rate.tiers
        }
    )
    tiers = []
    for start in starts:
        tier_input = rate_at(prices, "input_mtok", start)
        tier_cached = rate_at(prices, "cache_read_mtok", start)
        tier_output = rate_at(prices, "output_mtok", start) or Decimal(0)
        tiers.append(
            (
                start,
                text_of(tier_input),
                text_of(tier_output),
                text_of(tier_input if tier_cached is None else tier_cached),
            )
        )
    return ModelEntry(
        model.id,
        names_of(model.match),
        text_of(first),
        text_of(output or Decimal(0)),
        text_of(rate_at(prices, "cache_read_mtok", 0)),
        text_of(per_thousand / 1000) if per_thousand else "",
        tuple(tiers),
        batch_rates(model, day),
    )


def is_without_output(model: types.ModelInfo) -> bool:
    """Embedding, reranking and moderation models answer without tokens of output."""
    names = f"{model.id} {model.name} {model.description}".lower()
    return any(word in names for word in ("embed", "rerank", "moderation", "bge", "gte-", "e5-"))


def lines_of(table: ShippedTable) -> Iterator[bytes]:
    """The file, a line a model, so that the next table's difference can be read."""
    yield msgspec.json.encode({"date": table.date, "source": table.source})[:-1] + b',"vendors":['
    for number, vendor in enumerate(table.vendors):
        fields = {"names": vendor.names, "address": vendor.address, "resells": vendor.resells}
        yield (b",\n" if number else b"\n") + msgspec.json.encode(fields)[:-1] + b',"models":[\n'
        yield b",\n".join(map(line_of, vendor.models)) + b"\n]}"
    yield b"\n]}\n"


def line_of(model: ModelEntry) -> bytes:
    """Without the batch rates where there are none, as for most."""
    fields = list(msgspec.structs.astuple(model))
    return msgspec.json.encode(fields if model.batch[0] else fields[:-1])


def main() -> None:
    day = date.fromisoformat(sys.argv[1])
    vendors = []
    for provider in providers:
        if provider.id in SKIPPED:
            continue
        entries = [entry_of(model, day) for model in provider.models]
        vendors.append(
            VendorEntry(
                names=(provider.id, *MORE_NAMES.get(provider.id, ())),
                address=provider.api_pattern,
                resells=tuple(provider.fallback_model_providers or ()),
                models=tuple(entries),
            )
        )
    table = ShippedTable(date=day.isoformat(), source=f"genai-prices {version('genai-prices')}", vendors=tuple(vendors))
    SHIPPED_FILE.write_bytes(b"".join(lines_of(table)))
    print(
        f"{SHIPPED_FILE.name}: {sum(len(vendor.models) for vendor in table.vendors)} models of {len(vendors)} vendors"
    )


if __name__ == "__main__":
    main()
