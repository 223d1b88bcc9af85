"""The command as people run it: a process of its own, in a folder and with a state folder of the test's own."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.patience import PATIENCE_S
from support.scripted_vendor import ScriptedVendor


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    code: int
    """As `subprocess` gives it: -9 for a process that was killed."""
    out: str
    err: str

    @property
    def report(self) -> dict[str, Any]:
        """Of a command with `--json`."""
        report: dict[str, Any] = json.loads(self.out)
        return report

    @property
    def first_line(self) -> str:
        """The first line of the report: the outcome."""
        lines = self.err.splitlines()
        return next(line for line in lines if " of " in line and (" ok" in line or "failed" in line))


class Started:
    """A command that is running; what it writes is kept."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._texts = {"out": "", "err": ""}
        self._changed = threading.Condition()
        self._readers = [
            threading.Thread(target=self._read, args=(name, stream), daemon=True)
            for name, stream in (("out", process.stdout), ("err", process.stderr))
        ]
        for reader in self._readers:
            reader.start()

    def _read(self, name: str, stream: Any) -> None:
        for line in iter(stream.readline, b""):
            with self._changed:
                self._texts[name] += line.decode()
                self._changed.notify_all()
        with self._changed:
            self._changed.notify_all()

    @property
    def said(self) -> str:
        """What its standard error holds so far."""
        with self._changed:
            return self._texts["err"]

    def wait_for(self, text: str) -> None:
        """Until its standard error holds this."""
        with self._changed:
            arrived = self._changed.wait_for(
                lambda: text in self._texts["err"] or not any(reader.is_alive() for reader in self._readers), PATIENCE_S
            )
            if not arrived or text not in self._texts["err"]:
                raise AssertionError(f"it never said {text!r}, but: {self._texts['err']}")

    def wait_for_match(self, pattern: str) -> str:
        """Until its standard error has a match; returns the pattern's first group."""
        with self._changed:
            self._changed.wait_for(
                lambda: re.search(pattern, self._texts["err"]) or not any(one.is_alive() for one in self._readers),
                PATIENCE_S,
            )
            found = re.search(pattern, self._texts["err"])
            if found is None:
                raise AssertionError(f"it never said {pattern!r}, but: {self._texts['err']}")
            return found[1]

    def until(self, vendor: ScriptedVendor, condition: Callable[[ScriptedVendor], bool]) -> None:
        """Until this holds of what the vendor has seen. Fails at once when the command ends before."""
        for _ in range(int(PATIENCE_S)):
            try:
                vendor.wait_for(condition, 1.0)
            except TimeoutError:
                if self.process.poll() is not None:
                    break
            else:
                return
        said = self._texts["err"]
        raise AssertionError(f"after {len(vendor.hits)} requests, code {self.process.poll()}; it said: {said}")

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        self.process.kill()

    def end(self, timeout_s: float = PATIENCE_S) -> Ended:
        try:
            code = self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.process.kill()
            raise AssertionError(f"it did not end within {timeout_s} s; it said: {self._texts['err']}") from None
        for reader in self._readers:
            reader.join(PATIENCE_S)
        return Ended(code=code, out=self._texts["out"], err=self._texts["err"])


class CommandLine:
    """A folder to work in. Nothing of this machine's settings reaches the commands."""

    def __init__(self, folder: Path, *, program: Sequence[str] = ("-m", "batchwright"), **variables: str) -> None:
        """`program`: what Python runs in place of the command (`support.watched_command`)."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._program = program
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("BATCHWRIGHT_", "OPENAI_"))}
        tests = Path(__file__).parents[1]
        self.environment = {
            **kept,
            "HOME": str(folder),
            "XDG_CONFIG_HOME": str(folder / "config"),
            "BATCHWRIGHT_HOME": str(self.state),
            "NO_COLOR": "1",
            "PYTHONPATH": os.pathsep.join([str(tests), str(tests.parent / "src")]),  # this tree, whatever is installed
            **variables,
        }

    @property
    def state(self) -> Path:
        return self.folder / "state"

    def start(
        self,
        *arguments: str,
        program: Sequence[str] | None = None,
        **variables: str,
    ) -> Started:
        process = subprocess.Popen(
            [sys.executable, *(program or self._program), *arguments],
            cwd=self.folder,
            env={**self.environment, **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        return Started(process)

    def __call__(self, *arguments: str, **variables: str) -> Ended:
        return self.start(*arguments, **variables).end()

    def write(self, name: str, rows: Sequence[object]) -> str:
        """A rows file; a row is a string (as it stands) or an object."""
        lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
        (self.folder / name).write_bytes("".join(f"{line}\n" for line in lines).encode())
        return name

    def lines(self, name: str = "out.jsonl") -> list[dict[str, Any]]:
        data = (self.folder / name).read_bytes()
        return [json.loads(line) for line in data.splitlines()]


def chat_row(text: str, custom_id: str | None = None, *, model: str = "m", **body: object) -> dict[str, object]:
    """A line as OpenAI's batches have it."""
    whole = {"model": model, "messages": [{"role": "user", "content": text}], **body}
    row: dict[str, object] = {"custom_id": custom_id} if custom_id is not None else {}
    return {**row, "method": "POST", "url": "/v1/chat/completions", "body": whole}


def content(line: dict[str, Any]) -> Any:
    """A success's text."""
    return line["result"]["content"]
