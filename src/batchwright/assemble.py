"""Joins settings, store, engine, vendors and runner: the only place that knows which adapter is used."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager

from batchwright.core.rows import SourceRow
from batchwright.ports.batches import Batches
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.request import Delivery, Pace, RunRequest
from batchwright.runner.seams import Display
from batchwright.settings import Settings


def open_batches(settings: Settings) -> AbstractAsyncContextManager[Batches]:
    """This machine's batches. Makes one pass of the sweeper when it is opened."""
    raise NotImplementedError


def source_rows(settings: Settings, request: RunRequest) -> Iterator[Sequence[SourceRow]]:
    """The input as a run would take it in, priced, a chunk at a time (`validate`, `--dry-run`); opens no store.

    Raises what a run would: InputRefused, after all of the input was read; UsageError.
    """
    raise NotImplementedError


async def run(settings: Settings, request: RunRequest, *, display: Display) -> RunOutcome:
    """`batchwright run`: from the file to the file."""
    raise NotImplementedError


async def go_on(settings: Settings, batch_id: str, *, delivery: Delivery, pace: Pace, display: Display) -> RunOutcome:
    """Works on a durable batch until it ends or pauses, and delivers it (`retry`, `resume`)."""
    raise NotImplementedError


async def look_on(settings: Settings, batch_id: str, *, delivery: Delivery, display: Display) -> RunOutcome:
    """`batchwright watch`: shows a batch until it ends or pauses; sends and writes nothing."""
    raise NotImplementedError


async def export(settings: Settings, batch_id: str, *, delivery: Delivery, display: Display) -> RunOutcome:
    """`batchwright export`: writes the answers of a batch, in input order."""
    raise NotImplementedError


async def work(settings: Settings, *, until_idle: bool, display: Display) -> int:
    """`batchwright work`: works on every batch of this machine until it is told to end; returns the exit code."""
    raise NotImplementedError
