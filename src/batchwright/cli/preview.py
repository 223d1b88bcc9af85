"""`run --dry-run`: what a run would send: rows, models, lanes, bytes, the most it can cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from batchwright.core.errors import Finding
    from batchwright.core.rows import SourceRow
    from batchwright.engine.bounds import LanePrices
    from batchwright.runner.request import RunRequest
    from batchwright.settings import Settings

SHOWN_FINDINGS = 100


@dataclass(slots=True)
class LanePreview:
    rows: int = 0
    body_bytes: int = 0
    worst_picousd: int = 0
    """Of the rows that have a bound and a price."""
    unbounded: int = 0
    """Rows of which nothing says what they can cost at most, as under a cap; of these: """
    without_price: int = 0
    without_bound: int = 0
    """On their output. A row may lack both."""


@dataclass(slots=True)
class Preview:
    """Sums over the rows that passed through `add`."""

    prices: LanePrices
    rows: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)
    lanes: dict[str, LanePreview] = field(default_factory=dict)
    unbounded_findings: list[Finding] = field(default_factory=list)

    def add(self, rows: Sequence[SourceRow]) -> None:
        for source in rows:
            index, self.rows = self.rows, self.rows + 1
            if source.finding is not None:
                self.refused += 1
                if len(self.findings) < SHOWN_FINDINGS:
                    self.findings.append(source.finding)
                continue
            lane = self.lanes.get(source.lane)
            if lane is None:
                lane = self.lanes[source.lane] = LanePreview()
            lane.rows += 1
            lane.body_bytes += len(source.row.body)
            lane.worst_picousd += source.row.worst_picousd
            if source.unbounded:
                self._add_unbounded(lane, source, index)

    def _add_unbounded(self, lane: LanePreview, source: SourceRow, index: int) -> None:
        from batchwright.engine.bounds import unbounded_finding

        unpriced = self.prices.first_unpriced(source)
        lane.unbounded += 1
        lane.without_price += bool(unpriced)
        lane.without_bound += not source.row.output_tokens
        if len(self.unbounded_findings) < SHOWN_FINDINGS:
            self.unbounded_findings.append(unbounded_finding(source, index, unpriced=unpriced))

    def total(self, name: str) -> int:
        """The sum of this field over all lanes."""
        return sum(getattr(lane, name) for lane in self.lanes.values())

    @property
    def worst_picousd(self) -> int:
        return self.total("worst_picousd")

    @property
    def unbounded(self) -> int:
        return self.total("unbounded")


def show_preview(settings: Settings, request: RunRequest, *, as_json: bool) -> int:
    """Reads all rows and prints; returns 0. Raises what a run would before it sends: InputRefused, UsageError."""
    from batchwright import assemble
    from batchwright.cli.exits import say
    from batchwright.core.errors import InputRefused
    from batchwright.engine.bounds import unbounded_refusal
    from batchwright.runner.request import Dedup, Reuse
    from batchwright.runner.unnamed import no_key_texts, no_model_texts
    from batchwright.runner.unused import short_routes_texts, unused_texts

    preview = Preview(assemble.lane_prices(settings))
    for rows in assemble.source_rows(request, preview.prices, say=say):
        preview.add(rows)
    if as_json:
        _print_json(preview, settings)
    else:
        _print_text(preview, settings)
    counts = {lane: found.rows for lane, found in preview.lanes.items()}
    unused = unused_texts(counts, request.rows.destinations, request.asked_for)
    unused += short_routes_texts(counts, request.rows.directions)
    if request.reuse != Reuse() or request.dedup is not Dedup.OFF:
        say("Rows that --reuse, --cache or --dedup would not send are not looked for here: a run sends these at most.")
    for text in (*no_model_texts(counts, request.rows.destinations), *no_key_texts(counts, settings.key), *unused):
        say(text)
    if preview.refused and not request.skip_invalid:
        message = f"{preview.refused:,} of {preview.rows:,} rows cannot be sent, so a run would send none"
        raise InputRefused(message, tuple(preview.findings), preview.refused)
    if preview.unbounded and request.max_cost_picousd >= 0 and not request.allow_unpriced:
        raise unbounded_refusal(preview.unbounded_findings, preview.unbounded)
    return 0


def _print_text(preview: Preview, settings: Settings) -> None:
    from batchwright.cli import screen
    from batchwright.cli.table import Column
    from batchwright.core.batch_spec import LaneKey

    body_bytes = preview.total("body_bytes")
    screen.print_facts(
        [
            ("rows", screen.count_cell(preview.rows)),
            ("refused", screen.count_cell(preview.refused)),
            ("body_bytes", screen.count_cell(body_bytes)),
            ("cost_at_most_usd", screen.cost_cell(preview.worst_picousd, complete=not preview.unbounded)),
            ("rows_without_price", screen.count_cell(preview.total("without_price"))),
            ("rows_without_bound", screen.count_cell(preview.total("without_bound"))),
        ]
    )
    table = []
    for text, lane in sorted(preview.lanes.items(), key=lambda pair: -pair[1].rows):
        key = LaneKey.parse(text)
        name, missing = key.account, bool(key.account) and not settings.key(key.account)
        table.append(
            (
                screen.text_cell(key.vendor),
                screen.model_cell(key.model),
                screen.text_cell(f"{name} (not set)" if missing else name or "no key"),
                screen.count_cell(lane.rows),
                screen.count_cell(lane.body_bytes),
                screen.cost_cell(lane.worst_picousd, complete=not lane.unbounded),
            )
        )
    columns = (
        Column(heading="VENDOR", cut_to=8),
        Column(heading="MODEL", cut_to=12),
        Column(heading="KEY", cut_to=8, leaves=1),
        Column(heading="ROWS"),
        Column(heading="BYTES", leaves=2),
        Column(heading="COST AT MOST", short="COST <="),
    )
    screen.print_rows(columns, table)


def _print_json(preview: Preview, settings: Settings) -> None:
    from batchwright.cli import screen
    from batchwright.core.batch_spec import LaneKey
    from batchwright.runner.standing import usd_json

    lanes: list[dict[str, Any]] = []
    for text, lane in preview.lanes.items():
        key = LaneKey.parse(text)
        lanes.append(
            {
                "vendor": key.vendor,
                "model": key.model,
                "key_env": key.account or None,
                "key_set": bool(settings.key(key.account)) if key.account else None,
                "rows": lane.rows,
                "body_bytes": lane.body_bytes,
                "cost_at_most_usd": usd_json(lane.worst_picousd, complete=not lane.unbounded),
                "rows_without_price": lane.without_price,
                "rows_without_bound": lane.without_bound,
            }
        )
    screen.print_json(
        {
            "valid": not preview.refused,
            "rows": preview.rows,
            "refused": preview.refused,
            "body_bytes": preview.total("body_bytes"),
            "cost_at_most_usd": usd_json(preview.worst_picousd, complete=not preview.unbounded),
            "rows_without_price": preview.total("without_price"),
            "rows_without_bound": preview.total("without_bound"),
            "lanes": lanes,
            "findings": [finding_json(finding) for finding in preview.findings],
            "findings_total": preview.refused,
        }
    )


def finding_json(finding: Finding) -> dict[str, Any]:
    """What is not there is null."""
    return {
        "line": finding.line or None,
        "code": finding.code,
        "message": finding.message,
        "param": finding.param or None,
    }
