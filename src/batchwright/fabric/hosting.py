"""What every host of workers is handed, and what it gives back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from dataclasses import replace
from typing import Protocol

from batchwright.ports.observer import LaneView, WorkerView

Say = Callable[[str], None]
"""Takes a sentence for people, on any thread."""


class RunningWorker(Protocol):
    """One worker, or several as one."""

    async def wait(self) -> None:
        """Returns when it has ended; raises what ended it."""

    async def stop(self, *, grace: bool) -> None:
        """Stops sending, checkpoints, gives back; returns when it has ended. With grace rows in flight may finish; a
        second call without cuts that short."""

    def view(self) -> WorkerView | None:
        """None: it has ended, or has not begun."""


class WorkerBuilder(Protocol):
    """Picklable, and free of secrets: a fresh process builds its worker by it, from what that process has itself."""

    def __call__(self, say: Say) -> AbstractAsyncContextManager[RunningWorker]:
        """A worker on the running loop, and everything it needs; closed with it. Raises UsageError, StoreError."""


class FleetBuilder(WorkerBuilder, Protocol):
    """Of workers whose number goes by how much there is to do."""

    def open_load(self) -> AbstractContextManager[Callable[[], int]]:
        """What tells how many segments wait or are held, over all batches that may be worked on. Blocks."""


def together(views: Sequence[WorkerView]) -> WorkerView:
    """Several workers as one; idle once all are that do not stand by."""
    lanes: dict[str, LaneView] = {}
    for lane in (lane for view in views for lane in view.lanes):
        seen = lanes.get(lane.lane)
        lanes[lane.lane] = lane if seen is None else _as_one(seen, lane)
    return WorkerView(
        in_flight=sum(view.in_flight for view in views),
        answered=sum(view.answered for view in views),
        retries_waiting=sum(view.retries_waiting for view in views),
        lanes=tuple(lanes.values()),
        note="; ".join(dict.fromkeys(view.note for view in views if view.note)),
        idle_looks=min((view.idle_looks for view in views if not view.drained), default=0),
        drained=bool(views) and all(view.drained for view in views),
    )


def _as_one(one: LaneView, other: LaneView) -> LaneView:
    return replace(
        one,
        in_flight=one.in_flight + other.in_flight,
        limit=one.limit + other.limit,
        waiting=one.waiting or other.waiting,
    )
