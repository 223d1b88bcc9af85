"""`batchwright reprice` as a process: a later price table over stored answers, killed half-way, and nothing is sent."""

from __future__ import annotations

import signal
from collections import Counter
from decimal import Decimal
from pathlib import Path

import pytest

from batchwright.core.money import PICO
from batchwright.store.open import open_store
from support.command_line import CommandLine, Ended, chat_row
from support.scripted_vendor import ScriptedVendor

TABLE = """
[[price]]
pattern = "m-small"
input = "1"
output = "2"
[[price]]
pattern = "m-free"
zero_rated = true
"""
MODELS = ("m-small", "m-free", "m-new")
ROWS = 400
"""In segments of 100 (`support.watched_command`), of which each holds every model."""
SMALL = 14 * PICO // 10**6
"""Of one answer, 10 tokens in and 2 out, by TABLE."""
KILLS = ("before reprice:1", "after repricing sums:1", "after reprice:1", "after repricing sums:2", "before reprice:2")
"""Each is reached by a pass of its own: a killed one has priced less than there was, so that the next has some left."""


class Priced:
    """A command line whose settings name a table that the test writes."""

    def __init__(self, folder: Path, vendor: ScriptedVendor) -> None:
        self.command = CommandLine(folder, BATCHWRIGHT_PRICES=str(folder / "prices.toml"))
        self.vendor = vendor
        self.table("")

    def table(self, text: str) -> None:
        (self.command.folder / "prices.toml").write_text(text)

    def run(self, rows: list[object], *options: str, point: str | None = None) -> Ended:
        endpoint = ("--base-url", self.vendor.base_url, "--api-key-env", "")
        self.command.write("rows.jsonl", rows)
        line = ("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "--json", "--progress", "none", *options)
        return self.watched(point, *line)

    def watched(self, point: str | None, *line: str) -> Ended:
        program = ("-m", "support.watched_command", str(self.command.folder / "account"), point or "-")
        return self.command.start(*line, program=program if point is not None else None).end()

    def export(self) -> list[object]:
        ended = self.command("export", "@last", "-o", "out.jsonl", "--progress", "none")
        assert ended.code == 0, ended.err
        assert "adds up" in ended.err
        return [line["cost_usd"] for line in self.command.lines()]

    def kept(self) -> tuple[int, int, Counter[str]]:
        """(cost by the batch, cost by the usage, rows by price id) as stored; the laws hold."""
        store = open_store(self.command.state / "batchwright.sqlite")
        try:
            (batch,) = store.find_batches()
            assert store.check(batch.batch_id) == []
            ids = Counter(
                record.price_id for view in store.read_segments(batch.batch_id) for record in view.records.values()
            )
            used = store.read_usage()
            assert sum(line.sum.unpriced for line in used) == batch.tally.unpriced
            assert sum(line.sum.answers for line in used) == batch.tally.attempts
            return batch.tally.cost_picousd, sum(line.sum.cost_picousd for line in used), ids
        finally:
            store.close()


@pytest.fixture
def priced(tmp_path: Path, vendor: ScriptedVendor) -> Priced:
    return Priced(tmp_path, vendor)


def test_killed_half_way_and_asked_again(priced: Priced) -> None:
    models = [MODELS[row % 3] for row in range(ROWS)]
    ended = priced.run([chat_row(f"word{row}", model=model) for row, model in enumerate(models)], point="-")
    assert ended.code == 0, ended.err
    assert priced.export() == [None] * ROWS
    sent = len(priced.vendor.hits)
    priced.table(TABLE)
    small, free = models.count("m-small"), models.count("m-free")
    known = []
    for point in KILLS:
        assert priced.watched(point, "reprice").code == -signal.SIGKILL
        cost, used, ids = priced.kept()
        assert cost == used == SMALL * ids["user */m-small"]
        known.append(ROWS - ids[""])
    assert known == sorted(known)
    assert known[0] == 0 < known[-1] < small + free, "half-way"

    last = priced.watched("-", "reprice", "@last", "--json").report
    assert last["rows_priced"] == small + free - known[-1]
    assert last["models_without_price"] == {"m-new": models.count("m-new")}
    total = SMALL * small
    assert priced.kept() == (total, total, {"user */m-small": small, "user */m-free": free, "": ROWS - small - free})
    assert last["cost"]["known_usd"] == float(Decimal(total) / PICO)
    costs = {"m-small": 14e-6, "m-free": 0, "m-new": None}
    assert priced.export() == [costs[model] for model in models]

    again = priced.command("reprice", "--json").report
    assert (again["rows_priced"], again["cost"], again["cost_before"]) == (0, last["cost"], last["cost"])
    assert len(priced.vendor.hits) == sent, "nothing was sent"


def test_a26_a_later_table_is_applied_without_a_new_run(priced: Priced) -> None:
    """In words and by model; what has no usage stays unknown, and `--all` prices again what a table priced."""
    rows = [
        chat_row("a", model="m-small"),
        chat_row("b", model="m-free"),
        chat_row("c", model="m-new"),
        chat_row("[[usage=none]] d", model="m-small"),
        chat_row("[[status=429 times=2]] e", model="m-small"),
    ]
    priced.table(TABLE.replace("m-small", "m-new"))
    assert priced.run(list(rows)).code == 0
    assert priced.export() == [None, 0, 14e-6, None, None]
    priced.table(TABLE + '[[price]]\npattern = "m-new"\ninput = "10"\noutput = "20"\n')
    ended = priced.command("reprice")
    assert (ended.code, ended.out) == (0, "")
    assert "2 rows got a price; cost $0.000014+ before, $0.000042+ now." in ended.err
    assert "Cost still not known: 1 answer without usage." in ended.err
    assert priced.export() == [14e-6, 0, 14e-6, None, 14e-6], "a known price is left alone"
    ended = priced.command("reprice", "--all")
    assert "1 row got today's price" in ended.err
    assert priced.export() == [14e-6, 0, 140e-6, None, 14e-6]
    figures = dict(line.split("\t") for line in priced.command("status").out.splitlines())
    assert figures["cost_usd"] == "0.000168"
    assert "answers_without_price" not in figures
    assert len(priced.vendor.hits) == 7


def test_an_answer_of_an_earlier_round_stays_without_a_price(priced: Priced) -> None:
    """It was paid for, but the answer that took its place is the only one whose usage is kept."""
    assert priced.run([chat_row("[[finish=length times=1]] a", model="m-small")]).code == 0
    options = ("--flag", "truncated", "-o", "out.jsonl", "--progress", "none")
    assert priced.command("retry", "@last", *options).code == 0
    assert len(priced.vendor.hits) == 2
    priced.table(TABLE)
    ended = priced.command("reprice")
    assert "1 row got a price; cost not known before, $0.000014+ now." in ended.err
    assert "1 row with an earlier answer whose usage is not kept" in ended.err
    assert priced.kept()[:2] == (SMALL, SMALL)
    report = priced.command("reprice", "--json").report
    assert (report["rows_priced"], report["rows_usage_not_kept"]) == (0, 1)
    assert report["cost"]["answers_without_price"] == 1


def test_a_cap_counts_an_answer_once(priced: Priced) -> None:
    """As possible while its cost is not known, as known afterwards."""
    rows: list[object] = [chat_row(f"word{row}", model="m-small", max_tokens=5) for row in range(3)]
    assert priced.run(rows, "--max-cost", "1", "--allow-unpriced").code == 0
    cost = priced.command("status", "--json").report["cost"]
    assert (cost["known_usd"], cost["cap_taken_usd"]) == (None, 3e-12)
    priced.table(TABLE)
    assert priced.command("reprice").code == 0
    cost = priced.command("status", "--json").report["cost"]
    assert (cost["known_usd"], cost["cap_taken_usd"]) == (42e-6, 42e-6)


def test_not_before_the_batch_has_ended(priced: Priced) -> None:
    priced.vendor.set(hold=True)
    priced.command.write("rows.jsonl", [chat_row("a", model="m-small")])
    endpoint = ("--base-url", priced.vendor.base_url, "--api-key-env", "")
    started = priced.command.start("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "--progress", "none")
    started.until(priced.vendor, lambda vendor: vendor.in_flight == 1)
    ended = priced.command("reprice")
    assert (ended.code, ended.out) == (2, "")
    assert "is queued: answers can be priced again once all rows have ended" in ended.err
    priced.vendor.set(hold=False)
    priced.vendor.release()
    assert started.end().code == 0


def test_a_table_that_cannot_be_read_changes_nothing(priced: Priced) -> None:
    assert priced.run([chat_row("a", model="m-small")]).code == 0
    priced.table('[[price]]\npattern = "m-small"\ninput = "1"\n')
    ended = priced.command("reprice")
    assert ended.code == 2
    assert "output is missing" in ended.err
    assert priced.kept()[0] == 0
