"""Joins settings, store, engine, vendors and runner: the only place that knows which adapter is used.

What the commands ask for stands here by name; which room decides what, the rooms' names say.
"""

from __future__ import annotations

from batchwright.assemble.batches import export, go_on, look_on, open_batches, run, source_rows
from batchwright.assemble.databases import backup, check_database, upgrade_database
from batchwright.assemble.estimating import Sampling, estimate
from batchwright.assemble.prices import lane_prices
from batchwright.assemble.seams import object_files
from batchwright.assemble.working import work

__all__ = [
    "Sampling",
    "backup",
    "check_database",
    "estimate",
    "export",
    "go_on",
    "lane_prices",
    "look_on",
    "object_files",
    "open_batches",
    "run",
    "source_rows",
    "upgrade_database",
    "work",
]
