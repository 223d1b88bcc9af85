from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from batchwright.core.batch_spec import Destination
from batchwright.core.batch_state import PauseCause
from batchwright.core.errors import InputRefused, UsageError, VendorUnavailable
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.gate import OnGate
from batchwright.core.money import picousd_from_usd
from batchwright.core.records import InputRow, Record
from batchwright.core.row_options import RowOptions
from batchwright.core.rows import SourceRow
from batchwright.ports.batches import BatchStatus
from batchwright.runner import drive
from batchwright.runner.outcome import RunOutcome
from batchwright.runner.request import Delivery, Pace, Reuse, RunRequest
from batchwright.runner.reuse import KeptAnswers
from batchwright.runner.run import go_on, look_on, run
from batchwright.runner.seams import Seams, Snapshot
from batchwright.runner.source import open_source
from support.batch_samples import VENDOR
from support.memory_batches import MemoryBatch, MemoryBatches
from support.runner_parts import (
    CountedChance,
    HandInterrupts,
    KeptDisplay,
    MemoryLocks,
    ScriptedWorkers,
    SteppedClock,
    echo,
    flagged,
    refused,
)


class Machine:
    """One machine: its batches and locks outlive the runs on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.batches = MemoryBatches()
        self.workers = ScriptedWorkers(self.batches)
        self.locks = MemoryLocks()
        self.chance = CountedChance()
        self.display = KeptDisplay()
        self.interrupts = HandInterrupts()

    def write(self, count: int, name: str = "rows.jsonl") -> RunRequest:
        lines = [{"custom_id": f"r{i}", "body": {"model": "m", "messages": [{"role": "user", "content": f"say {i}"}]}}
                 for i in range(count)]  # fmt: skip
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return RunRequest(
            source=path,
            delivery=Delivery(output=self.folder / "out.jsonl", command=("batchwright", "run", name)),
            rows=RowOptions(destinations=(VENDOR,)),
        )

    def run(self, request: RunRequest) -> RunOutcome:
        self.display = KeptDisplay()
        self.interrupts = HandInterrupts()
        return asyncio.run(self._run(request))

    async def _run(self, request: RunRequest) -> RunOutcome:
        seams = Seams(
            batches=self.batches,
            workers=self.workers,
            display=self.display,
            clock=SteppedClock(),
            locks=self.locks,
            interrupts=self.interrupts,
        )
        return await run(request, seams, chance=self.chance)

    def stop_after_two(self, request: RunRequest) -> None:
        """A run that a person interrupts after two rows."""
        self.workers.before = lambda _batch, row: self.interrupts.press() if row == 1 else None
        self.workers.hold_at = 2
        assert self.run(request).exit_code == 130
        self.workers.before, self.workers.hold_at = lambda _batch, _row: None, -1

    def lines(self, name: str = "out.jsonl") -> list[dict[str, object]]:
        return [json.loads(line) for line in (self.folder / name).read_bytes().splitlines()]

    @property
    def only(self) -> MemoryBatch:
        (batch,) = self.batches.batches.values()
        return batch


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def delivered(request: RunRequest, **changes: object) -> RunRequest:
    return replace(request, delivery=replace(request.delivery, **changes))  # type: ignore[arg-type]


def seams_of(machine: Machine) -> Seams:
    return Seams(
        batches=machine.batches,
        workers=machine.workers,
        display=KeptDisplay(),
        clock=SteppedClock(),
        locks=machine.locks,
        interrupts=HandInterrupts(),
    )


def contents(lines: list[dict[str, object]]) -> list[object]:
    return [line["result"]["content"] if line["ok"] else None for line in lines]  # type: ignore[index]


def test_one_line_a_row_in_order_and_zero(machine: Machine) -> None:
    outcome = machine.run(machine.write(10))
    assert outcome.exit_code == 0
    assert contents(machine.lines()) == [f"echo {i}" for i in range(10)]
    assert outcome.text.startswith("10 ok of 10")
    assert "adds up: 10 input lines = 10 ok = 10 written" in outcome.text
    assert machine.display.said == [f"{outcome.batch_id}: 10 rows taken in."]
    assert machine.locks.held == set()


def test_a_guess_and_rows_without_a_model_are_told_before_they_are_sent(machine: Machine) -> None:
    (machine.folder / "t.csv").write_text("id,text\n1,good\n2,bad\n")
    request = replace(delivered(machine.write(1), output=machine.folder / "out.csv"), source=machine.folder / "t.csv")
    outcome = machine.run(request)
    taken_in, guess, unnamed = machine.display.said
    assert taken_in == f"{outcome.batch_id}: 2 rows taken in."
    assert "the column text is sent as it is" in guess
    assert unnamed.startswith("2 rows name no model")
    assert VENDOR.base_url in unnamed
    named = replace(request, rows=replace(request.rows, prompt="One word: {text}", model="m"))
    machine.run(named)
    assert not any("the column text" in text or "no model" in text for text in machine.display.said)


@pytest.mark.parametrize(
    ("name", "text", "begins"),
    [
        ("t.csv", "\ufeffid;text\r\n1;good\r\n", "\ufeffid;text;answer;"),
        ("t.csv", "id\ttext\n1\tgood\n", "id\ttext\tanswer\t"),
        ("t.tsv", "id\ttext\n1\tgood\n", "id,text,answer,"),
        ("t.csv", "id,text\n1,good\n", "id,text,answer,"),
    ],
)
def test_a_table_comes_back_as_its_spreadsheet_wrote_it(machine: Machine, name: str, text: str, begins: str) -> None:
    (machine.folder / name).write_text(text, newline="")
    output = machine.folder / "out.csv"
    outcome = machine.run(replace(delivered(machine.write(1), output=output), source=machine.folder / name))
    assert outcome.exit_code == 0
    header, record, _ = output.read_text().split("\n")
    assert header.startswith(begins)
    assert record.startswith(f"1{begins[-1]}good{begins[-1]}")


def test_same_command_on_a_complete_batch_only_writes(machine: Machine) -> None:
    request = machine.write(4)
    machine.run(request)
    (machine.folder / "out.jsonl").unlink()
    outcome = machine.run(request)
    assert outcome.exit_code == 0
    assert len(machine.lines()) == 4
    assert machine.workers.asked == [0, 1, 2, 3]
    assert "is complete; nothing is sent" in machine.display.said[0]
    assert "  sent earlier: 4 requests\n" in outcome.text


def test_interrupt_once_says_how_to_go_on_and_the_same_command_does(machine: Machine) -> None:
    request = machine.write(6)

    def press(_batch: MemoryBatch, row: int) -> None:
        if row == 2:
            machine.interrupts.press()

    machine.workers.before, machine.workers.hold_at = press, 3
    outcome = machine.run(request)
    assert outcome.exit_code == 130
    assert outcome.closing[-1] == "This goes on: batchwright run rows.jsonl"
    assert f"batch: {outcome.batch_id}, running (idle)" in outcome.text
    assert machine.workers.stops[0] is True
    assert not (machine.folder / "out.jsonl").exists()
    assert machine.workers.asked == [0, 1, 2]
    machine.workers.before, machine.workers.hold_at = lambda _batch, _row: None, -1
    again = machine.run(request)
    assert again.exit_code == 0
    assert sorted(machine.workers.asked) == list(range(6)), "no row was asked twice"
    assert contents(machine.lines()) == [f"echo {i}" for i in range(6)]
    assert "Going on with" in machine.display.said[0]


def test_an_interrupt_says_who_goes_on_sending(machine: Machine) -> None:
    """A worker beside the run takes over what it gives back: nothing has stopped then, and it says so."""
    request = machine.write(6)

    def press(batch: MemoryBatch, row: int) -> None:
        if row == 2:
            machine.interrupts.press()
            batch.held_by_others = True

    machine.workers.before, machine.workers.hold_at = press, 3
    outcome = machine.run(request)
    assert outcome.exit_code == 130
    first, *commands = outcome.closing
    assert first.startswith(
        f"Interrupted here, but another worker (`serve`, `work`, another `run`) goes on with {outcome.batch_id}"
    )
    assert commands == [
        f"This halts it: batchwright pause {outcome.batch_id}",
        f"This ends it: batchwright cancel {outcome.batch_id}",
        "This watches it and writes its answers: batchwright run rows.jsonl",
    ]


def test_interrupt_twice_cuts_the_grace_short(machine: Machine) -> None:
    request = machine.write(6)
    machine.workers.slow_stop = True

    def press(_batch: MemoryBatch, row: int) -> None:
        if row == 2:
            machine.interrupts.press()

    class PressingAgain(KeptDisplay):
        def show(self, snapshot: Snapshot) -> None:
            super().show(snapshot)
            if snapshot.stopping and machine.interrupts.count == 1:
                machine.interrupts.press()

    machine.workers.before, machine.workers.hold_at = press, 3
    machine.display, machine.interrupts = PressingAgain(), HandInterrupts()
    outcome = asyncio.run(machine._run(request))
    assert outcome.exit_code == 130
    assert machine.workers.stops == [True, False]
    assert any("Ctrl-C stops at once" in snapshot.stopping for snapshot in machine.display.snapshots)


@pytest.mark.parametrize("cause", [PauseCause.GATE, PauseCause.LANE])
def test_a_pause_ends_the_run_with_its_reason_and_the_same_command_clears_it(
    machine: Machine, cause: PauseCause
) -> None:
    request = machine.write(5)

    def pause(batch: MemoryBatch, row: int) -> None:
        if row == 2:
            machine.batches.hold(batch.batch_id, cause, "the key is not valid")

    machine.workers.before = pause
    outcome = machine.run(request)
    assert outcome.exit_code == 5
    assert outcome.closing[0] == f"Paused ({cause.value}): the key is not valid"
    assert outcome.closing[-1].endswith("this goes on: batchwright run rows.jsonl")
    ending = f"batchwright cancel {outcome.batch_id}"
    other = f"Another -m, or changed rows, is a new batch; this ends the one that waits here: {ending}"
    assert outcome.closing[1:-1] == ((other,) if cause is PauseCause.GATE else ())
    machine.workers.before = lambda _batch, _row: None
    assert machine.run(request).exit_code == 0
    assert len(machine.lines()) == 5


def test_a_budget_pause_stands_until_the_cap_is_higher(machine: Machine) -> None:
    request = replace(machine.write(5), max_cost_picousd=picousd_from_usd(1))

    def pause(batch: MemoryBatch, row: int) -> None:
        if row == 2:
            machine.batches.hold(batch.batch_id, PauseCause.BUDGET, "the cap of $1.00 is reached")

    machine.workers.before = pause
    assert machine.run(request).closing[-1].endswith("batchwright run rows.jsonl --max-cost 2.00")
    machine.workers.before = lambda _batch, _row: None
    still = machine.run(request)
    assert (still.exit_code, machine.workers.asked) == (5, [0, 1])
    assert machine.run(replace(request, max_cost_picousd=picousd_from_usd(2))).exit_code == 0
    assert machine.only.spec.max_cost_picousd == picousd_from_usd(2)


def test_a_gate_that_stopped_says_what_a_retry_cannot_put_right(machine: Machine) -> None:
    def stop(batch: MemoryBatch, row: int) -> None:
        if row == 2:
            batch.close(FailureKind.STOPPED)

    machine.workers = ScriptedWorkers(machine.batches, lambda row, _input: refused(row))
    machine.workers.before = stop
    outcome = machine.run(replace(machine.write(4), on_gate=OnGate.STOP))
    assert "another -m, or changed rows, is a new batch" in outcome.closing[0]
    assert f"batchwright retry {outcome.batch_id}" in outcome.closing[1]


@pytest.mark.parametrize(
    ("verb", "nothing", "told"), [("resume", True, True), ("retry", True, True), ("resume", False, False)]
)
def test_whoever_ends_a_batch_without_a_file_is_told_of_export(
    machine: Machine, verb: str, nothing: bool, told: bool
) -> None:
    machine.stop_after_two(machine.write(3))
    batch_id = machine.only.batch_id
    command = ("batchwright", verb, batch_id)
    delivery = Delivery(nothing=nothing, output=machine.folder / "out.jsonl", command=command)
    seams = seams_of(machine)
    outcome = asyncio.run(go_on(batch_id, delivery, Pace(), seams))
    word = f"The answers are kept. This writes them: batchwright export {batch_id} -o FILE"
    assert (outcome.exit_code, outcome.closing) == (0, (word,) if told else ())
    again = asyncio.run(go_on(batch_id, delivery, Pace(), seams))
    assert (again.closing, "sent earlier: 3 requests" in again.text) == (outcome.closing, True)
    opened = asyncio.run(go_on(batch_id, delivery, Pace(), seams, opened=True))
    assert "this command: other workers (`serve`, `work`) had sent what it opened" in opened.text
    assert "sent in all: 3 requests" in opened.text
    watching = Delivery(nothing=True, command=("batchwright", "watch"))
    looked = word.replace("them:", "them where no run has:")
    assert asyncio.run(look_on(batch_id, watching, seams)).closing == (looked,), "it cannot know"
    elsewhere = replace(watching, nothing=False, output=Path("mine.jsonl"))
    (say,) = asyncio.run(look_on(batch_id, elsewhere, seams)).closing
    assert f"batchwright export {batch_id} -o mine.jsonl" in say, "who looked on with a place of his own has no file"


def test_the_library_is_told_of_no_command(machine: Machine) -> None:
    assert machine.run(delivered(machine.write(2), nothing=True, command=())).closing == ()


def test_failures_are_three_and_all_failed_is_four(machine: Machine) -> None:
    def answer(row: int, input_row: InputRow) -> Record:
        return refused(row) if row == 1 else echo(row, input_row)

    machine.workers = ScriptedWorkers(machine.batches, answer)
    request = delivered(machine.write(3), failed_output=machine.folder / "failed.jsonl")
    outcome = machine.run(request)
    assert outcome.exit_code == 3
    assert "batchwright retry" in outcome.closing[-1]
    assert [line["custom_id"] for line in machine.lines("failed.jsonl")] == ["r1"]
    machine.workers = ScriptedWorkers(machine.batches, lambda row, _input: refused(row))
    all_failed = machine.run(replace(request, fresh=True))
    assert all_failed.exit_code == 4
    assert all_failed.text.splitlines()[0].endswith("most frequent error: invalid_request bad: said no to row 0")
    assert [line["ok"] for line in machine.lines()] == [False] * 3


def test_failed_rows_are_valid_input(machine: Machine) -> None:
    machine.workers = ScriptedWorkers(machine.batches, lambda row, _input: refused(row))
    request = delivered(machine.write(2), failed_output=machine.folder / "failed.jsonl")
    machine.run(request)
    machine.workers = ScriptedWorkers(machine.batches)
    again = machine.run(replace(delivered(request, failed_output=None), source=machine.folder / "failed.jsonl"))
    assert again.exit_code == 0
    bodies = [[row.body for row in batch.rows] for batch in machine.batches.batches.values()]
    assert bodies[0] == bodies[1]


def test_strict_counts_flagged_rows_as_failed(machine: Machine) -> None:
    machine.workers = ScriptedWorkers(machine.batches, lambda row, _input: flagged(row, Flag.TRUNCATED))
    request = machine.write(2)
    assert machine.run(request).exit_code == 0
    assert machine.run(delivered(request, strict=True)).exit_code == 4


def test_expired_keeps_the_answers_and_is_four(machine: Machine) -> None:
    def expire(batch: MemoryBatch, row: int) -> None:
        if row == 3:
            batch.close(FailureKind.EXPIRED)

    machine.workers.before = expire
    outcome = machine.run(replace(machine.write(5), deadline_s=3.0))
    assert outcome.exit_code == 4
    assert outcome.text.startswith("3 ok, 2 expired of 5")
    assert [line["ok"] for line in machine.lines()] == [True, True, True, False, False]


def test_refused_input_sends_nothing_and_leaves_nothing(machine: Machine) -> None:
    request = machine.write(3)
    with Path(str(request.source)).open("a") as file:
        file.write("not json\n")
    with pytest.raises(InputRefused) as refusal:
        machine.run(request)
    assert [finding.line for finding in refusal.value.findings] == [4]
    assert (machine.batches.batches, machine.workers.asked, machine.locks.held) == ({}, [], set())


def test_skip_invalid_counts_them_as_failed_rows(machine: Machine) -> None:
    request = machine.write(3)
    with Path(str(request.source)).open("a") as file:
        file.write("not json\n\n")
    outcome = machine.run(replace(delivered(request, failed_output=machine.folder / "failed.jsonl"), skip_invalid=True))
    assert outcome.exit_code == 3
    assert "3 ok, 1 failed of 4" in outcome.text
    assert "adds up: 5 input lines - 1 blank = 4 rows = 3 ok + 1 failed = 4 written" in outcome.text
    assert "0 rows to run; 1 row that cannot be sent at all left out" in outcome.text


def test_interrupt_while_reading_leaves_nothing(machine: Machine) -> None:
    request = machine.write(3)

    class Pressed(KeptDisplay):
        def reading(self, rows: int) -> None:
            machine.interrupts.press()

    path = Path(str(request.source))
    path.write_text(path.read_text() * 400)
    request = replace(request, skip_invalid=True)
    machine.display = Pressed()
    machine.interrupts = HandInterrupts()
    outcome = asyncio.run(machine._run(request))
    assert (outcome.exit_code, machine.batches.batches, machine.workers.asked) == (130, {}, [])
    assert outcome.text == "Interrupted while reading the input; nothing was sent."


def test_a_second_run_watches_and_leaves_the_output_to_the_first(machine: Machine) -> None:
    request = machine.write(3)
    machine.stop_after_two(request)
    batch = machine.only
    machine.locks.elsewhere = {batch.batch_id}
    asked = list(machine.workers.asked)

    class Ending(KeptDisplay):
        """The other process ends the rows meanwhile."""

        def show(self, snapshot: Snapshot) -> None:
            for row in batch.open_rows():
                batch.end(row, echo(row, batch.rows[row]))

    machine.display, machine.interrupts = Ending(), HandInterrupts()
    outcome = asyncio.run(machine._run(delivered(request, output=machine.folder / "second.jsonl")))
    assert "Process 4711 is running this" in machine.display.said[0]
    assert (outcome.exit_code, machine.workers.asked) == (0, asked)
    assert not (machine.folder / "second.jsonl").exists()


def test_watch_ends_with_the_report_of_the_run(machine: Machine) -> None:
    machine.workers = ScriptedWorkers(machine.batches, lambda row, body: refused(row) if row else echo(row, body))
    ran = machine.run(machine.write(3))
    seen = asyncio.run(look_on(ran.batch_id, Delivery(nothing=True), seams_of(machine)))
    assert ran.report is not None
    assert seen.report is not None
    assert seen.exit_code == ran.exit_code == 3
    assert seen.report.failures == ran.report.failures
    assert seen.report.failures[0].sample is not None
    assert "batchwright retry" in seen.text


def test_a_watcher_goes_on_when_the_first_has_died(machine: Machine) -> None:
    request = machine.write(3)
    machine.stop_after_two(request)
    machine.locks.elsewhere = {machine.only.batch_id}

    class Dying(KeptDisplay):
        def show(self, snapshot: Snapshot) -> None:
            machine.locks.elsewhere = set()

    machine.display, machine.interrupts = Dying(), HandInterrupts()
    outcome = asyncio.run(machine._run(request))
    assert outcome.exit_code == 0
    assert any("has ended; going on" in text for text in machine.display.said)
    assert contents(machine.lines()) == ["echo 0", "echo 1", "echo 2"]


def test_a_changed_file_says_how_many_rows_before_it_starts_anew(machine: Machine) -> None:
    request = machine.write(4)
    machine.run(request)
    path = Path(str(request.source))
    path.write_text(path.read_text().replace("say 2", "tell 2"))
    machine.run(request)
    assert "was made of the same file, but 1 row is changed. Starting anew." in machine.display.said[0]
    assert len(machine.batches.batches) == 2


def test_an_input_that_is_refused_starts_nothing_anew_and_does_not_say_so(machine: Machine) -> None:
    request = machine.write(3)
    machine.run(request)
    Path(str(request.source)).write_text("not json\n")
    with pytest.raises(InputRefused):
        machine.run(request)
    assert machine.display.said == []
    with pytest.raises(InputRefused):
        machine.run(replace(request, fresh=True))
    assert machine.display.said == []


def test_another_option_is_named_before_it_starts_anew(machine: Machine) -> None:
    request = machine.write(2)
    machine.run(request)
    machine.run(replace(request, rows=replace(request.rows, params={"temperature": 0})))
    assert "--param temperature is now 0 (was not given)" in machine.display.said[0]
    assert machine.workers.asked == [0, 1, 0, 1]


def test_rows_with_the_same_text_are_rows_of_their_own(machine: Machine) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "Toss a coin."}]}
    outcome = machine.run(
        RunRequest(
            source=[body] * 6,
            delivery=Delivery(output=machine.folder / "out.jsonl"),
            rows=RowOptions(destinations=(VENDOR,)),
        )
    )
    assert (outcome.exit_code, machine.workers.asked) == (0, [0, 1, 2, 3, 4, 5])
    assert len(machine.lines()) == 6


def test_a_vendor_that_cannot_start_is_a_pause(machine: Machine) -> None:
    machine.workers.start_failure = VendorUnavailable("the local model cannot start: libgomp is missing")
    outcome = machine.run(machine.write(2))
    assert outcome.exit_code == 5
    assert outcome.closing[0] == "the local model cannot start: libgomp is missing"
    assert machine.locks.held == set()


def test_a_fault_of_ours_is_raised_and_the_batch_stays(machine: Machine) -> None:
    def fail(_batch: MemoryBatch, row: int) -> None:
        if row == 1:
            raise ZeroDivisionError

    machine.workers.before = fail
    request = machine.write(3)
    with pytest.raises(ZeroDivisionError):
        machine.run(request)
    machine.workers.before = lambda _batch, _row: None
    assert machine.run(request).exit_code == 0
    assert sorted(machine.workers.asked) == [0, 1, 2]


def test_tallies_that_lie_are_told_and_are_our_fault(machine: Machine) -> None:
    request = machine.write(2)
    machine.run(request)
    machine.only.tally.cost_picousd += 1
    outcome = machine.run(request)
    assert outcome.exit_code == 1
    assert "DOES NOT ADD UP: cost" in outcome.text


def test_an_output_that_cannot_be_written_keeps_the_answers(machine: Machine) -> None:
    folder = machine.folder / "gone"
    folder.mkdir()
    request = delivered(machine.write(2), output=folder / "out.jsonl")
    machine.workers.before = lambda _batch, row: folder.rmdir() if row == 1 else None
    outcome = machine.run(request)
    assert outcome.exit_code == 1
    assert outcome.closing[-1].endswith(f"batchwright export {outcome.batch_id} -o {folder / 'out.jsonl'}")
    folder.mkdir()
    assert machine.run(request).exit_code == 0


@pytest.mark.parametrize("name", ["rows.jsonl", "no/such/folder.jsonl", "answers.xlsx", "."])
def test_an_output_that_cannot_be_is_refused_before_anything_is_sent(machine: Machine, name: str) -> None:
    request = machine.write(2)
    with pytest.raises(UsageError):
        machine.run(delivered(request, output=machine.folder / name))
    assert machine.batches.batches == {}


def test_pace_goes_to_the_workers_and_not_into_identity(machine: Machine) -> None:
    request = machine.write(2)
    machine.run(replace(request, pace=Pace(concurrency=7)))
    machine.run(replace(delivered(request, output=machine.folder / "other.jsonl"), pace=Pace(concurrency=9)))
    assert [pace.concurrency for pace in machine.workers.paces] == [7]
    assert len(machine.batches.batches) == 1


class Impatient(KeptDisplay):
    """Presses Ctrl-C once it was told something that is not the first sentence, or after fifty looks."""

    def __init__(self, interrupts: HandInterrupts) -> None:
        super().__init__()
        self._interrupts = interrupts
        self._looks = 0

    def say(self, text: str) -> None:
        super().say(text)
        if len(self.said) > 1:
            self._interrupts.press()

    def show(self, snapshot: Snapshot) -> None:
        super().show(snapshot)
        self._looks += 1
        if self._looks == 50:
            self._interrupts.press()


@pytest.mark.parametrize("live", [False, True])
def test_whoever_watches_a_batch_that_nobody_works_on_is_told(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, live: bool
) -> None:
    machine.stop_after_two(machine.write(5))
    (batch_id,) = machine.batches.batches
    machine.only.live = live
    monkeypatch.setattr(drive, "REFRESH_S", 0.0)
    interrupts = HandInterrupts()
    display = Impatient(interrupts)
    seams = Seams(
        batches=machine.batches,
        workers=machine.workers,
        display=display,
        clock=SteppedClock(),
        locks=machine.locks,
        interrupts=interrupts,
    )
    assert asyncio.run(look_on(batch_id, Delivery(nothing=True), seams)).exit_code == 130
    assert display.said[0] == f"Watching {batch_id}."
    assert [f"batchwright resume {batch_id}" in text for text in display.said[1:]] == ([] if live else [True])


# ------------------------------------------------------------------------------------------ where an input's rows go

CORP = Destination(vendor="corp", base_url="https://corp.example/v1", models=("corp-*",))


def with_destinations(request: RunRequest, *destinations: Destination) -> RunRequest:
    return replace(request, rows=replace(request.rows, destinations=destinations))


def test_a_vendor_that_no_row_uses_makes_no_other_run(machine: Machine) -> None:
    request = machine.write(4)
    machine.stop_after_two(request)
    others = (CORP, VENDOR), (VENDOR, CORP), (msgspec.structs.replace(CORP, unusable="no key"), VENDOR)
    for destinations in others:
        assert machine.run(with_destinations(request, *destinations)).exit_code == 0
        assert len(machine.batches.batches) == 1
    assert contents(machine.lines()) == [f"echo {i}" for i in range(4)]


def test_a_vendor_that_takes_rows_makes_another_run_and_is_named(machine: Machine) -> None:
    request = machine.write(4)
    first = machine.run(request)
    takes = msgspec.structs.replace(CORP, models=("m",))
    second = machine.run(with_destinations(request, takes, VENDOR))
    assert first.batch_id != second.batch_id
    expected = (
        "rows of the model m now go to corp https://corp.example/v1 (before: to acme https://acme.example/v1). "
        "Starting anew."
    )
    assert any(expected in said for said in machine.display.said), machine.display.said
    assert machine.run(request).batch_id == first.batch_id, "each of the two is found again"
    assert machine.run(with_destinations(request, takes, VENDOR)).batch_id == second.batch_id


def test_rows_that_may_go_nowhere_now_are_refused_and_nothing_is_stored(machine: Machine) -> None:
    request = machine.write(4)
    machine.stop_after_two(request)
    withheld = with_destinations(request, msgspec.structs.replace(VENDOR, unusable="the key ACME_KEY is withheld"))
    with pytest.raises(InputRefused, match="the key ACME_KEY is withheld"):
        machine.run(withheld)
    assert len(machine.batches.batches) == 1
    assert machine.locks.held == set()
    assert machine.run(request).exit_code == 0


def test_rows_refused_for_want_of_a_key_are_failed_rows_and_the_same_command_finds_its_batch(machine: Machine) -> None:
    request = replace(machine.write(3), skip_invalid=True)
    text = request.source.read_text().replace('"m"', '"corp-1"', 1)  # type: ignore[union-attr]
    Path(str(request.source)).write_text(text)
    withheld = with_destinations(request, msgspec.structs.replace(CORP, unusable="the key is withheld"), VENDOR)
    assert machine.run(withheld).exit_code == 3
    assert [line["ok"] for line in machine.lines()] == [False, True, True]
    assert "the key is withheld" in str(machine.lines()[0]["error"])
    assert machine.run(withheld).batch_id == machine.only.batch_id
    assert machine.run(with_destinations(request, CORP, VENDOR)).exit_code == 0
    assert len(machine.batches.batches) == 2, "with its key the row can be answered: another run"


def test_rows_of_standard_input_and_lists_are_looked_at_too(machine: Machine) -> None:
    rows = [{"prompt": f"say {i}", "model": "acme/m" if i else "m"} for i in range(4)]
    request = replace(machine.write(0), source=rows)
    assert machine.run(request).exit_code == 0
    assert machine.run(with_destinations(request, CORP, VENDOR)).exit_code == 0
    assert len(machine.batches.batches) == 1


def test_an_interrupt_while_the_models_are_looked_at(machine: Machine) -> None:
    request = machine.write(4)
    machine.run(request)
    machine.display, machine.interrupts = KeptDisplay(), HandInterrupts()
    find = machine.batches.find

    async def find_and_interrupt(**asked: Any) -> list[BatchStatus]:
        machine.interrupts.press()
        return await find(**asked)

    machine.batches.find = find_and_interrupt  # type: ignore[method-assign]
    outcome = asyncio.run(machine._run(with_destinations(request, CORP, VENDOR)))
    assert outcome.exit_code == 130
    assert len(machine.batches.batches) == 1


def test_a_row_that_is_not_what_was_looked_at_gets_no_answer(machine: Machine) -> None:
    """Whatever happened to the file between the two readings for --reuse."""
    request = machine.write(3)
    machine.run(request)
    others = InputRow(body=b'{"model":"m","messages":[{"role":"user","content":"say other"}]}', model="m")

    async def look() -> None:
        with (
            open_source(request.source, request.rows) as source,
            KeptAnswers(source, request.rows.directions, Reuse(of_file=True), seams_of(machine)) as kept,
        ):
            await kept.find(str(request.source))
            assert kept.kept is not None
            assert kept.kept.reused == 3
            with pytest.raises(InputRefused, match="changed while it was read"):
                list(kept.given(iter([[SourceRow(row=others)] * 3])))

    asyncio.run(look())
