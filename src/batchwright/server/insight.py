"""What can be seen of the service from inside; what its own routes and its access log go by."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from batchwright.core.histogram import Histogram
from batchwright.ports.fleet import FleetRow
from batchwright.ports.observer import Backlog, WorkerFigures, WorkerView


class HttpFigures:
    """Requests since the start. Labels are bounded: templates of routes, known methods, statuses."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.requests: dict[tuple[str, str, int], int] = {}
        """By method, route and status."""
        self.seconds: dict[str, Histogram] = {}
        """By route."""

    def ended(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method, route, status)
        self.requests[key] = self.requests.get(key, 0) + 1
        self.seconds.setdefault(route, Histogram()).add(seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Insight:
    read_backlog: Callable[[], Backlog]
    """Reads the store, in a thread. Raises StoreError."""
    read_fleet: Callable[[], FleetRow]
    """Likewise."""
    view_worker: Callable[[], WorkerView | None]
    """None: it has ended, or there is none here."""
    works: bool
    """Whether a worker belongs to this process."""
    figures: WorkerFigures
    http: HttpFigures = field(default_factory=HttpFigures)
