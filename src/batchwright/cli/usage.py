"""`batchwright usage`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import amounts, options
from batchwright.cli.exits import say
from batchwright.cli.table import Column

if TYPE_CHECKING:
    from batchwright.cli.table import Cell
    from batchwright.core.records import UsageKey, UsageSum

GROUPS = {
    "day": "day",
    "vendor": "vendor",
    "model": "model",
    "account": "tenant",
    "key": "key_id",
    "variable": "account",
    "endpoint": "endpoint",
}
"""By the word for it here: the field of usage that has it."""
NARROWEST_KEYS = {"vendor": 8, "model": 12, "account": 8, "variable": 8, "endpoint": 8}
SUMS = (
    Column(heading="ANSWERS", leaves=1),
    Column(heading="TOKENS IN", short="IN", leaves=2),
    Column(heading="CACHED", leaves=4),
    Column(heading="TOKENS OUT", short="OUT", leaves=3),
    Column(heading="COST"),
    Column(heading="SIMULATED", pipe_only=True),
)


@click.command(name="usage")
@click.option(
    "--by",
    "groups",
    metavar="NAMES",
    default="day,vendor,model",
    help="What to sum by, with commas: day, vendor, model, account, key (both of the service), variable (of the "
    "vendor's key), endpoint (of single calls). [default: day,vendor,model]",
)
@click.option(
    "--since",
    "since_day",
    callback=amounts.read_day,
    metavar="DATE",
    help="Only answers of this UTC day and later, as 2026-03-01. [default: all]",
)
@options.there_options
@options.json_option("One JSON object a line.")
def usage_command(groups: str, since_day: str, as_json: bool, **given: Any) -> None:
    """Sum up tokens and cost by day, vendor and model.

    Over all batches and single calls of this machine, of every account; with --service of the key's account there. A
    cost with + (JSON: complete false) lacks answers that have no price or no usage. What the simulator made up has
    lines of its own. In a pipe: tab-separated lines without headings, the last column says "simulated" of those and
    "incomplete" of costs with +.

    \b
    Examples:
      batchwright usage --since 2026-03-01
      batchwright usage --by account,key --json
    """
    from batchwright.cli import screen
    from batchwright.cli.running import with_batches

    names = _group_names(groups)
    settings = options.load_settings(given)
    found = with_batches(settings, lambda batches: batches.usage(since_day=since_day))
    sums = sum_by(found, names)
    if not sums:
        since = f" since {since_day}" if since_day else ""
        of = f" of the account {settings.account}" if settings.account else ""
        say(f"There is no usage{of}{since}.")
    if as_json:
        for values, simulated, total in sums:
            screen.print_json(_json(names, values, total) | {"simulated": simulated})
        return
    keys = [Column(heading=name.upper(), cut_to=NARROWEST_KEYS.get(name, 0)) for name in names]
    screen.print_rows(
        (*keys, *SUMS),
        [[*_keys(names, values), *_cells(total, simulated=simulated)] for values, simulated, total in sums],
    )


def _group_names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in GROUPS:
            raise click.BadParameter(f"{name!r} is none of {', '.join(GROUPS)}", param_hint="--by")
    return names


def sum_by(
    found: list[tuple[UsageKey, UsageSum]], names: tuple[str, ...]
) -> list[tuple[tuple[str, ...], bool, UsageSum]]:
    """Sums of usage under each combination of these fields, in order of their values: real answers apart from those of
    the simulator (True)."""
    from batchwright.core.records import SIMULATED, UsageSum

    sums: dict[tuple[tuple[str, ...], bool], UsageSum] = {}
    for key, used in found:
        values = tuple(getattr(key, GROUPS[name]) for name in names)
        sums.setdefault((values, key.vendor == SIMULATED), UsageSum()).add(used)
    return [(values, simulated, total) for (values, simulated), total in sorted(sums.items(), key=lambda one: one[0])]


def _keys(names: tuple[str, ...], values: tuple[str, ...]) -> list[Cell]:
    from batchwright.cli import screen

    cells = [
        screen.model_cell(value) if name == "model" else screen.text_cell(value)
        for name, value in zip(names, values, strict=True)
    ]
    # The year goes without saying where room is short.
    return [
        cell._replace(short=cell.shown[5:]) if name == "day" else cell for name, cell in zip(names, cells, strict=True)
    ]


def _cells(total: UsageSum, *, simulated: bool) -> list[Any]:
    from batchwright.cli import screen

    complete = not total.unpriced and not total.no_usage
    cost = screen.cost_cell(total.cost_picousd, complete=complete)
    return [
        screen.count_cell(total.answers),
        screen.count_cell(total.prompt_tokens),
        screen.count_cell(total.cached_tokens),
        screen.count_cell(total.completion_tokens),
        cost._replace(shown=f"{cost.shown} simulated") if simulated else cost,
        screen.text_cell("simulated" if simulated else "" if complete else "incomplete"),
    ]


def _json(names: tuple[str, ...], values: tuple[str, ...], total: UsageSum) -> dict[str, Any]:
    from batchwright.runner.standing import usd_json

    complete = not total.unpriced and not total.no_usage
    return {
        **dict(zip(names, values, strict=True)),
        "answers": total.answers,
        "tokens": {
            "prompt": total.prompt_tokens,
            "completion": total.completion_tokens,
            "cached": total.cached_tokens,
        },
        "cost": {
            "known_usd": usd_json(total.cost_picousd, complete=complete),
            "complete": complete,
            "answers_without_price": total.unpriced,
            "answers_without_usage": total.no_usage,
        },
    }
