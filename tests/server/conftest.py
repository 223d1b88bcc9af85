from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.scripted_vendor import ScriptedVendor
from support.service import RunningService, serving


@pytest.fixture
def service(tmp_path: Path) -> Iterator[RunningService]:
    """With the simulator."""
    with serving(tmp_path) as service:
        yield service


@pytest.fixture
def vendor() -> Iterator[ScriptedVendor]:
    with ScriptedVendor() as vendor:
        yield vendor


@pytest.fixture
def scripted(tmp_path: Path, vendor: ScriptedVendor) -> Iterator[RunningService]:
    """With a vendor that does what rows tell it to."""
    with serving(tmp_path, vendor) as service:
        yield service
