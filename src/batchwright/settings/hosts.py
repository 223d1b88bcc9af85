"""Who hosts the workers of `batchwright work`: this process, several of their own, or actors of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from batchwright.core.errors import UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Hosts:
    processes: int = 0
    """Of their own; 0: none, the worker is in the process that was asked."""
    ray: str = ""
    """A Ray cluster: HOST:PORT of its head, `auto`, or `local` for one that is begun here; empty: none."""
    ray_min: int = 1
    ray_max: int = 1
    """Actors, at least and at most."""
    ray_cpus: float = 1.0
    """Of the cluster, that each actor takes up."""


def read_hosts(values: Mapping[str, Any]) -> Hosts:
    """`values`: what the settings' table has read, by setting name. Raises UsageError for what does not fit."""
    fields = {name: values[name] for name in ("processes", "ray", "ray_min", "ray_max", "ray_cpus") if name in values}
    least, most = fields.get("ray_min", 1), fields.get("ray_max", max(2, fields.get("ray_min", 1)))
    if least > most:
        raise UsageError(f"ray_min is {least} and ray_max {most}: expected a least number of actors within the most")
    if "processes" in fields and "ray" in fields:
        raise UsageError(
            "--processes and --ray were both given: workers are processes of this machine, or actors there"
        )
    return Hosts(**{**fields, "ray_min": least, "ray_max": most})
