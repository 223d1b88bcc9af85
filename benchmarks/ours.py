"""Batchwright as it is measured: the command of this checkout, on a fresh state folder each time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from checks import check_answers
from measure import FEW_ROWS, MANY_ROWS, Cost, Marginal, marginal, measure
from rows import write_rows

CONCURRENCY = 512


@dataclass(frozen=True, slots=True)
class Bench:
    """A working folder: rows files are kept in it from one time to the next, everything else is made anew."""

    folder: Path

    def rows(self, count: int) -> Path:
        path = self.folder / f"rows-{count}.jsonl"
        write_rows(path, count)
        return path

    def environ(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """Without keys, proxies and settings of whoever measures; byte code is cached, as it is after a first use."""
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LC_ALL", "TMPDIR")}
        return {
            **kept,
            "HOME": str(self.folder / "home"),
            "BATCHWRIGHT_HOME": str(self.folder / "state"),
            "PYTHONPYCACHEPREFIX": str(self.folder / "bytecode"),
            **(extra or {}),
        }

    def fresh_state(self) -> None:
        shutil.rmtree(self.folder / "state", ignore_errors=True)
        (self.folder / "home").mkdir(parents=True, exist_ok=True)

    def warm_up(self) -> None:
        """Compiles the package's byte code once, so that no measured run does."""
        self.fresh_state()
        every = "import batchwright.assemble, batchwright.cli.run, batchwright.cli.validate"
        subprocess.run([sys.executable, "-c", every], check=True, env=self.environ())

    def command(self, count: int, base_url: str, *extra: str) -> list[str]:
        return [
            *batchwright("run", str(self.rows(count)), "-o", str(self.output), "--base-url", base_url),
            *("--api-key-env", "", "-c", str(CONCURRENCY), "--progress", "plain", *extra),
        ]

    @property
    def output(self) -> Path:
        return self.folder / "answers.jsonl"

    def run(
        self, count: int, base_url: str, environ: Mapping[str, str] | None = None, *, options: Sequence[str] = ()
    ) -> Cost:
        """One whole `batchwright run`, looked at. Raises CommandFailed."""
        command = self.command(count, base_url, *options)
        self.fresh_state()
        cost = measure(command, cwd=self.folder, environ=self.environ(environ))
        check_answers(self.output, count)
        return cost

    def marginal(self, base_url: str, environ: Mapping[str, str] | None = None) -> Marginal:
        few = self.run(FEW_ROWS, base_url, environ)
        many = self.run(MANY_ROWS, base_url, environ)
        return marginal(few, many, MANY_ROWS - FEW_ROWS)


def batchwright(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "batchwright", *arguments]
