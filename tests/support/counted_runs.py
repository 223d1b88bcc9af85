"""Runs of one file, again and again changed, at a vendor that counts what it is asked each time."""

from __future__ import annotations

from collections import Counter
from typing import Any

from batchwright.store.open import open_store
from support.command_line import CommandLine, Ended
from support.scripted_vendor import ScriptedVendor


class Runs:
    def __init__(self, command: CommandLine, vendor: ScriptedVendor, *, database: str = "") -> None:
        """`database`: a server's, that the command has in its environment."""
        self.command, self.vendor = command, vendor
        self._database = database
        self._before = 0

    def line(self, *options: str, file: str = "rows.jsonl") -> tuple[str, ...]:
        output = () if "-o" in options else ("-o", "out.jsonl")
        where = ("--base-url", self.vendor.base_url, "--api-key-env", "")
        return ("run", file, *output, *where, "--json", "--progress", "none", "--force", *options)

    def __call__(self, rows: list[Any] | None, *options: str, file: str = "rows.jsonl", code: int = 0) -> Ended:
        if rows is not None:
            self.command.write(file, rows)
        ended = self.command(*self.line(*options, file=file))
        assert ended.code == code, ended.err
        return ended

    def asked(self) -> Counter[str]:
        return Counter(hit.text for hit in self.vendor.hits[self._before :])

    def forget(self) -> None:
        self._before = len(self.vendor.hits)

    def lines(self) -> list[dict[str, Any]]:
        return self.command.lines()

    def holds(self) -> None:
        store = open_store(self._database or self.command.state / "batchwright.sqlite")
        try:
            for batch in store.find_batches():
                assert store.check(batch.batch_id) == []
        finally:
            store.close()
