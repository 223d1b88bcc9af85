"""`delete`: what it asks, what it refuses, and that nothing of a batch is left but its usage, also after a kill."""

from __future__ import annotations

import asyncio
import json
import shutil
import signal
from contextlib import closing
from pathlib import Path

import pytest

from batchwright.core.failures import Flag
from batchwright.store.sqlite import load_sqlite
from support.cli_machine import Invoke, Machine
from support.command_line import CommandLine

ENDED, OPEN = "batch_aa00", "batch_bb00"


@pytest.fixture
def two(machine: Machine) -> Machine:
    asyncio.run(machine.add(ENDED, Flag.PLAIN))
    asyncio.run(machine.add(OPEN, Flag.PLAIN, None))
    return machine


def test_nobody_to_ask_needs_a_yes(two: Machine, invoke: Invoke) -> None:
    refused = invoke("delete", "aa")
    assert (refused.exit_code, list(two.batches)) == (2, [ENDED, OPEN])
    assert "--yes" in refused.stderr
    assert invoke("delete", "aa", "aa", "--yes").exit_code == 0
    assert list(two.batches) == [OPEN]


def test_forget_is_the_same_word(two: Machine, invoke: Invoke) -> None:
    assert invoke("forget", "aa", "--yes").exit_code == 0
    assert list(two.batches) == [OPEN]
    assert "forget" not in invoke("--help").stdout
    assert "Did you mean 'delete'" in invoke("delet").stderr


def test_one_that_has_not_ended_keeps_all(two: Machine, invoke: Invoke) -> None:
    refused = invoke("delete", "aa", "bb", "--yes")
    assert (refused.exit_code, list(two.batches)) == (2, [ENDED, OPEN])
    assert f"batchwright cancel {OPEN}" in refused.stderr
    assert "Nothing was deleted." in refused.stderr


def test_one_that_is_in_use_keeps_all(two: Machine, invoke: Invoke) -> None:
    asyncio.run(two.add("batch_cc00", Flag.PLAIN))
    two.in_use.add("batch_cc00")
    refused = invoke("delete", "aa", "cc", "--yes")
    assert (refused.exit_code, list(two.batches)) == (2, [ENDED, OPEN, "batch_cc00"])
    assert "batch_cc00 is in use" in refused.stderr
    assert "Nothing was deleted." in refused.stderr
    unknown = invoke("delete", "aa", "zz", "--yes")
    assert (unknown.exit_code, "Nothing was deleted." in unknown.stderr, ENDED in two.batches) == (2, True, True)


def test_one_that_is_taken_meanwhile_says_what_is_left(
    two: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("batch_cc00", "batch_dd00"):
        asyncio.run(two.add(name, Flag.PLAIN))

    def agree() -> bool:
        two.in_use.add("batch_cc00")
        return True

    monkeypatch.setattr("batchwright.cli.delete.can_ask", agree)
    broken = invoke("delete", "aa", "cc", "dd", input="y\n")
    assert (broken.exit_code, list(two.batches)) == (2, [OPEN, "batch_cc00", "batch_dd00"])
    assert f"{ENDED}: deleted." in broken.stderr
    assert "batch_cc00 is in use" in broken.stderr
    assert f"Deleted before that: {ENDED}. Not tried: batch_dd00." in broken.stderr


@pytest.mark.parametrize(("answer", "left"), [("n\n", [ENDED, OPEN]), ("\n", [ENDED, OPEN]), ("y\n", [OPEN])])
def test_a_person_is_asked(
    two: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, answer: str, left: list[str]
) -> None:
    monkeypatch.setattr("batchwright.cli.delete.can_ask", lambda: True)
    asked = invoke("delete", "aa", input=answer)
    assert (asked.exit_code, list(two.batches)) == (0, left)
    assert "tickets.jsonl, 1 row, 1 answer" in asked.stderr


def rows_of(state: Path, batch_id: str) -> dict[str, int]:
    """SQL rows that name the batch, by table."""
    with closing(load_sqlite().connect(state / "batchwright.sqlite")) as connection:
        tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        named = {}
        for table in tables:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
            if "batch_id" in columns:
                query = f"SELECT count(*) FROM {table} WHERE batch_id = ?"
                named[table] = connection.execute(query, (batch_id,)).fetchone()[0]
    return {table: count for table, count in named.items() if count}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder in which two files were run, to be copied, and their batches' ids."""
    command = CommandLine(tmp_path_factory.mktemp("ran"))
    ids = []
    for name in ("one", "two"):
        command.write(f"{name}.jsonl", [{"prompt": f"{name} {row}"} for row in range(250)])
        run = ("run", f"{name}.jsonl", "-o", f"{name}.out", "-m", "m", "--simulate", "--json", "--progress", "none")
        watched = ("-m", "support.watched_command", str(command.folder / "account"), "-")
        ids.append(command.start(*run, program=watched).end().report["batch_id"])
    return command.folder, ids


@pytest.mark.parametrize(
    "kill_at", ["-", "before drop step", "after drop step", "before drop step:2", "after drop step:2"]
)
def test_of_a_deleted_batch_nothing_is_left_but_its_usage(
    ran: tuple[Path, list[str]], tmp_path: Path, kill_at: str
) -> None:
    folder, ids = ran
    command = CommandLine(shutil.copytree(folder, tmp_path, dirs_exist_ok=True))
    used = command("usage", "--json").out
    assert rows_of(command.state, ids[0])["segment"] == 3
    watched = ("-m", "support.watched_command", str(tmp_path / "account"), kill_at)
    ended = command.start("delete", ids[0], "--yes", program=watched).end()
    assert ended.code == (0 if kill_at == "-" else -signal.SIGKILL)
    if kill_at in ("before drop step", "after drop step"):
        assert rows_of(command.state, ids[0])["segment"] == 3, "hidden, and nothing removed yet"
    assert command("status", ids[0]).code == 2
    assert [json.loads(line)["batch_id"] for line in command("list", "--json").out.splitlines()] == [ids[1]]
    assert rows_of(command.state, ids[0]) == {}
    assert command("usage", "--json").out == used
    assert len(command("export", ids[1]).out.splitlines()) == 250
    assert len((tmp_path / "one.out").read_bytes().splitlines()) == 250, "files that were written stay"
