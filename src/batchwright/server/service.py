"""What the routes work with. `assemble` makes it; nothing in `server` knows which adapters stand behind it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from batchwright.core.batch_spec import Destination, Routes, VendorProtocol
from batchwright.core.routes import LOCAL, NO_ROUTES
from batchwright.core.row_options import MAX_ROW_BYTES
from batchwright.core.tenants import Tenant
from batchwright.ports.batches import Batches
from batchwright.ports.calls import Calls
from batchwright.ports.clock import Chance, Clock
from batchwright.ports.file_batches import Files
from batchwright.ports.keys import Keys
from batchwright.ports.webhooks import Targets, Webhooks
from batchwright.server.exporting import Exporting
from batchwright.server.insight import Insight
from batchwright.server.pace import Paces
from batchwright.server.recent import Recent
from batchwright.server.row_file import FileIndexes
from batchwright.server.watching import Watching

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """What one request may hold. Published in discovery and named in the error when passed."""

    rows: int = 10_000_000
    """Of one batch."""
    array_bytes: int = 256 * MIB
    """Of a JSON body: it is in memory whole. A stream of lines has no such bound."""
    stream_bytes: int = 64 * 1024 * MIB
    """Of a body that is taken in as it arrives."""
    row_bytes: int = MAX_ROW_BYTES
    page_rows: int = 1_000
    """Of one page of results."""
    silent_s: float = 60.0
    """A body of which nothing arrives for so long is given up."""
    stream_silent_s: float = 600.0
    """The same of a stream of lines: whoever makes them may need time."""
    export_bytes: int = 32 * MIB
    """Of `data.content` in an export's envelope; a larger export has a link in its place."""


class Offers:
    """Where rows of new submits can go. Changed as a whole when the settings are read again."""

    def __init__(
        self,
        destinations: tuple[Destination, ...],
        model: str = "",
        routes: Routes = NO_ROUTES,
        *,
        has_local: bool = False,
    ) -> None:
        self.change(destinations, model, routes, has_local=has_local)

    def change(self, destinations: tuple[Destination, ...], model: str, routes: Routes, *, has_local: bool) -> None:
        """`has_local`: the local model can run on this machine, which rows may name whatever else is configured."""
        self.destinations, self.model, self.routes, self.has_local = destinations, model, routes, has_local

    def serves(self, destination: Destination) -> bool:
        """Whether rows may go there now."""
        return not destination.unusable and (destination.protocol is not VendorProtocol.LOCAL or self.has_local)

    @property
    def usable(self) -> tuple[Destination, ...]:
        """Every place that a row can go to, in order of preference."""
        here = tuple(place for place in self.destinations if self.serves(place))
        named = any(place.vendor == LOCAL.vendor for place in self.destinations)
        return here if named or not self.has_local else (*here, LOCAL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Service:
    batches_of: Callable[[Tenant], Batches]
    files_of: Callable[[Tenant], Files]
    calls: Calls
    keys: Keys
    webhooks: Webhooks
    targets: Targets
    clock: Clock
    chance: Chance
    offers: Offers
    ceilings: Ceilings = field(default_factory=Ceilings)
    watching: Watching
    """Who looks on at which batch."""
    recent: Recent
    """What was answered since the last commit."""
    paces: Paces = field(default_factory=Paces)
    files: FileIndexes = field(default_factory=FileIndexes)
    """Of exports that were made, so that parts of them can be given."""
    exporting: Exporting | None = None
    """Large exports as objects, where bodies lie outside the database."""
    version: str
    insight: Insight
    open_metrics: bool = False
    report: Callable[[str], None]
    """Takes a sentence about something that went wrong and was survived."""

    @property
    def destinations(self) -> tuple[Destination, ...]:
        """Where rows can go, in order of preference."""
        return self.offers.destinations

    @property
    def routes(self) -> Routes:
        """Model names of ours, each with the choices it stands for."""
        return self.offers.routes

    @property
    def model(self) -> str:
        """Of rows that name none; empty: those are refused."""
        return self.offers.model
