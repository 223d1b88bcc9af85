"""`batchwright reprice`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say

if TYPE_CHECKING:
    from batchwright.ports.batches import KnownCost, RepriceResult

MODELS_SHOWN = 3


@click.command(name="reprice")
@click.argument("batch", metavar="[ID]", default="@last")
@click.option(
    "--all", "every", is_flag=True, help="Also answers that a price table priced before. [default: those without one]"
)
@options.json_option("One JSON object.")
def reprice_command(batch: str, every: bool, as_json: bool) -> None:
    """Apply today's prices to stored answers; nothing is sent.

    For a batch that has ended. Prices are those a run would use now: `prices` in the settings, then the shipped ones.
    A cost that the vendor stated itself stays, and so does one whose model has no price any more. ID is @last unless
    given; export writes the answers with their new costs.

    \b
    Examples:
      batchwright reprice @last
      batchwright reprice 3f9a --all --json
    """
    from batchwright.cli import screen
    from batchwright.cli.running import with_batches
    from batchwright.ports.batches import Batches

    async def ask(batches: Batches) -> RepriceResult:
        return await batches.reprice(await batches.resolve(batch), every=every)

    result = with_batches(options.load_settings({}), ask)
    if as_json:
        screen.print_json(result_json(result))
    else:
        for line in result_lines(result):
            say(line)


def result_lines(result: RepriceResult) -> list[str]:
    """What was done, and what could not be done if there is any."""
    from batchwright.runner.figures import plural

    done = [f"{plural(result.priced, 'row')} got a price"] if result.priced or not result.changed else []
    done += [f"{plural(result.changed, 'row')} got today's price"] if result.changed else []
    cost = f"cost {_cost_text(result.before)} before, {_cost_text(result.after)} now"
    lines = [f"{result.batch_id}: {', '.join(done)}; {cost}."]
    left = _left(result)
    if left:
        lines.append(f"Cost still not known: {'; '.join(left)}.")
    if result.mixed:
        rows = f"{plural(result.mixed, 'row')} sent more than once {'keeps its' if result.mixed == 1 else 'keep their'}"
        lines.append(f"{rows} earlier price: what each attempt cost is not kept.")
    return lines


def _left(result: RepriceResult) -> list[str]:
    from batchwright.cli import screen
    from batchwright.runner.figures import plural

    left = []
    models = sorted(result.without_price.items(), key=lambda item: (-item[1], item[0]))
    for model, rows in models[:MODELS_SHOWN]:
        left.append(f"{plural(rows, 'row')} of {screen.safe_text(model) or 'no named model'} (no price)")
    if more := models[MODELS_SHOWN:]:
        left.append(f"{plural(sum(rows for _, rows in more), 'row')} of {plural(len(more), 'more model')} (no price)")
    if result.beyond_reason:
        left.append(
            f"{plural(result.beyond_reason, 'row')} whose price gives over $1,000 for one answer (is it right?)"
        )
    if result.usage_not_kept:
        left.append(f"{plural(result.usage_not_kept, 'row')} with an earlier answer whose usage is not kept")
    if result.after.no_usage:
        left.append(f"{plural(result.after.no_usage, 'answer')} without usage")
    return left


def _cost_text(cost: KnownCost) -> str:
    from batchwright.cli import screen

    if not cost.picousd and not cost.complete:
        return "not known"
    return screen.cost_cell(cost.picousd, complete=cost.complete).shown


def result_json(result: RepriceResult) -> dict[str, Any]:
    return {
        "batch_id": result.batch_id,
        "rows_priced": result.priced,
        "rows_changed": result.changed,
        "rows_of_mixed_cost": result.mixed,
        "rows_without_price": sum(result.without_price.values()),
        "models_without_price": result.without_price,
        "rows_beyond_reason": result.beyond_reason,
        "rows_usage_not_kept": result.usage_not_kept,
        "cost_before": _cost_json(result.before),
        "cost": _cost_json(result.after),
    }


def _cost_json(cost: KnownCost) -> dict[str, Any]:
    from batchwright.runner.standing import usd_json

    return {
        "known_usd": usd_json(cost.picousd, complete=cost.complete),
        "complete": cost.complete,
        "answers_without_price": cost.unpriced,
        "answers_without_usage": cost.no_usage,
    }
