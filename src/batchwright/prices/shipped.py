"""The shipped prices: `shipped.json`, written by `tools/make_prices.py` from the `genai-prices` package, dated.

What is in it: per vendor its names, the pattern of its addresses, and its models in order, each with the patterns of
the names it goes by and its rates in USD per million tokens, as decimal texts. The first model that matches wins.

What is not: prices of other things than text tokens and requests (searches, audio, images, writing to a cache), of
service tiers, and of changes that take effect after its date. Where a price depends on the time of day, the dearest is
taken.
"""

from __future__ import annotations

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Self

import msgspec

from batchwright.core.money import picousd_from_usd
from batchwright.core.pricing import Price, Tier

SHIPPED_FILE = Path(__file__).with_name("shipped.json")

Clause = str | list[Any]
"""A model's names: a text is a whole name; a list begins with an operator, its parts are clauses or texts:

    ["|", a, b ...]   any of the clauses      ["<", text]   begins so      ["*", text]   contains it
    ["&", a, b ...]   all of them             [">", text]   ends so        ["~", text]   a regular expression is found
"""


class ModelEntry(msgspec.Struct, array_like=True, frozen=True):
    model: str
    names: Clause
    input: str = ""
    """Empty: this model has no price by text tokens. It stands here so that no later pattern is taken for it."""
    output: str = ""
    cached: str = ""
    """Empty: cached input costs what other input does."""
    request: str = ""
    tiers: tuple[tuple[int, str, str, str], ...] = ()
    """(above so many input tokens, input, output, cached)"""
    batch: tuple[str, str, str] = ("", "", "")
    """Input, output and cached at the vendor's own batch API, where it has rates of its own there; of tiers nothing is
    said then, and none is taken to be."""


class VendorEntry(msgspec.Struct, frozen=True, kw_only=True):
    names: tuple[str, ...]
    """What its destinations may be called; the first is its own."""
    address: str
    """A regular expression that the beginning of its base URLs matches."""
    resells: tuple[str, ...] = ()
    """Vendors whose prices hold for their models here, where it has none of its own."""
    models: tuple[ModelEntry, ...]


class ShippedTable(msgspec.Struct, frozen=True, kw_only=True):
    date: str
    """`YYYY-MM-DD`: the prices are those of this day."""
    source: str
    vendors: tuple[VendorEntry, ...]


class ShippedPrices:
    """The table with its look-ups."""

    def __init__(self, table: ShippedTable) -> None:
        self._table = table
        self._by_name = {name: vendor for vendor in reversed(table.vendors) for name in vendor.names}

    @classmethod
    def load(cls) -> Self:
        return cls(msgspec.json.decode(SHIPPED_FILE.read_bytes(), type=ShippedTable))

    def find(self, vendor: str, model: str, *, batch: bool = False) -> Price | None:
        """`vendor`: a name, or host and port. `batch`: at its batch API. None: the vendor is not known, it has no such
        model, or none with a price there."""
        entry = self._vendor(vendor)
        if entry is None:
            return None
        others = (self._by_name[name] for name in entry.resells if name in self._by_name)
        name = model.lower()
        for candidate in (entry, *others):
            for known in candidate.models:
                if matches(known.names, name):
                    if batch:
                        return self._batch_price(candidate, known) if known.batch[0] else None
                    return self._price(candidate, known) if known.input else None
        return None

    def _vendor(self, vendor: str) -> VendorEntry | None:
        named = self._by_name.get(vendor.lower())
        if named is not None or "." not in vendor:
            return named
        host = vendor.lower().partition(":")[0]
        return next((entry for entry in self._table.vendors if is_host_of(entry.address, host)), None)

    def _batch_price(self, vendor: VendorEntry, entry: ModelEntry) -> Price:
        rates = [picousd_from_usd(text) for text in entry.batch]
        return Price(
            price_id=f"{self._table.source} {self._table.date} {vendor.names[0]}/{entry.model} batch",
            input_rate=rates[0],
            output_rate=rates[1],
            cached_rate=rates[2],
            zero_rated=not any(rates),
        )

    def _price(self, vendor: VendorEntry, entry: ModelEntry) -> Price:
        cached = entry.cached or entry.input
        rates = [picousd_from_usd(text) for text in (entry.input, entry.output, cached)]
        request_picousd = picousd_from_usd(Decimal(entry.request or 0))
        tiers = tuple(
            Tier(
                above_tokens=above,
                input_rate=picousd_from_usd(tier_input),
                output_rate=picousd_from_usd(tier_output),
                cached_rate=picousd_from_usd(tier_cached),
            )
            for above, tier_input, tier_output, tier_cached in entry.tiers
        )
        return Price(
            price_id=f"{self._table.source} {self._table.date} {vendor.names[0]}/{entry.model}",
            input_rate=rates[0],
            output_rate=rates[1],
            cached_rate=rates[2],
            request_picousd=request_picousd,
            zero_rated=not any(rates) and not request_picousd and not tiers,
            tiers=tiers,
        )


def is_host_of(address: str, host: str) -> bool:
    """Does a base URL at `host` match? The patterns are those of beginnings, but only a whole host counts: the prices
    of `api.vendor.com` are not those of `api.vendor.com.example.org`. One that ends in a dot leaves the top-level
    domain open."""
    url = f"https://{host}/"
    found = re.match(address, url)
    if found is None:
        return False
    rest = url[found.end() :].rstrip("/")
    return not rest or (found[0].endswith(".") and "." not in rest)


def matches(clause: Clause, name: str) -> bool:
    """Is `name` (lower case) one of the names that `clause` means?"""
    if isinstance(clause, str):
        return name == clause
    operator, *rest = clause
    if operator == "|":
        return any(matches(part, name) for part in rest)
    if operator == "&":
        return all(matches(part, name) for part in rest)
    text = rest[0]
    assert isinstance(text, str)
    if operator == "<":
        return name.startswith(text)
    if operator == ">":
        return name.endswith(text)
    if operator == "*":
        return text in name
    assert operator == "~", operator
    return re.search(text, name) is not None
