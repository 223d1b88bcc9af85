"""The price of a model at a vendor: the user's table first, then what is shipped. Unknown is None, never 0.

    1  the user's table (`prices.user_table`): the most specific entry that matches
    2  `local` costs nothing; `simulated` has its own prices
    3  the shipped table (`prices.shipped`): the vendor by name or host, then its first entry that matches the model

At a vendor's own batch API a model costs what the same table says of that: the user's `batch_factor`, the shipped
batch rates. Where it says nothing the price is not known: that everybody takes half is no price.

Nothing is read before the first price is asked for: a run whose rows need none does not pay for it.
"""

from __future__ import annotations

from datetime import date
from pathlib import Path
from urllib.parse import urlsplit

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
        self._found: dict[tuple[str, str, str, bool], Price | None] = {}

    def price(self, vendor: str, model: str, base_url: str = "", *, batch: bool = False) -> Price | None:
        """`vendor` as a destination is called; `base_url` where it has one; `batch`: at its batch API. None: no price
        is known.

        The user's own entries go by the name or by host and port; shipped prices by the address alone where there is
        one, since a name proves nothing: what is called `openai` and stands at another address bills something else.
        """
        key = (vendor, model, base_url, batch)
        if key not in self._found:
            self._found[key] = self._find(vendor, model, urlsplit(base_url).netloc.lower(), batch=batch)
        return self._found[key]

    def _find(self, vendor: str, model: str, address: str, *, batch: bool) -> Price | None:
        entry = self._user_table.find(vendor, model, address)
        if entry is not None:
            return entry.batch_price if batch else entry.price
        if not address and vendor in OWN_PRICES:
            return None if batch else OWN_PRICES[vendor]
        if self._shipped is None:
            self._shipped = ShippedPrices.load()
        return self._shipped.find(address or vendor, model, batch=batch)


def open_prices(user_table: Path | None, *, today: date | None = None) -> Pricer:
    """Reads the user's table, if there is one. `today`: its entries that take effect later are left out; None: none is.

    Raises UsageError, naming file, entry and field.
    """
    return Pricer(UserTable(()) if user_table is None else read_user_table(user_table, today=today))
