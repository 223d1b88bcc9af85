"""What each way to end says, and the code it has."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from batchwright.core import errors
from batchwright.runner.outcome import RunOutcome
from support.cli_machine import Invoke, Machine

FINDING = errors.Finding(line=7, code="url_mismatch", message="another endpoint")


@pytest.fixture(autouse=True)
def rows(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n")


@pytest.mark.parametrize("code", [0, 1, 2, 3, 4, 5, 130])
def test_a_runs_code_is_the_commands(machine: Machine, invoke: Invoke, code: int) -> None:
    machine.outcome = RunOutcome(exit_code=code)
    assert invoke("run", "rows.jsonl").exit_code == code


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (errors.UsageError("this does not fit"), 2, "Error: this does not fit"),
        (errors.InputRefused("3 rows", (FINDING,), 3), 2, "line 7: another endpoint [url_mismatch]"),
        (errors.InputRefused("3 rows", (FINDING,), 3), 2, "and 2 more"),
        (errors.WrongState("it runs"), 2, "Error: it runs"),
        (errors.VendorUnavailable("set KEY"), 2, "Error: set KEY"),
        (errors.InUse("held"), 2, "Error: held"),
        (errors.BatchPaused("by a person"), 5, "Error: by a person"),
        (errors.StoreError("too new"), 1, "Error: too new"),
        (OSError(28, "No space left on device"), 1, "No space left on device"),
        (ZeroDivisionError("oh"), 1, "a fault of batchwright itself: ZeroDivisionError: oh"),
        (KeyboardInterrupt(), 130, "Interrupted."),
    ],
)
def test_every_error_has_its_code_and_its_words(
    machine: Machine, invoke: Invoke, error: BaseException, code: int, said: str
) -> None:
    machine.outcome = error
    result = invoke("run", "rows.jsonl")
    assert (result.exit_code, result.stdout) == (code, "")
    assert said in result.stderr
    assert "Traceback" not in result.stderr


def test_where_a_fault_of_ours_happened_is_shown_on_demand(
    machine: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.outcome = ZeroDivisionError("oh")
    assert "BATCHWRIGHT_DEBUG=1" in invoke("run", "rows.jsonl").stderr
    monkeypatch.setenv("BATCHWRIGHT_DEBUG", "1")
    shown = invoke("run", "rows.jsonl").stderr
    assert "Traceback (most recent call last)" in shown
    assert "ZeroDivisionError: oh" in shown


def test_usage_errors_are_2(machine: Machine, invoke: Invoke) -> None:
    for arguments in (["nothing"], ["run"], ["run", "a", "--nothing"], []):
        assert invoke(*arguments).exit_code == 2
    assert "Did you mean 'retry'?" in invoke("rety").stderr


MANY_ROWS = """
import sys
from contextlib import asynccontextmanager
import asyncio
from batchwright import assemble
from batchwright.cli import main
from batchwright.core.failures import Flag
from support.cli_machine import Machine

machine = Machine()
asyncio.run(machine.add("batch_many", *[Flag.PLAIN] * 20000))

@asynccontextmanager
async def open_batches(settings, *, say):
    yield machine

assemble.open_batches = open_batches
sys.argv[1:] = ["rows", "--limit", "0", *sys.argv[1:]]
main()
"""


@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_reader_that_has_seen_enough_ends_it_without_a_word(tmp_path: Path, form: list[str]) -> None:
    tests = Path(__file__).parents[1]
    tree = os.pathsep.join([str(tests), str(tests.parent / "src")])
    environment = {**os.environ, "PYTHONPATH": tree, "HOME": str(tmp_path), "BATCHWRIGHT_HOME": str(tmp_path)}
    command = [sys.executable, "-c", MANY_ROWS, *form]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, cwd=tmp_path
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0
