"""The example scripts say how they are called where they are called otherwise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_without_arguments_a_script_prints_its_usage(name: str) -> None:
    ended = subprocess.run(
        [sys.executable, str(EXAMPLES / name)], check=False, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode in (1, 2)
    assert f"usage: python {name} " in ended.stderr
    assert "Traceback" not in ended.stderr
