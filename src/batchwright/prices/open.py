"""The price of a model at a vendor: the user's table first, then what is shipped. Unknown is None, never 0.

    1  the user's table (`prices.user_table`): the most specific entry that matches
    2  `local` costs nothing; `simulated` has its own prices
    3  the shipped table (`prices.shipped`): the vendor by name or host, then its first entry that matches the model

Nothing is read before the first price is asked for: a run whose rows need none does not pay for it.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path

from batchwright.core.pricing import Price
from batchwright.prices.shipped import ShippedPrices
from batchwright.prices.user_table import UserTable, read_user_table

LOCAL = Price(price_id="local", input_rate=0, output_rate=0, cached_rate=0, zero_rated=True)
"""A model on this machine: nobody sends a bill."""
SIMULATED = Price(
    price_id="simulated", input_rate=150_000 * 10**6, output_rate=600_000 * 10**6, cached_rate=150_000 * 10**6
)
"""What the simulated vendor states as its cost (`vendors.simulated.Simulation`), so that a cap can be tried on it."""
OWN_PRICES = {"local": LOCAL, "simulated": SIMULATED}


class Pricer:
    """Finds prices; each (vendor, model) is looked up once."""

    def __init__(self, user_table: UserTable) -> None:
        self._user_table = user_table
        self._shipped: ShippedPrices | None = None
        self._found: dict[tuple[str, str], Price | None] = {}

    def __call__(self, vendor: str, model: str) -> Price | None:
        return self.price(vendor, model)

    def price(self, vendor: str, model: str) -> Price | None:
        """`vendor` as a destination is called (a name, or its host and port); None: no price is known."""
        key = (vendor, model)
        if key not in self._found:
            self._found[key] = self._find(vendor, model)
        return self._found[key]

    def _find(self, vendor: str, model: str) -> Price | None:
        price = self._user_table.find(vendor, model) or OWN_PRICES.get(vendor)
        if price is None:
            if self._shipped is None:
                self._shipped = ShippedPrices.load()
            price = self._shipped.find(vendor, model)
        return price


def open_prices(user_table: Path | None, *, today: date | None = None) -> Pricer:
    """Reads the user's table, if there is one. `today`: its entries that take effect later are left out; None: none is.

    Raises UsageError, naming file, entry and field.
    """
    return Pricer(UserTable(()) if user_table is None else read_user_table(user_table, today=today))
