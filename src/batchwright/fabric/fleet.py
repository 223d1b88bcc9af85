"""A fleet of workers on a cluster: what is asked for, and how it stands."""

from __future__ import annotations

from dataclasses import dataclass, replace

from batchwright.fabric.hosting import together
from batchwright.ports.observer import WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class RayPlan:
    address: str
    """`local`, `auto`, or HOST:PORT of the head."""
    fleet: str
    """Which workers belong together: those of one store."""
    least: int
    most: int
    cpus: float
    """Of the cluster, that each worker takes up."""
    one_machine: bool
    """What the workers share is a folder of this machine."""
    folder: str = ""
    """Of a local cluster, for its sockets and logs; removed with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ActorView:
    name: str
    host: str
    pid: int
    """0: it is on its way, or its node is gone."""
    draining: bool
    view: WorkerView | None
    """None: it does not work yet, or any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    code: str
    """What `code_version` says there."""
    least: int
    most: int
    to_do: int
    """Segments that wait or are held; -1: the store was not asked yet, or did not answer."""
    actors: tuple[ActorView, ...]
    answered: int
    """By all actors that there were."""
    texts: tuple[tuple[int, str], ...]
    """What was told lately, numbered."""

    @property
    def whole(self) -> WorkerView:
        """Idle only where each that is there is."""
        views = [actor.view for actor in self.actors if actor.view is not None]
        whole = together(views)
        return whole if len(views) == len(self.actors) else replace(whole, idle_looks=0)


def other_code_text(there: str, here: str) -> str:
    return f"batchwright on the Ray cluster is {there}, and here it is {here}: the workers of a fleet are all of one."


def first_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line.partition("UsageError: ")[2] for line in lines if "UsageError: " in line]
    return (ours or lines or [type(error).__name__])[0]
