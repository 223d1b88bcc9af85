"""How an input that is run anew differs from the last batch that was made of the same file: said once it is taken in,
before any of it is sent.

A resume that silently starts over is the thing people fear; this names the option, or how many rows are others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice, zip_longest

from batchwright.core.errors import InputRefused
from batchwright.core.routes import Directions, lead_alike
from batchwright.core.rows import SourceRow
from batchwright.ports.batches import Batches, BatchStatus
from batchwright.runner.figures import count_text, plural, shown_text
from batchwright.runner.request import RunRequest
from batchwright.runner.same_way import directions_of, first_difference
from batchwright.runner.source import CHUNK_ROWS, Source, open_source

MAX_COMPARED_ROWS = 20_000
"""About half a second. Of a larger file this many from its beginning are compared, and the text says so."""
REUSE_WORD = "Starting anew. (With --fresh --reuse, rows that are the same keep their answers.)"
MAX_SHOWN_OPTIONS = 5
MAX_SHOWN_VALUE = 60
WAY_BOUNDS = (MAX_SHOWN_VALUE, 300, 300)
"""Of a model's name and two ways: these may be several choices, and what differs may stand at the end."""


async def differences_texts(
    request: RunRequest, source: Source, options: Mapping[str, str], batches: Batches, path: str
) -> tuple[str, ...]:
    """Empty where no earlier batch was made of this path."""
    earlier = await batches.find(source=path, limit=1) if path else []
    if not earlier:
        return ()
    batch = earlier[0]
    parts: list[str] = []
    changed = changed_options(batch.spec.options, options)
    if changed:
        parts.append(_options_text(changed))
    file_changed = batch.spec.input_digest != source.input_digest
    whole = not (changed or file_changed)
    if text := await asyncio.to_thread(_way_text, source, batch, request.rows.directions, whole=whole):
        parts.append(text)
    if file_changed:
        parts.append("the file has changed" if parts else await _rows_text(request, batch, batches))
    if not parts:
        return ()
    anew = "Starting anew." if request.reuse.of_file else REUSE_WORD
    return (f"{batch.batch_id} was made of the same file, but {'; '.join(parts)}. {anew}",)


def _way_text(source: Source, batch: BatchStatus, now: Directions, *, whole: bool) -> str:
    """Which rows go elsewhere than they did; empty: none. `whole`: all rows are looked at, else the first of them."""
    before = directions_of(batch)
    if lead_alike(before, now):
        return ""
    models = source.models()
    found = first_difference(models if whole else islice(models, MAX_COMPARED_ROWS // CHUNK_ROWS), before, now)
    if found is None:
        return ""
    model, to, was = (shown_text(text, bound) for text, bound in zip(found, WAY_BOUNDS, strict=True))
    rows = f"rows of the model {model}" if model else "rows that name no model"
    return f"{rows} now go {to or 'nowhere'}" + (f" (before: {was})" if was else "")


def changed_options(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """ "--model is now b (was a)", for each that differs."""
    names = sorted(name for name in before.keys() | now.keys() if before.get(name) != now.get(name))
    return [f"{name} is now {_value(now.get(name))} (was {_value(before.get(name))})" for name in names]


def _value(value: str | None) -> str:
    return "not given" if value is None else shown_text(value, MAX_SHOWN_VALUE)


def _options_text(changed: list[str]) -> str:
    more = len(changed) - MAX_SHOWN_OPTIONS
    return ", ".join(changed[:MAX_SHOWN_OPTIONS]) + (f" and {more} more options differ" if more > 0 else "")


async def _rows_text(request: RunRequest, batch: BatchStatus, batches: Batches) -> str:
    """How many rows are others. Same options, so that the same line gives the same bytes."""
    with open_source(request.source, request.rows, objects=request.objects) as again:
        counted = await _count(_first_rows(again), batch, batches)
    changed, added, gone, whole = counted
    if not (changed or added or gone):
        return "the file's bytes have changed" + ("" if whole else f" after row {count_text(MAX_COMPARED_ROWS)}")
    parts = [
        f"{plural(number, 'row')} {'is' if number == 1 else 'are'} {word}"
        for number, word in ((changed, "changed"), (added, "new"), (gone, "gone"))
        if number
    ]
    return ", ".join(parts) + ("" if whole else f" (of the first {count_text(MAX_COMPARED_ROWS)})")


async def _count(rows: Iterator[SourceRow], batch: BatchStatus, batches: Batches) -> tuple[int, int, int, bool]:
    """(changed, new, gone, whether all rows were compared), by position."""
    changed = gone = compared = 0
    async for views in batches.rows(batch.batch_id):
        for view, row in zip_longest(views, _take(rows, len(views))):
            if row is None:
                gone += 1
            elif (row.row.body, row.row.custom_id) != (view.input.body, view.input.custom_id):
                changed += 1
        compared += len(views)
        if compared >= MAX_COMPARED_ROWS:
            return changed, 0, gone, batch.total <= compared and next(rows, None) is None
    added = sum(1 for _ in rows)
    return changed, added, gone, compared + added < MAX_COMPARED_ROWS


def _take(rows: Iterator[SourceRow], count: int) -> list[SourceRow]:
    return [row for _, row in zip(range(count), rows, strict=False)]


def _first_rows(source: Source) -> Iterator[SourceRow]:
    """At most MAX_COMPARED_ROWS; rows from the first that cannot be sent on are not looked at."""
    given = 0
    try:
        for chunk in source.chunks():
            for row in chunk:
                if given == MAX_COMPARED_ROWS:
                    return
                given += 1
                yield row
    except InputRefused:
        return
