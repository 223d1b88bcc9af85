"""`batchwright stats`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from batchwright.cli import options
from batchwright.cli.exits import say
from batchwright.cli.table import Column

if TYPE_CHECKING:
    from batchwright.core.spread import Spread
    from batchwright.ports.batches import Batches
    from batchwright.runner.batch_stats import BatchStats

SPREADS = ("output_tokens", "input_tokens", "answer_chars", "latency_ms", "attempts")
SHARES = (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))
SHOWN_ANSWERS = 20


@click.command(name="stats")
@click.argument("batch", metavar="[ID]", default="@last")
@click.option(
    "--answers",
    type=click.IntRange(0, 10_000),
    default=SHOWN_ANSWERS,
    help="So many of the most common answers. [default: 20]",
)
@options.there_options
@options.json_option("One JSON object.")
def stats_command(batch: str, answers: int, as_json: bool, **given: Any) -> None:
    """Show what a batch's rows look like together.

    How they ended, lengths and latencies (least, half, 90 and 99 of 100 do not pass, most), finish reasons, cost by
    model, and the most common answers where these are short and come again, as those of a classification do. One pass
    over the rows; also while the batch runs. ID is @last unless given. In a pipe: tab-separated lines, their first
    field the section.

    \b
    Examples:
      batchwright stats @last
      batchwright stats 3f9a --answers 100 --json
    """
    from batchwright.cli.running import with_batches
    from batchwright.runner.batch_stats import BatchStats

    async def gather(batches: Batches) -> BatchStats:
        stats = BatchStats()
        async for views in batches.rows(await batches.resolve(batch), texts_of=frozenset()):
            stats.add(views)
        return stats

    stats = with_batches(options.load_settings(given), gather)
    if as_json:
        _print_json(stats, answers)
    else:
        _print_text(stats, answers)


def _print_text(stats: BatchStats, answers: int) -> None:
    from batchwright.cli import screen

    _section("outcome", ("OUTCOME", "ROWS"), [(name, rows) for name, rows in _outcomes(stats)])
    _section("finish_reason", ("FINISH REASON", "ROWS"), stats.finish_reasons.most_common(SHOWN_ANSWERS))
    spreads = [(name, getattr(stats, name)) for name in SPREADS]
    known = [(name, spread) for name, spread in spreads if spread.count]
    columns = [Column(heading=name) for name in ("SPREAD OF", "LEAST", "P50", "P90", "P99", "MOST", "MEAN")]
    rows = [[screen.text_cell(name), *_spread_cells(spread)] for name, spread in known]
    _print("spread", columns, rows)
    columns = [
        Column(heading="VENDOR", cut_to=8),
        Column(heading="MODEL", cut_to=12),
        Column(heading="ROWS"),
        Column(heading="OK"),
        Column(heading="TOKENS IN", short="IN", leaves=2),
        Column(heading="TOKENS OUT", short="OUT", leaves=1),
        Column(heading="COST"),
    ]
    models = sorted(stats.models.items(), key=lambda pair: -pair[1].rows)
    rows = [
        [
            screen.text_cell(vendor),
            screen.model_cell(model),
            *map(screen.count_cell, (sums.rows, sums.ok, sums.prompt_tokens, sums.completion_tokens)),
            screen.cost_cell(sums.cost_picousd, complete=not sums.incomplete),
        ]
        for (vendor, model), sums in models
    ]
    _print("model", columns, rows)
    if stats.are_labels and answers:
        _section("answer", ("ANSWER", "ROWS"), stats.answers.most_common(answers))
        left = len(stats.answers.counts) - answers
        more = [f"{left:,} more answers"] if left > 0 else []
        more += [f"{stats.long_answers:,} longer ones"] if stats.long_answers else []
        if more:
            say(f"And {' and '.join(more)}; --json and --answers N show more.")


def _section(name: str, headings: tuple[str, str], pairs: list[tuple[str, int]]) -> None:
    from batchwright.cli import screen

    columns = [Column(heading=headings[0], cut_to=20), Column(heading=headings[1])]
    _print(name, columns, [[screen.text_cell(text), screen.count_cell(rows)] for text, rows in pairs])


def _print(name: str, columns: list[Column], rows: list[list[Any]]) -> None:
    """On a terminal a table with an empty line behind it; in a pipe each line begins with the section's name."""
    from batchwright.cli import screen

    if screen.is_table():
        screen.print_rows(columns, rows)
        if rows:
            click.echo()
        return
    screen.print_rows([Column(heading="SECTION"), *columns], [[screen.text_cell(name), *row] for row in rows])


def _spread_cells(spread: Spread) -> list[Any]:
    from batchwright.cli import screen

    quantiles = [spread.quantile(share) for _, share in SHARES]
    return [screen.count_cell(number) for number in (spread.least, *quantiles, spread.most, round(spread.mean))]


def _outcomes(stats: BatchStats) -> list[tuple[str, int]]:
    from batchwright.core import row_map

    named = [
        ("ok" if row_map.name_of(byte) == "plain" else row_map.name_of(byte), n) for byte, n in stats.by_byte.items()
    ]
    return sorted(named, key=lambda pair: -pair[1])


def _print_json(stats: BatchStats, answers: int) -> None:
    from batchwright.cli import screen
    from batchwright.runner.standing import usd_json

    screen.print_json(
        {
            "rows": stats.rows,
            "outcomes": dict(_outcomes(stats)),
            "finish_reasons": dict(stats.finish_reasons.most_common(SHOWN_ANSWERS)),
            **{name: _spread_json(getattr(stats, name)) for name in SPREADS},
            "models": [
                {
                    "vendor": vendor,
                    "model": model,
                    "rows": sums.rows,
                    "ok": sums.ok,
                    "prompt_tokens": sums.prompt_tokens,
                    "completion_tokens": sums.completion_tokens,
                    "cost_usd": usd_json(sums.cost_picousd, complete=not sums.incomplete),
                    "rows_without_cost": sums.incomplete,
                }
                for (vendor, model), sums in stats.models.items()
            ],
            "answers": [{"answer": text, "rows": rows} for text, rows in stats.answers.most_common(answers)],
            "answers_distinct": len(stats.answers.counts),
            "answers_not_told_apart": stats.answers.others,
            "long_answers": stats.long_answers,
        }
    )


def _spread_json(spread: Spread) -> dict[str, Any] | None:
    if not spread.count:
        return None
    quantiles = {name: spread.quantile(share) for name, share in SHARES}
    return {"least": spread.least, **quantiles, "most": spread.most, "mean": round(spread.mean, 3)}
