"""A rows file in one place and a database that another place works on too, as processes.

A place is a state folder, with the locks in it; processes of another place stand for another machine: what they know of
each other goes through the database alone.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

from batchwright.core.batch_state import derive
from batchwright.store.open import open_store
from support.command_line import CommandLine, Started, content
from support.scripted_vendor import ScriptedVendor

ROWS = 600
IN_FLIGHT = 16
LATENCY_S = 0.03
LEASE = {"BATCHWRIGHT_LEASE": "1500ms", "BATCHWRIGHT_HEARTBEAT": "200ms"}
"""Short, for what a worker of another place held is free only when its lease has run out."""


class Shared:
    """A rows file in one place, and a database that another place works on too."""

    def __init__(self, folder: Path, url: str, vendor: ScriptedVendor, *, rows: int = ROWS) -> None:
        self.url, self.vendor, self.rows = url, vendor, rows
        self.here = CommandLine(folder / "here", BATCHWRIGHT_DATABASE=self.url, **LEASE)
        self.elsewhere = CommandLine(folder / "elsewhere", BATCHWRIGHT_DATABASE=self.url, **LEASE)
        self.exposed = 0
        self.here.write("rows.jsonl", [{"prompt": f"Say word{row}"} for row in range(self.rows)])

    def run(self, *program: str) -> Started:
        endpoint = ("--base-url", self.vendor.base_url, "--api-key-env", "", "-m", "m")
        line = ("run", "rows.jsonl", "-o", "out.jsonl", *endpoint, "-c", str(IN_FLIGHT), "--max-attempts", "20")
        return self.here.start(*line, "--json", "--progress", "none", program=program or None)

    def work(self, command: CommandLine) -> Started:
        return command.start("work", "--progress", "none")

    def unfinished(self) -> bool:
        store = open_store(self.url)
        try:
            batches = store.find_batches(limit=1)
            return not batches or not derive(batches[0].facts, batches[0].tally).terminal
        finally:
            store.close()

    def reaches(self, hits: int) -> bool:
        """Waits for so many requests; false: the batch ended before."""
        while self.unfinished():
            with suppress(TimeoutError):
                self.vendor.wait_for(lambda vendor: len(vendor.hits) >= hits, 0.5)
                return True
        return False

    def goes_on_to_the_end(self) -> dict[str, Any]:
        ended = self.run().end()
        assert ended.code == 0, ended.err
        self.holds()
        report = ended.report
        assert (report["adds_up"], report["ok"]) == (True, self.rows)
        assert report["possible_double_payments"] >= self.sent_twice()
        return report

    def sent_twice(self) -> int:
        given = Counter(hit.text for hit in self.vendor.hits if hit.outcome == "200")
        return sum(count - 1 for count in given.values())

    def holds(self) -> None:
        lines = self.here.lines()
        assert [line["request_index"] for line in lines] == list(range(self.rows))
        assert [content(line) for line in lines] == [f"word{row}" for row in range(self.rows)]
        store = open_store(self.url)
        try:
            assert [store.check(batch.batch_id) for batch in store.find_batches()] == [[]]
        finally:
            store.close()
