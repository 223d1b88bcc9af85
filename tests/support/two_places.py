"""A service that takes batches in and two workers, each of a place of its own, on one database."""

from __future__ import annotations

from collections import Counter
from contextlib import ExitStack, closing
from pathlib import Path

from batchwright.store.open import open_store
from support.command_line import CommandLine, Started
from support.scripted_vendor import ScriptedVendor
from support.service_process import ServiceProcess
from support.shared_database import LEASE, ROWS


def twice(vendor: ScriptedVendor) -> int:
    """Rows that were sent to it more than once."""
    return sum(count > 1 for count in Counter(hit.text for hit in vendor.hits).values())


def orphans(url: str) -> int:
    with closing(open_store(url)) as store:
        return sum(batch.tally.orphans for batch in store.find_batches())


class Two:
    """A service that takes a batch in and works on nothing, and two workers of other places, of which one is ours."""

    def __init__(self, folder: Path, url: str, vendor: ScriptedVendor, stack: ExitStack, *, ours: str = "") -> None:
        """`ours`: the database's URL for our worker."""
        self.vendor, self.url, self._stack = vendor, url, stack
        self.service = ServiceProcess(self._place(folder / "service", url), vendor, "--no-work")
        stack.enter_context(self.service)
        self.places = [self._place(folder / "ours", ours or url), self._place(folder / "other", url)]
        for place in self.places:
            text = f"[vendors.scripted]\nbase_url = '{vendor.base_url}'\nconcurrency = 16\n"
            (place.folder / "batchwright.toml").write_text(text)

    def _place(self, folder: Path, url: str) -> CommandLine:
        return CommandLine(folder, BATCHWRIGHT_DATABASE=url, **LEASE)

    def work(self, place: int) -> Started:
        started = self.places[place].start("work", "--progress", "none")
        self._stack.callback(started.end)
        self._stack.callback(started.kill)
        return started

    def takes_over(self) -> None:
        """Until the other sends what ours has in flight. What that is answered is held from then on."""
        self.vendor.wait_for(lambda vendor: twice(vendor) > 0, 60.0)

    def holds(self, batch_id: str) -> None:
        status = self.service.ended(batch_id)
        assert (status["state"], status["completed_count"]) == ("completed", ROWS), status
        items = self.service.results(batch_id)
        assert [item["result"]["content"] for item in items] == [f"w{row}" for row in range(ROWS)]
        with closing(open_store(self.url)) as store:
            assert store.check(batch_id) == []
