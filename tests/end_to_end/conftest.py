from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.command_line import CommandLine
from support.scripted_vendor import ScriptedVendor


@pytest.fixture
def command(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor
