"""A state folder and settings of the test's own, and a machine whose batches are in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from batchwright import assemble
from batchwright.cli.group import batchwright as command
from batchwright.ports.batches import Batches
from batchwright.settings import Settings
from support.cli_machine import Invoke, Machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    made = Machine()

    @asynccontextmanager
    async def open_batches(settings: Settings, *, say: Callable[[str], None]) -> AsyncIterator[Batches]:
        yield made

    def asked(name: str) -> Callable[..., Any]:
        async def ask(settings: Settings, *arguments: Any, **named: Any) -> Any:
            made.asked.append((name, {"settings": settings, "arguments": arguments, **named}))
            if isinstance(made.outcome, BaseException):
                raise made.outcome
            return made.outcome.exit_code if name == "work" else made.outcome

        return ask

    monkeypatch.setattr(assemble, "open_batches", open_batches)
    for name in ("run", "go_on", "look_on", "export", "work"):
        monkeypatch.setattr(assemble, name, asked(name))
    return made


@pytest.fixture
def invoke(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Invoke:
    """Runs a command in a folder of the test's own, with nothing of this machine's settings."""
    for name in list(os.environ):
        if name.startswith(("BATCHWRIGHT_", "OPENAI_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("BATCHWRIGHT_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, **named: Any) -> Result:
        monkeypatch.setattr(sys, "argv", ["batchwright", *arguments])
        return CliRunner().invoke(command, list(arguments), prog_name="batchwright", **named)

    return run
