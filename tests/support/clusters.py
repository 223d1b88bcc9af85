"""A Ray cluster of the test's own on loopback, such as stays while commands come and go."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from types import TracebackType

from support.command_line import CommandLine
from support.left_behind import children_of, wait_for_end

SOURCE = Path(__file__).parents[2] / "src"


class StandingCluster:
    def __init__(self, log: Path) -> None:
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            port = int(found.getsockname()[1])
        self.address = f"127.0.0.1:{port}"
        self.variables = {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": secrets.token_hex(32),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # every port on loopback
            "RAY_USAGE_STATS_ENABLED": "0",
        }
        self._port = port
        self._log = log
        self._folder = tempfile.mkdtemp(prefix="ray-")

    def __enter__(self) -> StandingCluster:
        environment = {**os.environ, **self.variables, "PYTHONPATH": str(SOURCE)}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block", "--num-cpus", "2"),
                    *("--node-ip-address", "127.0.0.1", "--port", str(self._port), "--include-dashboard", "false"),
                    *("--temp-dir", self._folder, "--object-store-memory", str(80 << 20)),
                ],
                env=environment,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
                text=True,
            )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if "Ray runtime started" in line:
                return self
        raise AssertionError(f"it did not start: {self._log.read_text()}")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        everything = list(children_of(self._process.pid))
        self._process.terminate()
        self._process.communicate(timeout=60)
        wait_for_end(everything)
        shutil.rmtree(self._folder, ignore_errors=True)

    def other_code(self, folder: Path, command: CommandLine) -> str:
        """A PYTHONPATH where the package is as here but for a line."""
        shutil.copytree(SOURCE, folder, ignore=shutil.ignore_patterns("__pycache__"))
        with (folder / "batchwright" / "__init__.py").open("a") as file:
            file.write("\n# another version\n")
        return command.environment["PYTHONPATH"].replace(str(SOURCE), str(folder))
