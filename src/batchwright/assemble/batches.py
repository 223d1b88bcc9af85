"""The commands on one batch, and the batches that all others ask."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from batchwright.assemble.home import STORE_FILE
from batchwright.assemble.machine import open_machine
from batchwright.assemble.seams import seams_here, seams_there
from batchwright.core.errors import UsageError
from batchwright.core.rows import SourceRow
from batchwright.engine.bounds import LanePrices, with_worst_cases
from batchwright.ports.batches import Batches
from batchwright.runner import run as running
from batchwright.runner.deliver import deliver
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.report import NOTHING_DONE
from batchwright.runner.request import Delivery, Pace, RunRequest
from batchwright.runner.seams import Display
from batchwright.runner.source import open_source
from batchwright.settings import Settings


@asynccontextmanager
async def open_batches(settings: Settings, *, say: Callable[[str], None] | None = None) -> AsyncIterator[Batches]:
    """This machine's batches, or those of the service that the settings name. Here the sweeper makes one pass first.
    `say` hears of a service's answers that are long in coming."""
    if settings.service is not None:
        from batchwright.assemble.client import open_service_batches  # only where one is asked

        async with open_service_batches(settings, settings.service, say=say) as there:
            yield there
        return
    async with open_machine(settings) as machine:
        yield machine.batches.of_operator(settings.account)


async def run(settings: Settings, request: RunRequest, *, display: Display) -> RunOutcome:
    """`batchwright run`: from the file to the file."""
    _refuse_state_file(settings, request.delivery)
    async with seams_here(settings, display, operator=False) as (machine, seams):
        machine.find_price.load()
        return await running.run(request, seams, chance=machine.chance)


def _refuse_state_file(settings: Settings, delivery: Delivery) -> None:
    """The database's own files, by whatever way they are named."""
    state = os.path.realpath(settings.state_dir)  # not Path.resolve, which raises for a link that leads to itself
    for path in (delivery.output, delivery.failed_output):
        if isinstance(path, Path) and _is_state(path, state):
            raise UsageError(f"{path} holds the state of all batches here; choose another output")


def _is_state(path: Path, state: str) -> bool:
    return os.path.dirname(os.path.realpath(path)) == state and path.name.startswith(STORE_FILE)


async def go_on(
    settings: Settings, batch_id: str, *, delivery: Delivery, pace: Pace, display: Display, opened: bool = False
) -> RunOutcome:
    """Works on a durable batch until it ends or pauses, and delivers it (`retry`, `resume`). `opened`: there were rows
    to be sent when the command began."""
    async with seams_there(settings, display, sends=True) as seams:
        return await running.go_on(batch_id, delivery, pace, seams, opened=opened)


async def look_on(settings: Settings, batch_id: str, *, delivery: Delivery, display: Display) -> RunOutcome:
    """`batchwright watch`: shows a batch until it ends or pauses; sends and writes nothing."""
    async with seams_there(settings, display, sends=False) as seams:
        return await running.look_on(batch_id, delivery, seams)


async def export(settings: Settings, batch_id: str, *, delivery: Delivery, display: Display) -> RunOutcome:
    """`batchwright export`: writes the answers of a batch, in input order."""
    _refuse_state_file(settings, delivery)
    async with seams_there(settings, display, sends=False) as seams:
        status = await seams.batches.status(batch_id)
        return await deliver(status, delivery, NOTHING_DONE, seams)


def source_rows(
    request: RunRequest, prices: LanePrices, *, say: Callable[[str], None]
) -> Iterator[Sequence[SourceRow]]:
    """The rows a run would send, checked and bounded; nothing is stored (`run --dry-run`). `say` hears how the input
    is read."""
    with open_source(request.source, request.rows, skip_invalid=True, objects=request.objects) as source:
        for text in source.notes:
            say(text)
        yield from with_worst_cases(source.chunks(), prices)
        for text in source.left_out.texts(source.rows):
            say(text)
