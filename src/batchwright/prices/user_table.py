"""The user's own price table, a TOML file:

    [currency.CNY]                 # only for prices that are not in USD
    usd = "0.1389"                 # one unit of it in USD ...
    date = 2026-11-20              # ... on this day

    [[price]]
    vendor = "open.bigmodel.cn"    # the destination's name, or its host and port; shell-style patterns; default "*"
    pattern = "glm-5*"             # the model name as the vendor gets it; shell-style patterns
    input = "4"                    # per million tokens, as decimal text
    output = "16"
    cached = "0.8"                 # default: as input
    request = "0"                  # per answered request; default 0
    batch_factor = "0.5"           # of all these at the vendor's own batch API; default: not known there
    currency = "CNY"               # default USD
    effective = 2026-10-01         # from this day on; default: always
    source = "https://..."         # for people
    # zero_rated = true            # instead of all rates: nothing is charged, and that is known

Of the entries that match, the most specific one counts: by vendor first, then by model. A name without wildcards is
more specific than a pattern, a pattern with more literal characters more than one with fewer; among equals the later
`effective`, then the later entry.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import ROUND_HALF_EVEN, Decimal, InvalidOperation
from fnmatch import fnmatchcase
from pathlib import Path

from batchwright.core.errors import UsageError
from batchwright.core.money import PICO
from batchwright.core.pricing import Price

RATES = ("input", "output", "cached", "request")
FIELDS = frozenset({*RATES, "batch_factor", "vendor", "pattern", "currency", "effective", "source", "zero_rated"})
RATE_MAX = Decimal(10) ** 9
"""Above this a price is a slip of the keyboard, and its products would leave 64 bits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UserPrice:
    vendor: str
    pattern: str
    effective: date
    price: Price
    batch_price: Price | None
    """At the vendor's own batch API; None: not known."""

    @property
    def rank(self) -> tuple[tuple[bool, int], tuple[bool, int], date]:
        return _specific(self.vendor), _specific(self.pattern), self.effective

    def matches(self, vendor: str, model: str) -> bool:
        return fnmatchcase(vendor, self.vendor) and fnmatchcase(model, self.pattern)


class UserTable:
    """The entries of one table."""

    def __init__(self, prices: Sequence[UserPrice]) -> None:
        # Stable: of equals the later entry of the file comes last.
        self._prices = sorted(prices, key=lambda entry: entry.rank)

    def find(self, vendor: str, model: str, address: str = "") -> UserPrice | None:
        """The most specific of the entries that match by the vendor's name or by its address (host and port; empty: it
        has none); None: no entry matches."""
        names = (vendor, address) if address else (vendor,)
        for entry in reversed(self._prices):
            if any(entry.matches(name, model) for name in names):
                return entry
        return None


def read_user_table(path: Path, *, today: date | None = None) -> UserTable:
    """Entries that take effect after `today` are left out (None: none is). Raises UsageError with the file, the entry
    and the field."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"), parse_float=Decimal)
    except OSError as error:
        raise UsageError(f"price table {path}: cannot be read: {error.strerror}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"price table {path}: is no TOML file in UTF-8: {error}") from error
    for key in content:
        if key not in ("price", "currency"):
            raise UsageError(f"price table {path}: unknown key {key!r}: expected [[price]] entries and [currency.NAME]")
    currencies = _Currencies(path, content.get("currency", {}))
    entries = content.get("price", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UsageError(f"price table {path}: price: expected entries that begin with [[price]]")
    prices = [_Entry(path, number, entry).read(currencies) for number, entry in enumerate(entries, 1)]
    return UserTable([price for price in prices if today is None or price.effective <= today])


class _Currencies:
    """USD for one unit of each currency, with the day of the rate."""

    def __init__(self, path: Path, tables: object) -> None:
        self._rates: dict[str, tuple[Decimal, date]] = {}
        if not isinstance(tables, dict):
            raise UsageError(f"price table {path}: currency: expected tables [currency.NAME]")
        for name, table in tables.items():
            where = f"price table {path}: currency {name}"
            if not isinstance(table, dict) or set(table) != {"usd", "date"}:
                raise UsageError(f'{where}: expected exactly usd = "..." and date = YYYY-MM-DD')
            if name == "USD":
                raise UsageError(f"{where}: is 1 by definition: take the entry out")
            usd = _decimal(table["usd"], f"{where}: usd")
            if not usd:
                raise UsageError(f"{where}: usd: expected the worth of one {name} in USD, found 0")
            self._rates[name] = usd, _day(table["date"], f"{where}: date")

    def names(self) -> list[str]:
        return ["USD", *sorted(self._rates)]

    def get(self, name: str) -> tuple[Decimal, str] | None:
        """(USD for one, what to add to a price's id)"""
        if name == "USD":
            return Decimal(1), ""
        found = self._rates.get(name)
        return None if found is None else (found[0], f" {name} at {found[0]} of {found[1]}")


class _Entry:
    """One [[price]] of the file, being read."""

    def __init__(self, path: Path, number: int, fields: Mapping[str, object]) -> None:
        self._fields = fields
        name = " ".join(str(fields[key]) for key in ("vendor", "pattern") if key in fields)
        self._where = f"price table {path}: price {number}" + (f" ({name})" if name else "")

    def read(self, currencies: _Currencies) -> UserPrice:
        for key in self._fields:
            if key not in FIELDS:
                raise UsageError(f"{self._where}: unknown field {key!r}; there are: {', '.join(sorted(FIELDS))}")
        vendor = self._text("vendor", "*")
        pattern = self._text("pattern", "")
        if not pattern:
            raise self._wrong("pattern", "the model's name or a pattern of it")
        effective = _day(self._fields.get("effective", date.min), f"{self._where}: effective")
        self._text("source", "")
        since = "" if effective == date.min else f" since {effective}"
        zero_rated = self._fields.get("zero_rated", False)
        if not isinstance(zero_rated, bool):
            raise self._wrong("zero_rated", "true or false")
        currency = self._text("currency", "USD")
        worth = currencies.get(currency)
        if worth is None:
            known = ", ".join(currencies.names())
            raise self._wrong("currency", f"one of {known}, or a table [currency.{currency}] with its rate")
        price_id = f"user {vendor}/{pattern}{since}{worth[1]}"
        price = self._zero(price_id) if zero_rated else self._rated(price_id, worth[0])
        batch_price = price if zero_rated else self._at_batch_api(price)
        return UserPrice(vendor=vendor, pattern=pattern, effective=effective, price=price, batch_price=batch_price)

    def _at_batch_api(self, price: Price) -> Price | None:
        if "batch_factor" not in self._fields:
            return None
        factor = _decimal(self._fields["batch_factor"], f"{self._where}: batch_factor")

        def part(rate: int) -> int:
            return int((rate * factor).to_integral_value(ROUND_HALF_EVEN))

        return Price(
            price_id=f"{price.price_id} batch",
            input_rate=part(price.input_rate),
            output_rate=part(price.output_rate),
            cached_rate=part(price.cached_rate),
            request_picousd=part(price.request_picousd),
            zero_rated=not factor or price.zero_rated,
        )

    def _zero(self, price_id: str) -> Price:
        for field in (*RATES, "batch_factor"):
            if field in self._fields:
                raise self._wrong(field, "no rate beside zero_rated = true")
        return Price(price_id=price_id, input_rate=0, output_rate=0, cached_rate=0, zero_rated=True)

    def _rated(self, price_id: str, usd: Decimal) -> Price:
        for field in ("input", "output"):
            if field not in self._fields:
                raise UsageError(
                    f"{self._where}: {field} is missing: expected a rate per million tokens, or zero_rated = true "
                    "instead of all rates"
                )
        rates = {field: self._picousd(field, usd) for field in RATES if field in self._fields}
        return Price(
            price_id=price_id,
            input_rate=rates["input"],
            output_rate=rates["output"],
            cached_rate=rates.get("cached", rates["input"]),
            request_picousd=rates.get("request", 0),
            zero_rated=not any(rates.values()),
        )

    def _picousd(self, field: str, usd: Decimal) -> int:
        amount = _decimal(self._fields[field], f"{self._where}: {field}")
        return int((amount * usd * PICO).to_integral_value(ROUND_HALF_EVEN))

    def _text(self, field: str, default: str) -> str:
        value = self._fields.get(field, default)
        if not isinstance(value, str):
            raise self._wrong(field, "a text in quotes")
        return value

    def _wrong(self, field: str, expected: str) -> UsageError:
        found = f"found {self._fields[field]!r}" if field in self._fields else "it is missing"
        return UsageError(f"{self._where}: {field}: expected {expected}, {found}")


def _specific(pattern: str) -> tuple[bool, int]:
    literal = sum(character not in "*?[]" for character in pattern)
    return literal == len(pattern), literal


def _decimal(value: object, where: str) -> Decimal:
    """Exact: TOML numbers are read as decimals too, never as binary fractions."""
    amount = None
    if isinstance(value, str | int | Decimal) and not isinstance(value, bool):
        try:
            amount = Decimal(value)
        except InvalidOperation:
            amount = None
    if amount is None or not amount.is_finite() or not 0 <= amount <= RATE_MAX:
        raise UsageError(f'{where}: expected a decimal number from 0 to {RATE_MAX:,} like "0.15", found {value!r}')
    return amount


def _day(value: object, where: str) -> date:
    if isinstance(value, str):
        try:
            return date.fromisoformat(value)
        except ValueError:
            pass
    if not isinstance(value, date) or isinstance(value, datetime):
        raise UsageError(f"{where}: expected a day like 2026-11-20, found {str(value)!r}")
    return value
