"""The scripted vendor in a process of its own, for tests whose load must not share the test's interpreter."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from support.patience import PATIENCE_S


class VendorProcess:
    def __init__(self, *, port: int = 0, seed: int = 1) -> None:
        self._arguments = [str(port), str(seed)]

    def __enter__(self) -> VendorProcess:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "support.scripted_vendor", *self._arguments],
            cwd=Path(__file__).parents[1],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.base_url = str(self._read()["base_url"])
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate(timeout=PATIENCE_S)

    def set(self, **changes: object) -> None:
        """Changes modes; returns when they hold."""
        self._order({"set": changes})

    def release(self) -> None:
        self._order({"release": True})

    def account(self, *, hits: bool = False) -> dict[str, Any]:
        """`count`, `peak`, `in_flight`, and with `hits` a list of [at, text, outcome]."""
        return self._order({"hits": hits})

    def _order(self, order: dict[str, object]) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the scripted vendor's process has ended")
        account: dict[str, Any] = json.loads(line)
        return account
