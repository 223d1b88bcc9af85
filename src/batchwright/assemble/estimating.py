"""`batchwright estimate`: the rows are read, perhaps some of them asked, and what a run would cost is told."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from batchwright.assemble.batches import open_batches, run, source_rows
from batchwright.assemble.prices import batch_prices, lane_prices
from batchwright.core.errors import Finding, InputRefused, UsageError
from batchwright.core.row_options import PickedRows
from batchwright.core.strata import Strata, Stratum
from batchwright.runner.estimate import Estimate, Estimating, answers_of, learn
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.request import Delivery, RunRequest
from batchwright.runner.seams import Display
from batchwright.settings import Settings

SHOWN_FINDINGS = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How a sample is drawn. `count` 0: none is."""

    count: int = 0
    seed: int = 0
    command: tuple[str, ...] = ()
    """As it was typed, for what the sample's batch says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimated:
    rows: int
    refused: int
    estimate: Estimate | None
    """None: the sample's batch has not ended."""
    outcome: RunOutcome | None = None
    """Of the sample's batch; None: nothing was sent."""
    drawn: int = 0
    asked: int = 0
    """Of these, the rows that ended."""
    sample_picousd: int = 0
    seed: int = 0


async def estimate(
    settings: Settings, request: RunRequest, sampling: Sampling, *, display: Display, say: Callable[[str], None]
) -> Estimated:
    """Raises what a run would before it sends: InputRefused, UsageError."""
    if sampling.count and str(request.source) == "-":
        raise UsageError("--sample reads the input twice, which standard input cannot be: give a file")
    learned = {}
    if not sampling.count:
        async with open_batches(settings) as batches:
            learned = await learn(batches)
    strata = Strata(count=sampling.count, seed=sampling.seed) if sampling.count else None
    estimating = Estimating(lane_prices(settings), batch_prices(settings), learned, strata)
    _read(request, settings, estimating, say)
    if strata is None:
        return Estimated(rows=estimating.rows, refused=estimating.refused, estimate=estimating.guessed())
    return await _ask(settings, request, sampling, estimating, strata.draw(), display)


def _read(request: RunRequest, settings: Settings, estimating: Estimating, say: Callable[[str], None]) -> None:
    findings: list[Finding] = []
    for rows in source_rows(request, lane_prices(settings), say=say):
        estimating.add(rows)
        found = [source.finding for source in rows if source.finding is not None]
        findings += found[: SHOWN_FINDINGS - len(findings)]
    if estimating.refused and (not request.skip_invalid or estimating.refused == estimating.rows):
        message = f"{estimating.refused:,} of {estimating.rows:,} rows cannot be sent, so a run would send none"
        raise InputRefused(message, tuple(findings), estimating.refused)


async def _ask(
    settings: Settings,
    request: RunRequest,
    sampling: Sampling,
    estimating: Estimating,
    strata: Sequence[Stratum],
    display: Display,
) -> Estimated:
    picked = frozenset(row.position for stratum in strata for row in stratum.drawn)
    name = f"{len(picked)} rows, seed {sampling.seed}"
    asking = replace(
        request,
        rows=replace(request.rows, picked=PickedRows(indexes=picked, name=name)),
        delivery=Delivery(nothing=True, command=sampling.command),
        skip_invalid=True,
        metadata={**request.metadata, "sample": name},
    )
    outcome = await run(settings, asking, display=display)
    found = Estimated(
        rows=estimating.rows,
        refused=estimating.refused,
        estimate=None,
        outcome=outcome,
        drawn=len(picked),
        seed=sampling.seed,
    )
    if outcome.report is None or not outcome.report.status.terminal:
        return found
    async with open_batches(settings) as batches:
        answers = await answers_of(batches, outcome.batch_id, picked)
    return replace(
        found,
        estimate=estimating.sampled(strata, answers),
        asked=len(answers),
        sample_picousd=outcome.report.status.tally.cost_picousd,
    )
