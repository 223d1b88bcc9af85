"""Real processes, killed with SIGKILL: at each named step of the way, and at moments nobody chose.

After each kill the same command goes on, and at the end: one line for each row, in order, each with its own row's
answer. What a kill costs is bounded by what was exposed at that moment: in flight, or answered since the last
checkpoint that landed began. And the report owns up to at least as many possible double payments as there were.
"""

from __future__ import annotations

import json
import random
import signal
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from batchwright.core.batch_state import derive
from batchwright.store.open import open_store
from support.command_line import CommandLine, Ended, Started, content
from support.left_behind import leave_batch
from support.scripted_vendor import ScriptedVendor
from support.together import Together
from support.watched_command import read_account

ROWS = 600
IN_FLIGHT = 16
LATENCY_S = 0.03
RANDOM_BATCHES = 6
RANDOM_KILLS = 7

ON_THE_WAY = (
    ("before create_batch:1", "after create_batch:1", "before add_segments:2", "after add_segments:3"),
    ("before close_intake:1", "after close_intake:1", "before register_worker:1", "after register_worker:1"),
    ("before checkpoint:2", "after checkpoint:2", "commit:12", "before send:40", "after send:40"),
    ("before booking:40", "after booking:40", "before checkpoint:6", "after checkpoint:6", "commit:9", "after send:90"),
)
"""Each batch is killed at one after the other."""
AT_THE_END = (
    ("after end_worker:1", "before writing:1", "before rename:1"),
    ("before rename:2", "after rename:1", "after writing:1"),
)
"""All rows have ended when these are reached; the file may be there or not."""
LAST_OUT = ("--max-attempts", "20")
"""Each kill may use up an attempt of the rows that were out, and those go first the next time."""
BY_A_ROW = ((5, 0.5), (100, LATENCY_S), (199, 0.2))
"""(the row that kills, how long an answer takes): among the first, before anything was answered; in the middle; the
last."""
BY_A_ROW_ROWS = 200
DEATHS_BY_A_ROW_MAX = 16
IN_A_RETRY = ("before reopen:1", "after reopening step:1", "after reopening step:3", "after reopen:1")
AFTER_IT = ("commit:7", "before send:20")
"""The round is open then, and the same command goes on with it."""


class Batch:
    """One rows file and vendor, the command that is run on it again and again, and what its kills exposed."""

    def __init__(self, folder: Path, vendor: ScriptedVendor, *, rows: int = ROWS) -> None:
        self.command = CommandLine(folder)
        self.vendor = vendor
        self.rows = rows
        self.exposed = 0
        self._accounts: list[Path] = []
        self.command.write("rows.jsonl", [{"prompt": f"Say word{row}"} for row in range(rows)])

    def start(self, point: str = "-", *more: str) -> Started:
        account = self.command.folder / f"account{len(self._accounts)}"
        self._accounts.append(account)
        endpoint = ("--base-url", self.vendor.base_url, "--api-key-env", "", "-m", "m")
        line = ("run", "rows.jsonl", "-o", "out.jsonl", "--failed", "failed.jsonl", *endpoint, "-c", str(IN_FLIGHT))
        program = ("-m", "support.watched_command", str(account), point)
        return self.command.start(*line, "--json", "--progress", "none", *more, program=program)

    def start_verb(self, point: str, *line: str) -> Started:
        account = self.command.folder / f"account{len(self._accounts)}"
        self._accounts.append(account)
        return self.command.start(*line, program=("-m", "support.watched_command", str(account), point))

    def killed(self, ended: Ended) -> None:
        assert ended.code == -signal.SIGKILL, f"it was not killed: {ended.code}, {ended.err}"
        self.exposed += read_account(self._accounts[-1]).exposed

    def unfinished(self) -> bool:
        """What the store says, asked without any of the commands' doings."""
        path = self.command.state / "batchwright.sqlite"
        if not path.exists():
            return True
        store = open_store(path)
        try:
            batches = store.find_batches(limit=1)
            return not batches or not derive(batches[0].facts, batches[0].tally).terminal
        finally:
            store.close()

    def sent_twice(self) -> int:
        """Answers the vendor gave (or was about to) for rows that had got one already."""
        given = Counter(hit.text for hit in self.vendor.hits if hit.outcome == "200")
        return sum(count - 1 for count in given.values())

    def goes_on_to_the_end(self, *more: str) -> dict[str, Any]:
        ended = self.start("-", *more).end()
        assert ended.code == 0, (ended.err, ended.out and ended.report["failures"])
        self.holds()
        report = ended.report
        twice = self.sent_twice()
        assert twice <= self.exposed
        assert report["possible_double_payments"] >= twice
        assert (report["adds_up"], report["ok"]) == (True, self.rows)
        return report

    def holds(self) -> None:
        """Nothing missing, nothing twice, in order, each answer its own row's; nothing left beside the files."""
        lines = self.command.lines()
        assert [line["request_index"] for line in lines] == list(range(self.rows))
        assert [content(line) for line in lines] == [f"word{row}" for row in range(self.rows)]
        assert (self.command.folder / "failed.jsonl").read_bytes() == b""
        assert not list(self.command.folder.glob(".*.part")), "a half-written file was left behind"
        store = open_store(self.command.state / "batchwright.sqlite")
        try:
            for batch in store.find_batches():
                assert store.check(batch.batch_id) == []
        finally:
            store.close()


def killed_on_the_way(folder: Path, points: tuple[str, ...]) -> None:
    with ScriptedVendor() as vendor:
        vendor.set(latency_s=LATENCY_S)
        batch = Batch(folder, vendor)
        for point in points:
            assert batch.unfinished()
            batch.killed(batch.start(point).end())
            assert batch.unfinished(), f"the kill at {point} came too late to count"
        batch.goes_on_to_the_end()


def killed_at_the_end(folder: Path, points: tuple[str, ...]) -> None:
    with ScriptedVendor() as vendor:
        batch = Batch(folder, vendor)
        for point in points:
            batch.killed(batch.start(point).end())
            out = folder / "out.jsonl"
            assert not out.exists() or len(batch.command.lines()) == ROWS, "half a file can be seen"
        batch.goes_on_to_the_end()
        assert batch.sent_twice() == 0, "all rows had ended before the first kill"


def killed_at_random(folder: Path, seed: int) -> int:
    """Returns how many kills counted. The vendor fails some requests meanwhile."""
    chance = random.Random(seed)
    kills = 0
    with ScriptedVendor(seed=seed) as vendor:
        vendor.set(latency_s=LATENCY_S, fail_percent=5)
        batch = Batch(folder, vendor)
        while kills < RANDOM_KILLS and batch.unfinished():
            asked = len(vendor.hits)
            started = batch.start("-", *LAST_OUT)
            more = chance.randint(IN_FLIGHT + 4, ROWS // RANDOM_KILLS)
            started.until(vendor, lambda vendor, until=asked + more: len(vendor.hits) >= until)  # type: ignore[misc]
            started.kill()
            batch.killed(started.end())
            kills += batch.unfinished()
        batch.goes_on_to_the_end(*LAST_OUT)
    return kills


def killed_by_a_row(folder: Path, row: int, latency_s: float) -> dict[str, Any]:
    """Whenever one row arrives at the vendor the worker dies, as if of it. Returns the last run's report."""
    guilty = f"Say word{row}"
    with ScriptedVendor() as vendor:
        vendor.set(latency_s=latency_s)
        batch = Batch(folder, vendor, rows=BY_A_ROW_ROWS)
        for _ in range(DEATHS_BY_A_ROW_MAX):
            asked = vendor.texts().count(guilty)
            started = batch.start()
            try:
                started.until(vendor, lambda vendor, asked=asked: vendor.texts().count(guilty) > asked)  # type: ignore[misc]
            except AssertionError:
                return started.end().report
            started.kill()
            batch.killed(started.end())
    raise AssertionError(f"it was sent {DEATHS_BY_A_ROW_MAX} times and killed its worker each time")


def killed_in_a_retry(folder: Path) -> None:
    """Rows 0, 3, 6 ... are refused in round 0 and answered in round 1, which is killed while it begins and runs."""
    with ScriptedVendor() as vendor:
        batch = Batch(folder, vendor)
        texts = [f"[[status=400 times=1]] Say word{row}" if row % 3 == 0 else f"Say word{row}" for row in range(ROWS)]
        batch.command.write("rows.jsonl", [{"prompt": text} for text in texts])
        assert batch.start("-", "--no-gate").end().code == 3
        vendor.set(latency_s=LATENCY_S)
        asked = len(vendor.hits)
        assert asked == ROWS
        line = ("retry", "@last", "-o", "out.jsonl", "--failed", "failed.jsonl", "--progress", "none")
        for point in IN_A_RETRY:
            batch.killed(batch.start_verb(point, *line).end())
        # The round has begun: the same command goes on with it, and so does `resume`.
        for point in AFTER_IT:
            batch.killed(batch.start_verb(point, *line).end())
        ended = batch.start_verb("-", *line).end()
        assert ended.code == 0, ended.err
        assert "round 1 has begun already" in ended.err
        batch.holds()
        given = Counter(hit.text for hit in vendor.hits if hit.outcome == "200")
        assert sum(count - 1 for count in given.values()) <= batch.exposed
        asked_again = {hit.text for hit in vendor.hits[asked:]}
        assert asked_again == {text for text in texts if "status" in text}, "only failed rows were sent again"


def one_of_two_killed(folder: Path, *, second: bool) -> None:
    """`run` and `work` (or `work` twice) on one batch; one of them is killed, the other ends it alone."""
    with ScriptedVendor() as vendor:
        vendor.set(hold=True)
        batch = Batch(folder, vendor)
        command = batch.command
        run = batch.start()
        run.until(vendor, lambda vendor: vendor.in_flight == IN_FLIGHT)
        if second:
            run.kill()
            batch.killed(run.end())
        workers = [command.start("work", "--progress", "none") for _ in range(1 + second)]
        workers[0].until(vendor, lambda vendor: vendor.in_flight == 2 * IN_FLIGHT)  # both are at it
        workers[0].kill()
        assert workers[0].end().code == -signal.SIGKILL
        assert batch.unfinished()
        vendor.set(hold=False)
        ended = batch.start().end() if second else run.end()
        assert ended.code == 0, ended.err
        batch.holds()
        assert ended.report["possible_double_payments"] >= batch.sent_twice()
        for worker in workers[1:]:
            worker.interrupt()
            assert worker.end().code == 0


@pytest.fixture(scope="module")
def begun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Together]:
    together = Together()

    def folder() -> Path:
        return tmp_path_factory.mktemp("batch")

    for number, points in enumerate(ON_THE_WAY):
        together.begin(f"way {number}", partial(killed_on_the_way, folder(), points))
    for number, points in enumerate(AT_THE_END):
        together.begin(f"end {number}", partial(killed_at_the_end, folder(), points))
    for seed in range(RANDOM_BATCHES):
        together.begin(f"random {seed}", partial(killed_at_random, folder(), seed))
    for row, latency_s in BY_A_ROW:
        together.begin(f"by row {row}", partial(killed_by_a_row, folder(), row, latency_s))
    together.begin("retry", partial(killed_in_a_retry, folder()))
    together.begin("run and work", partial(one_of_two_killed, folder(), second=False))
    together.begin("work and work", partial(one_of_two_killed, folder(), second=True))
    yield together
    together.close()


@pytest.mark.parametrize("number", range(len(ON_THE_WAY)))
def test_killed_at_named_steps_on_the_way(begun: Together, number: int) -> None:
    begun.result(f"way {number}")


@pytest.mark.parametrize("number", range(len(AT_THE_END)))
def test_killed_while_the_file_is_written(begun: Together, number: int) -> None:
    begun.result(f"end {number}")


def test_killed_at_random(begun: Together) -> None:
    kills = [begun.result(f"random {seed}") for seed in range(RANDOM_BATCHES)]
    assert sum(kills) >= 36, f"too few of them landed while their batch was unfinished: {kills}"


@pytest.mark.parametrize("row", [row for row, _ in BY_A_ROW])
def test_a_row_that_kills_its_workers_ends_alone(begun: Together, row: int) -> None:
    report = begun.result(f"by row {row}")
    assert (report["ok"], report["adds_up"]) == (BY_A_ROW_ROWS - 1, True)
    assert [(failure["kind"], failure["count"]) for failure in report["failures"]] == [("worker_lost", 1)]


def test_killed_while_a_retry_begins_and_runs(begun: Together) -> None:
    begun.result("retry")


@pytest.mark.parametrize("which", ["run and work", "work and work"])
def test_one_of_two_workers_killed(begun: Together, which: str) -> None:
    begun.result(which)


def test_rows_that_were_out_at_a_kill_count_that_attempt_when_they_are_cancelled(tmp_path: Path) -> None:
    command = CommandLine(tmp_path)
    with ScriptedVendor() as vendor:
        leave_batch(command, vendor, 40)
    assert command("cancel", "@last").code == 0
    status = command("status", "--json").report
    assert status["cancelled"] == 40
    assert status["attempts"] > 0
    command("export", "@last", "-o", "ended.jsonl", "--force")
    lines = [json.loads(line) for line in (command.folder / "ended.jsonl").read_text().splitlines()]
    assert sum(line["attempts"] for line in lines) == status["attempts"]
    assert all(bool(line["attempts"]) is line["error"]["may_have_been_sent"] for line in lines)
    shown = [line.split("\t") for line in command("rows", "@last", "--limit", "0").out.splitlines()]
    assert sum(int(cells[3]) for cells in shown) == status["attempts"]
