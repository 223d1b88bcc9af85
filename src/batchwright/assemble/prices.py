"""By which prices rows are bounded and paid."""

from __future__ import annotations

from datetime import date

from batchwright.core.batch_spec import Destination, VendorProtocol, live_place
from batchwright.core.pricing import Price
from batchwright.engine.bounds import LanePrices
from batchwright.fabric.system import SystemClock, utc_day
from batchwright.prices.open import Pricer, open_prices
from batchwright.settings import Settings


class Prices:
    """Finds prices by the settings' table, which is read when the first is asked for: a command that asks for none
    does not end with a table that cannot be read."""

    def __init__(self, settings: Settings, clock: SystemClock) -> None:
        self._table = settings.price_table
        self._clock = clock
        self._pricer: Pricer | None = None

    def __call__(self, destination: Destination, model: str) -> Price | None:
        if destination.protocol is VendorProtocol.SERVICE:
            return None  # what its rows cost it says itself; a vendor's own price is not what it bills
        is_named = destination.protocol in (VendorProtocol.OPENAI, VendorProtocol.ANTHROPIC)
        if destination.protocol is VendorProtocol.BATCH:
            return self.batch(live_place(destination), model)
        name = destination.vendor if is_named else destination.protocol
        return self.load().price(name, model, destination.base_url)

    def batch(self, destination: Destination, model: str) -> Price | None:
        """At the vendor's own batch API, where that is known."""
        if destination.protocol not in (VendorProtocol.OPENAI, VendorProtocol.ANTHROPIC):
            return None
        return self.load().price(destination.vendor, model, destination.base_url, batch=True)

    def load(self) -> Pricer:
        """Raises UsageError for a table that cannot be read: asked before rows are taken in or sent."""
        if self._pricer is None:
            today = date.fromisoformat(utc_day(self._clock.now_ms()))
            self._pricer = open_prices(self._table, today=today)
        return self._pricer

    def reload(self, settings: Settings) -> None:
        """Goes by these settings' table from now on. Raises UsageError, and then goes on with the one before."""
        today = date.fromisoformat(utc_day(self._clock.now_ms()))
        pricer = open_prices(settings.price_table, today=today)
        self._table, self._pricer = settings.price_table, pricer


def may_state_cost_of(destination: Destination, endpoint: str, body: bytes) -> bool:
    from batchwright.vendors.stated_cost import may_state_cost  # asked for by `reprice` alone

    return may_state_cost(destination, endpoint, body)


def batch_prices(settings: Settings) -> LanePrices:
    """Beside `lane_prices`: those of the vendors' own batches."""
    return LanePrices(Prices(settings, SystemClock()).batch, settings.destinations, settings.routes)


def lane_prices(settings: Settings) -> LanePrices:
    """The prices that a run of these settings would bound its rows by."""
    return LanePrices(Prices(settings, SystemClock()), settings.destinations, settings.routes)
