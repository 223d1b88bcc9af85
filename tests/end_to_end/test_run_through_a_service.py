"""`batchwright run --service`: through a service like Infrai's, and through this project's own, as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from batchwright.assemble.vendors import SERVICE_FOLDER
from support.command_line import CommandLine, Ended, Started, chat_row, content
from support.scripted_service import KEY, ScriptedService
from support.scripted_vendor import ScriptedVendor
from support.service import serving


@pytest.fixture
def service() -> Iterator[ScriptedService]:
    with ScriptedService() as service:
        yield service


@pytest.fixture
def machine(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path / "machine", INFRAI_API_KEY=KEY)


def rows(count: int) -> list[object]:
    return [chat_row(f"w{number}", f"c{number}") for number in range(count)]


def start(machine: CommandLine, service: ScriptedService, *more: str) -> Started:
    return machine.start("run", "in.jsonl", "-o", "out.jsonl", "--service", service.base_url, *more)


def run(machine: CommandLine, service: ScriptedService, *more: str) -> Ended:
    return start(machine, service, *more).end()


def check_all(machine: CommandLine, service: ScriptedService, count: int) -> None:
    """Every row is there once, in order, with its own answer, and was paid once."""
    lines = machine.lines()
    assert [line["request_index"] for line in lines] == list(range(count))
    assert [content(line) for line in lines] == [f"echo w{number}" for number in range(count)]
    assert [line["custom_id"] for line in lines] == [f"c{number}" for number in range(count)]
    assert service.paid == {f"w{number}": 1 for number in range(count)}


def test_a_file_goes_through_in_chunks_and_comes_back_in_order(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", rows(300))
    service.set(page_rows=7)
    ended = run(machine, service, "--json")
    assert ended.code == 0, ended.err
    check_all(machine, service, 300)
    costs = [Decimal(str(line["cost_usd"])) for line in machine.lines()]
    assert sum(costs) == Decimal("0.04092")
    assert ended.report["cost"]["known_usd"] == 0.04092
    assert 1 < len(service.submits) < 60
    assert all(submit.key for submit in service.submits)
    assert len({submit.key for submit in service.submits}) == len(service.submits)
    again = run(machine, service)
    assert again.code == 0
    assert service.paid["w0"] == 1, "the same command again sends nothing"


def test_only_failed_rows_are_sent_again_and_keep_their_index(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", [chat_row("a"), chat_row("b once"), chat_row("c"), chat_row("d bad"), chat_row("e")])
    ended = run(machine, service)
    assert ended.code == 3, ended.err
    lines = machine.lines()
    assert [line["ok"] for line in lines] == [True, True, True, False, True]
    assert [content(line) for line in lines if line["ok"]] == ["echo a", "echo b once", "echo c", "echo e"]
    assert lines[3]["error"]["kind"] == "model_not_found", "VENDOR_DOWN is not believed against its own message"
    assert service.paid == {"a": 1, "b once": 2, "c": 1, "d bad": 1, "e": 1}


def test_an_array_above_the_ceiling_is_halved_and_no_row_is_lost(
    machine: CommandLine, service: ScriptedService
) -> None:
    machine.write("in.jsonl", rows(200))
    service.set(max_rows=5)
    ended = run(machine, service)
    assert ended.code == 0, ended.err
    check_all(machine, service, 200)
    refused = [submit for submit in service.submits if not submit.batch_id]
    assert refused
    assert len(refused) < 40, "the size is learned"


def test_a_row_that_spoils_its_array_is_found(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", rows(20))
    service.refuse(400, "INVALID_REQUEST", path="submit", times=1)
    ended = run(machine, service)
    assert ended.code == 0, ended.err
    check_all(machine, service, 20)


def test_replies_that_are_lost_cost_nothing(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", rows(40))
    service.set(deaf=2)
    ended = run(machine, service)
    assert ended.code == 0, ended.err
    check_all(machine, service, 40)


def test_a_journal_that_cannot_be_written_keeps_rows_waiting_and_ends_none(
    machine: CommandLine, service: ScriptedService
) -> None:
    """Nothing is submitted that is not in it."""
    machine.write("in.jsonl", rows(20))
    in_its_way = machine.state / SERVICE_FOLDER
    in_its_way.parent.mkdir(parents=True)
    in_its_way.touch()
    running = start(machine, service)
    running.wait_for("Rows are not sent before it is; make room")
    assert not service.submits
    in_its_way.unlink()
    ended = running.end()
    assert ended.code == 0, ended.err
    check_all(machine, service, 20)


def test_odd_replies_are_understood(machine: CommandLine, service: ScriptedService) -> None:
    """Numbers as texts, and a state that nobody has told us of until the batch has ended."""

    def dress(data: dict[str, Any]) -> dict[str, Any]:
        return {name: str(value) if isinstance(value, int | float) else value for name, value in data.items()}

    machine.write("in.jsonl", rows(10))
    service.set(dress=dress, state="warming_up")
    running = start(machine, service)
    service.wait_for(lambda service: any("/status/" in call for call in service.calls))
    service.set(state="")
    ended = running.end()
    assert ended.code == 0, ended.err
    check_all(machine, service, 10)


@pytest.mark.parametrize("state", ["completed", "partial", "failed", "expired", "cancelled"])
def test_every_terminal_state_ends_the_wait(machine: CommandLine, service: ScriptedService, state: str) -> None:
    machine.write("in.jsonl", rows(3))
    service.set(state=state)
    ended = run(machine, service)
    assert ended.code == 0, ended.err
    check_all(machine, service, 3)


def assert_no_doubt(machine: CommandLine, rows: int) -> None:
    """The service was asked for the first answer: no row can have been paid for twice, and none was tried twice."""
    status = machine("status", "--json").report
    assert (status["possible_double_payments"], status["attempts"], status["retries"]) == (0, rows, 0)


def test_a_kill_while_a_submit_is_out_pays_nothing_twice(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", rows(60))
    service.set(hold=True)
    running = start(machine, service)
    service.wait_for(lambda service: bool(service.submits))
    running.kill()
    running.end()
    service.release()
    ended = run(machine, service)
    assert ended.code == 0, ended.err
    check_all(machine, service, 60)
    keys = [submit.key for submit in service.submits]
    assert len(keys) > len(set(keys)), "the submit was said again under its key"
    assert_no_doubt(machine, 60)


def test_a_kill_while_a_batch_runs_asks_for_that_batch(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", rows(10))
    service.set(state="working", dedup=False)
    running = start(machine, service)
    service.wait_for(lambda service: any("/status/" in call for call in service.calls))
    running.kill()
    running.end()
    submits = len(service.submits)
    service.set(state="")
    ended = run(machine, service)
    assert ended.code == 0, ended.err
    check_all(machine, service, 10)
    assert len(service.submits) == submits, "also where the service knows no keys"
    assert_no_doubt(machine, 10)


def test_only_rows_that_are_to_be_sent_are_told_of_as_left_at_the_service(
    machine: CommandLine, service: ScriptedService
) -> None:
    machine.write("in.jsonl", rows(10))
    service.set(state="working")
    running = start(machine, service)
    service.wait_for(lambda service: any("/status/" in call for call in service.calls))
    running.kill()
    running.end()
    service.set(state="")
    machine.write("other.jsonl", [chat_row(f"another {number}") for number in range(3)])
    other = machine("run", "other.jsonl", "-o", "other_out.jsonl", "--service", service.base_url)
    assert (other.code, "when an earlier run ended" in other.err) == (0, False), other.err
    ended = run(machine, service)
    assert "10 rows that are to be sent were at the service when an earlier run ended" in ended.err
    check_texts = [content(line) for line in machine.lines()]
    assert check_texts == [f"echo w{number}" for number in range(10)]


def test_the_second_interrupt_cancels_what_is_open(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", rows(10))
    service.set(state="working")
    running = start(machine, service)
    service.wait_for(lambda service: any("/status/" in call for call in service.calls))
    running.interrupt()
    running.wait_for("stopping")
    running.interrupt()
    ended = running.end()
    assert ended.code == 130, ended.err
    assert sorted(service.cancelled) == sorted(service.batches)
    service.set(state="")
    assert run(machine, service).code == 0
    check_all(machine, service, 10)


def test_a_key_that_is_refused_pauses(machine: CommandLine, service: ScriptedService) -> None:
    machine.write("in.jsonl", rows(3))
    command = ("run", "in.jsonl", "-o", "out.jsonl", "--service", service.base_url, "--service-key-env", "OTHER")
    ended = machine(*command, OTHER="no")
    assert ended.code == 5, ended.err
    assert not service.submits
    assert machine(*command, OTHER=KEY).code == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--service", "nowhere"), "expected the address of a service"),
        (("--service", "http://127.0.0.1:1", "--simulate"), "--simulate would do nothing"),
        (("--service", "http://127.0.0.1:1", "--service-key-env", "NO_SUCH"), "NO_SUCH is neither set nor in a .env"),
        (("--service-key-env", "X"), "give --service URL too"),
    ],
)
def test_what_cannot_be_is_said_at_once(machine: CommandLine, arguments: tuple[str, ...], said: str) -> None:
    machine.write("in.jsonl", rows(1))
    ended = machine("run", "in.jsonl", "-o", "out.jsonl", *arguments)
    assert ended.code == 2
    assert said in ended.err


def test_through_a_service_of_our_own(tmp_path: Path) -> None:
    """Kinds, flags, whole answers and failures come through as if the rows had gone to the vendor from here."""
    with ScriptedVendor() as vendor, serving(tmp_path / "service", vendor) as service:
        machine = CommandLine(tmp_path / "machine", BATCHWRIGHT_SERVICE_KEY=service.key)
        machine.write(
            "in.jsonl",
            [
                chat_row("plain", "a"),
                chat_row("[[status=400 code=bad]] x", "b"),
                chat_row("[[finish=length]] cut", "c"),
                {"custom_id": "d", "method": "POST", "url": "/v1/embeddings", "body": {"model": "m", "input": "text"}},
                chat_row("[[toolcall]] x", "e"),
            ],
        )
        ended = machine(
            "run", "in.jsonl", "-o", "out.jsonl", "--service", service.base_url, "--mixed-endpoints", "--no-gate"
        )
        assert ended.code == 3, ended.err
        lines = machine.lines()
        assert [line["custom_id"] for line in lines] == ["a", "b", "c", "d", "e"]
        assert [line["ok"] for line in lines] == [True, False, True, True, True]
        assert content(lines[0]) == "plain"
        assert (lines[1]["error"]["kind"], lines[1]["attempts"]) == ("invalid_request", 1)
        assert lines[2]["flags"] == ["truncated"]
        assert lines[4]["response"]["choices"][0]["message"]["tool_calls"]


def test_what_holds_rows_up_at_the_service_is_said_and_shown(tmp_path: Path) -> None:
    with ScriptedVendor() as vendor, serving(tmp_path / "service", vendor) as service:
        machine = CommandLine(tmp_path / "machine", BATCHWRIGHT_SERVICE_KEY=service.key)
        machine.write("in.jsonl", [chat_row('[[status=402 code=no_money message="top up" times=1]] w')])
        running = machine.start("run", "in.jsonl", "-o", "out.jsonl", "--service", service.base_url)
        resume = running.wait_for_match(
            r"is paused at the service: .*quota_exhausted \(402 no_money\): top up; "
            r"once that is put right, this goes on there: batchwright (resume batch_\w+ --service \S+)"
        )
        running.wait_for("in flight; is paused at the service: ")
        assert machine(*resume.split(), "--no-run").code == 0
        ended = running.end()
        assert ended.code == 0, ended.err
        assert len(machine.lines()) == 1


def test_a_kill_through_a_service_of_our_own_sends_nothing_twice(tmp_path: Path) -> None:
    with ScriptedVendor() as vendor, serving(tmp_path / "service", vendor) as service:
        machine = CommandLine(tmp_path / "machine", BATCHWRIGHT_SERVICE_KEY=service.key)
        machine.write("in.jsonl", rows(12))
        command = ("run", "in.jsonl", "-o", "out.jsonl", "--service", service.base_url)
        vendor.set(hold=True)
        running = machine.start(*command)
        running.until(vendor, lambda vendor: bool(vendor.hits))
        running.kill()
        running.end()
        vendor.set(hold=False)
        vendor.release()
        ended = machine(*command)
        assert ended.code == 0, ended.err
        assert [content(line) for line in machine.lines()] == [f"w{number}" for number in range(12)]
        assert sorted(vendor.texts()) == sorted(f"w{number}" for number in range(12))
        assert_no_doubt(machine, 12)


def test_the_second_interrupt_cancels_at_a_service_of_our_own(tmp_path: Path) -> None:
    with ScriptedVendor() as vendor, serving(tmp_path / "service", vendor) as service:
        machine = CommandLine(tmp_path / "machine", BATCHWRIGHT_SERVICE_KEY=service.key)
        machine.write("in.jsonl", rows(5))
        vendor.set(hold=True)
        running = machine.start("run", "in.jsonl", "-o", "out.jsonl", "--service", service.base_url)
        running.until(vendor, lambda vendor: bool(vendor.hits))
        running.interrupt()
        running.wait_for("stopping")
        running.interrupt()
        assert running.end().code == 130
        [batch] = service.get("/v1/ai/batch/list").json()["data"]["items"]
        assert batch["state"] in ("cancelling", "cancelled")
        vendor.release()


def test_a_service_on_the_same_state_folder_counts_once_and_shows_the_run(tmp_path: Path) -> None:
    """Two terminals of one machine: the chunks are the run's, and no batches that a person knows."""
    with ScriptedVendor() as vendor, serving(tmp_path / "service", vendor) as service:
        state = str(service.settings.state_dir)
        machine = CommandLine(tmp_path / "machine", BATCHWRIGHT_SERVICE_KEY=service.key, BATCHWRIGHT_HOME=state)
        machine.write("in.jsonl", rows(30))
        ended = machine("run", "in.jsonl", "-o", "out.jsonl", "--service", service.base_url)
        assert ended.code == 0, ended.err
        listed = [line.split("\t") for line in machine("list").out.splitlines()]
        (run,) = listed
        with_chunks = [line.split("\t")[0] for line in machine("list", "--chunks").out.splitlines()]
        assert len(with_chunks) > 1
        assert run[0] in with_chunks
        assert machine("status", "@last").out.splitlines()[0].split()[-1] == run[0]
        (chunk, *_) = [batch_id for batch_id in with_chunks if batch_id != run[0]]
        assert machine("status", chunk).code == 0, "asked for by its id it is shown"
        answers = [int(line.split("\t")[3]) for line in machine("usage").out.splitlines()]
        assert sum(answers) == 30, "each answer once, under the vendor that gave it"
