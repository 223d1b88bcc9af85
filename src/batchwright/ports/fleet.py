"""The workers of one store: who lives, what they tell each other, and what a person asks of them. Part of the store's
contract (`ports.store`): each method is one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from batchwright.core.lane_wait import LaneWait
from batchwright.core.quarantine import Quarantine
from batchwright.core.shares import LaneUse
from batchwright.core.worker_id import WorkerId
from batchwright.core.worker_state import NOTHING_TOLD, WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRow:
    """A worker that lives, as far as is known: where it runs, when it was last heard of, and what it told then."""

    worker: WorkerId
    host: str
    pid: int
    started_at_ms: int
    heartbeat_ms: int
    note: str
    """For people: what the worker lacks (a key's variable) or waits for."""
    uses: tuple[LaneUse, ...] = ()
    """The lanes it sends to, with its share of their limits."""
    waits: tuple[LaneWait, ...] = ()
    """What held lanes of its back."""
    state: WorkerState = NOTHING_TOLD
    draining: bool = False
    """It was asked to end, and where it stands by since then it is asked to stay so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LanePause:
    """A lane that is paused for good until a probe or a person clears it."""

    lane: str
    reason: str
    since_ms: int
    probe_at_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard:
    """What a worker hears with its heartbeat."""

    shares_ppm: Mapping[str, int] = field(default_factory=dict)
    """By lane that it takes part in: what it may use of the limit from now on. Told to the others already."""
    draining: bool = False
    """It is asked to send nothing more and to end."""
    quarantines: tuple[Quarantine, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetRow:
    """All that the store knows of workers and lanes, at one moment."""

    workers: tuple[WorkerRow, ...]
    """In the order of their start."""
    segments: Mapping[WorkerId, int]
    """How many each holds; those that hold none are not there."""
    pauses: tuple[LanePause, ...]
    quarantines: tuple[Quarantine, ...]


class Fleet(Protocol):
    def register_worker(
        self, worker: WorkerId, *, host: str, pid: int, now_ms: int, state: WorkerState = NOTHING_TOLD
    ) -> None:
        """A new incarnation of a name marks older ones of that name dead; their segments become claimable. `state`: as
        in a heartbeat; one that is `drained` begins as one that was asked to end."""

    def heartbeat(
        self,
        worker: WorkerId,
        now_ms: int,
        *,
        note: str = "",
        uses: Sequence[LaneUse] = (),
        waits: Sequence[LaneWait] = (),
        state: WorkerState = NOTHING_TOLD,
    ) -> Heard | None:
        """Renews the worker's lease, and tells how it is: the lanes it sends to, what holds some of them back. None: it
        was marked dead; it must stop at once and come back as another.

        Shares of lanes in whose limit it takes part (`LaneUse.demand` above 0) are granted in the same transaction, one
        worker after another, by `core.shares.grants` over what every live worker told last that was heard of within
        `SILENT_S`: the sum of those shares is at most the whole at every commit. A worker that was silent for longer
        itself holds none, whatever it says.
        """

    def end_worker(self, worker: WorkerId) -> None:
        """Orderly end: segments it still holds become `waiting` without a death; what they reserved is in doubt."""

    def mark_dead(self, workers: Sequence[WorkerId]) -> int:
        """Segments of these become claimable at once, a death each; returns how many. Their epochs still fence."""

    def live_workers(self) -> list[WorkerRow]:
        """Workers that have neither ended nor been marked dead."""

    def fleet(self) -> FleetRow:
        """For whoever looks on."""

    def drain_worker(self, worker: WorkerId) -> bool:
        """Asks it to end, which it hears with its next heartbeat at the latest. False: it does not live any more."""

    def end_drain(self, worker: WorkerId) -> bool:
        """Asks one that stands by to work again. False: it does not live any more."""

    def wishes(self, worker: WorkerId) -> Heard | None:
        """What people ask of it, as with a heartbeat, and no shares; it renews nothing. None: it was marked dead."""

    def quarantines(self) -> list[Quarantine]:
        """All that hold."""

    def set_quarantine(self, quarantine: Quarantine) -> None:
        """Closes the vendor's lanes, or those of one model, to every worker; in place of the same that there is."""

    def lift_quarantine(self, vendor: str, model: str) -> bool:
        """Opens them again, as far as no other quarantine closes them, and releases what waits for them, as the next.
        False: there was none."""

    def release_lanes(self, vendor: str, model: str) -> None:
        """Removes the LANE pauses of batches with open rows for these lanes. By every worker that hears of the opening
        as well: until then it may have paused one of them anew."""
