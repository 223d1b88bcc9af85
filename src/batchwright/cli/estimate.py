"""`batchwright estimate`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.column_options import column_options
from batchwright.cli.exits import say
from batchwright.cli.run import make_request

if TYPE_CHECKING:
    from batchwright.assemble.estimating import Estimated
    from batchwright.cli.table import Cell
    from batchwright.runner.estimate import Estimate, LaneEstimate, Three

SHOWN_LEARNED = 3


@click.command(name="estimate")
@options.source_argument
@options.endpoint_options
@options.service_options
@options.row_options
@column_options
@click.option(
    "--sample",
    type=click.IntRange(min=2),
    metavar="N",
    help="Ask N rows, drawn by chance over the whole file, and go by their answers; they are paid for. "
    "[default: nothing is sent]",
)
@click.option(
    "--seed", type=int, metavar="S", help="With --sample: which rows; another seed draws others. [default: 0]"
)
@click.option(
    "--skip-invalid", is_flag=True, help="Rows that cannot be sent are left out. [default: refuse, as a run would]"
)
@options.pace_options
@options.transport_option
@click.option(
    "--progress",
    type=click.Choice(options.PROGRESS),
    help="How the sample's progress is shown on stderr. [default: rich on a terminal, else plain]",
)
@options.json_option("One JSON object.")
def estimate_command(source: str, **given: Any) -> int:
    """Say what a run would use and cost, as a range.

    Sends nothing by itself: input tokens by the kinds of text, or by what earlier batches showed of the model; answers
    from one token each to the rows' own bounds (max_tokens). With --sample N some rows are asked first, as a batch of
    their own, and the range holds for 95 of 100 such samples. Rows without a price or a bound are told of. The price of
    a vendor's own batches stands beside the live one where the price data has it. In a pipe: tab-separated low,
    likely and high.

    \b
    Examples:
      batchwright estimate rows.jsonl -m gpt-4o-mini --max-tokens 200
      batchwright estimate rows.jsonl -m gpt-4o-mini --sample 200
    """
    from batchwright import assemble
    from batchwright.cli.running import finish, run_to_end, typed_command
    from batchwright.core.errors import UsageError
    from batchwright.runner.progress import open_display

    if given["sample"] is None and given["seed"] is not None:
        raise UsageError("--seed says which rows a sample asks: give --sample N too")
    settings, request = make_request(source, given)
    sampling = assemble.Sampling(count=given["sample"] or 0, seed=given["seed"] or 0, command=typed_command())
    asking = assemble.estimate(settings, request, sampling, display=open_display(settings.progress), say=say)
    found = run_to_end(asking, sends=given["sample"] is not None)
    if found.outcome is not None:
        code = finish(found.outcome, as_json=False)
        if found.estimate is None:
            say("So there is no estimate yet: the same command goes on with the sample.")
            return code
    assert found.estimate is not None
    if given["as_json"]:
        _print_json(found, found.estimate)
    else:
        _print_text(found, found.estimate)
    _say_notes(found, found.estimate)
    return 0


def _print_text(found: Estimated, estimate: Estimate) -> None:
    from batchwright.cli import screen
    from batchwright.cli.table import Column

    facts = [
        ("rows", screen.count_cell(found.rows)),
        ("refused", screen.count_cell(found.refused)),
        ("tokens_in", _count_range(estimate.tokens("tokens_in"))),
        ("tokens_out", _count_range(estimate.tokens("tokens_out"))),
        ("cost", _cost_range(estimate.costs.live, complete=not estimate.costs.without_price)),
    ]
    if estimate.costs.batch is not None:
        facts.append(("cost_by_batch", _cost_range(estimate.costs.batch, complete=True)))
    screen.print_facts(facts)
    if len(estimate.lanes) < 2:
        return
    columns = [
        Column(heading="VENDOR", cut_to=8),
        Column(heading="MODEL", cut_to=12),
        Column(heading="ROWS"),
        Column(heading="TOKENS IN", short="IN", leaves=1),
        Column(heading="TOKENS OUT", short="OUT", leaves=2),
        Column(heading="COST"),
        Column(heading="BY BATCH", leaves=3),
    ]
    by_batch = any(lane.costs.batch is not None for lane in estimate.lanes)
    rows = [_lane_cells(lane)[: None if by_batch else -1] for lane in estimate.lanes]
    screen.print_rows(columns if by_batch else columns[:-1], rows)


def _lane_cells(lane: LaneEstimate) -> list[Cell]:
    from batchwright.cli import screen

    return [
        screen.text_cell(lane.lane.vendor),
        screen.model_cell(lane.lane.model),
        screen.count_cell(lane.rows),
        _count_range(lane.tokens_in),
        _count_range(lane.tokens_out),
        _cost_range(lane.costs.live, complete=not lane.costs.without_price),
        _cost_range(lane.costs.batch, complete=True),
    ]


def _count_range(three: Three) -> Cell:
    from batchwright.cli.table import Cell

    high = "?" if three.high is None else f"{three.high:,}"
    raw = "" if three.high is None else str(three.high)
    return Cell(f"{three.likely:,} ({three.low:,} to {high})", f"{three.low}\t{three.likely}\t{raw}")


def _cost_range(three: Three | None, *, complete: bool) -> Cell:
    from batchwright.cli.table import Cell
    from batchwright.core.money import usd_text
    from batchwright.runner.figures import money_text

    if three is None:
        return Cell("?", "\t\t")
    high = "?" if three.high is None else money_text(three.high)
    shown = f"{money_text(three.likely)} ({money_text(three.low)} to {high}){'' if complete else ' +'}"
    raw = "" if three.high is None else usd_text(three.high)
    return Cell(shown, f"{usd_text(three.low)}\t{usd_text(three.likely)}\t{raw}")


def _say_notes(found: Estimated, estimate: Estimate) -> None:
    from batchwright.runner.figures import money_text, plural

    unpriced, unbounded = estimate.costs.without_price, estimate.sum("without_bound")
    if unpriced:
        models = sorted({lane.lane.model or "(none named)" for lane in estimate.lanes if lane.costs.without_price})
        more = f" and {len(models) - SHOWN_LEARNED} more" if len(models) > SHOWN_LEARNED else ""
        say(
            f"{plural(unpriced, 'row')} without a price ({', '.join(models[:SHOWN_LEARNED])}{more}): the cost lacks "
            "them. A price of your own: `prices` in the settings."
        )
    if found.outcome is None:
        if unbounded:
            say(f"{plural(unbounded, 'row')} without a bound on the answer: what they cost at most is not known.")
        learned = sum(lane.learned_rows for lane in estimate.lanes)
        by = f"by {plural(learned, 'earlier answer')} of these models" if learned else "by the kinds of text"
        say(f"Nothing was sent. Tokens are guessed {by}; lengths of answers are a guess between their bounds.")
        say("To learn them from some rows: --sample 200.")
        return
    cost = money_text(found.sample_picousd)
    say(f"By {plural(found.asked, 'row')} that were asked as {found.outcome.batch_id} ({cost}, beside this estimate).")
    if estimate.confidence is not None:
        say(f"The bill of the full run lies in the range for {estimate.confidence * 100:.0f} of 100 such samples.")
    if estimate.rows_to_narrow:
        say(f"The answers differ much in length: about --sample {estimate.rows_to_narrow} makes it 95 of 100.")


def _print_json(found: Estimated, estimate: Estimate) -> None:
    from batchwright.cli import screen
    from batchwright.runner.standing import usd_json

    sample = None
    if found.outcome is not None:
        sample = {
            "batch_id": found.outcome.batch_id,
            "rows": found.drawn,
            "answered": found.asked,
            "cost_usd": usd_json(found.sample_picousd, complete=True),
            "seed": found.seed,
            "rows_to_narrow": estimate.rows_to_narrow or None,
        }
    screen.print_json(
        {
            "rows": found.rows,
            "refused": found.refused,
            "tokens_in": _counts_json(estimate.tokens("tokens_in")),
            "tokens_out": _counts_json(estimate.tokens("tokens_out")),
            "cost_usd": _costs_json(estimate.costs.live),
            "batch_cost_usd": _costs_json(estimate.costs.batch),
            "rows_without_price": estimate.costs.without_price,
            "rows_without_bound": estimate.sum("without_bound"),
            "confidence": estimate.confidence,
            "sample": sample,
            "lanes": [_lane_json(lane) for lane in estimate.lanes],
        }
    )


def _lane_json(lane: LaneEstimate) -> dict[str, Any]:
    return {
        "vendor": lane.lane.vendor,
        "model": lane.lane.model,
        "rows": lane.rows,
        "body_bytes": lane.body_bytes,
        "tokens_in": _counts_json(lane.tokens_in),
        "tokens_out": _counts_json(lane.tokens_out),
        "cost_usd": _costs_json(lane.costs.live),
        "batch_cost_usd": _costs_json(lane.costs.batch),
        "rows_without_price": lane.costs.without_price,
        "rows_without_bound": lane.without_bound,
        "asked": lane.asked,
        "learned_from": lane.learned_rows,
    }


def _counts_json(three: Three) -> dict[str, int | None]:
    return {"low": three.low, "likely": three.likely, "high": three.high}


def _costs_json(three: Three | None) -> dict[str, Any] | None:
    from batchwright.runner.standing import usd_json

    if three is None:
        return None
    return {
        "low": usd_json(three.low, complete=True),
        "likely": usd_json(three.likely, complete=True),
        "high": None if three.high is None else usd_json(three.high, complete=True),
    }
