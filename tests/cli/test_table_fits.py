"""Tables on terminals of any width: what is cut, what is said shorter, what leaves, and that nothing wraps."""

from __future__ import annotations

import asyncio

import pytest

from batchwright.cli import screen
from batchwright.cli.table import Cell, Column, cut, fit, width_of, wrap
from batchwright.core.failures import FailureKind, Flag
from batchwright.core.records import UsageKey, UsageSum
from support.cli_machine import Invoke, Machine

LONG_ID = "batch_0123456789abcdef01234567"
COLUMNS = (
    Column(heading="BATCH"),
    Column(heading="TOKENS IN", short="IN", leaves=1),
    Column(heading="SEEN", leaves=2),
    Column(heading="NAME", cut_to=5),
    Column(heading="PIPE", pipe_only=True),
)
ROW = (
    Cell(LONG_ID, LONG_ID, short="01234567"),
    Cell("1,234", "1234", right=True),
    Cell("yes", "yes"),
    Cell("a name of some length", "-"),
    Cell("hidden", "hidden"),
)


@pytest.mark.parametrize(
    ("room", "line", "left_out"),
    [
        (80, f"{LONG_ID}      1,234  yes   a name of some length", ()),
        (60, f"{LONG_ID}      1,234  yes   a name of …", ()),
        (40, "01234567  1,234  yes   a name of some l…", ()),
        (28, "01234567  1,234  yes   a na…", ()),
        (27, "01234567  1,234  a name of…", ("SEEN",)),
        (19, "01234567  a name o…", ("SEEN", "TOKENS IN")),
        (10, "01234567 …", ("SEEN", "TOKENS IN")),
    ],
)
def test_what_gives_way_first(room: int, line: str, left_out: tuple[str, ...]) -> None:
    fitted = fit(COLUMNS, [ROW], room)
    assert (fitted.lines[1], fitted.left_out) == (line, left_out)
    assert all(width_of(one) <= room for one in fitted.lines)


def test_wide_and_joining_characters_are_counted_as_the_terminal_does() -> None:
    assert [width_of(text) for text in ("abc", "日本", "e\u0301", "한글!")] == [3, 4, 1, 5]
    assert cut("日本語", 5) == "日本…"
    assert cut("日本語", 4) == "日…"
    fitted = fit((Column(heading="A", cut_to=4), Column(heading="B")), [(Cell("日本語", ""), Cell("x", ""))], 8)
    assert fitted.lines == ["A      B", "日本…  x"]


def test_long_values_go_on_below_their_beginning() -> None:
    assert wrap("one two three", 8) == ["one two", "three"]
    assert wrap("abcdefghij k", 4) == ["abcd", "efgh", "ij k"]
    assert wrap("", 4) == [""]


@pytest.fixture
def machine_of_long_names(machine: Machine) -> Machine:
    asyncio.run(machine.add(LONG_ID, Flag.PLAIN, Flag.PLAIN, FailureKind.TIMEOUT, None))
    asyncio.run(machine.add("batch_89abcdef0123456789abcdef", Flag.PLAIN))
    key = UsageKey(day="2026-03-02", account="K", model="some/very-long-model-name-instruct-2026-05-01", vendor="acme")
    machine.used = [(key, UsageSum(answers=1_234, prompt_tokens=3_900_000, completion_tokens=1_030_000))]
    return machine


@pytest.mark.parametrize("columns", [60, 80, 120])
@pytest.mark.parametrize("command", ["list", "usage", "rows 0123", "status 0123"])
def test_no_line_of_a_table_is_wider_than_the_terminal(
    machine_of_long_names: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch, command: str, columns: int
) -> None:
    monkeypatch.setattr(screen, "is_table", lambda: True)
    monkeypatch.setenv("COLUMNS", str(columns))
    shown = invoke(*command.split())
    assert shown.exit_code == 0
    assert [line for line in shown.stdout.splitlines() if width_of(line) > columns] == []
    if command == "list":
        heading, _, first = shown.stdout.splitlines()
        for word in ("BATCH", "STATE", "OK", "FAILED", "TOTAL", "NAME"):
            assert word in heading, word
        assert first.startswith(LONG_ID if columns == 120 else "01234567  ")
        assert "running (idle)" in first
        assert ("No room for" in shown.stderr) == (columns < 120)


def test_in_a_pipe_values_are_whole(machine_of_long_names: Machine, invoke: Invoke) -> None:
    _, line = invoke("list").stdout.splitlines()
    fields = line.split("\t")
    assert (fields[0], fields[1], fields[-4:]) == (LONG_ID, "running", ["tickets.jsonl", "no", "local", "0"])
    assert invoke("usage").stdout.split("\t")[2] == "some/very-long-model-name-instruct-2026-05-01"


def test_a_batch_that_nobody_works_on_says_so_and_what_goes_on(
    machine_of_long_names: Machine, invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = dict(line.split("\t") for line in invoke("status", "0123").stdout.splitlines())
    assert (facts["state"], facts["worked_on_now"]) == ("running", "no")
    assert facts["goes_on_with"] == f"batchwright resume {LONG_ID}"
    monkeypatch.setattr(screen, "is_table", lambda: True)
    assert f"batchwright resume {LONG_ID}" in invoke("list").stderr
    machine_of_long_names.batches[LONG_ID].live = True
    assert "(idle)" not in invoke("list").stdout
    assert "goes on with" not in invoke("status", "0123").stdout
