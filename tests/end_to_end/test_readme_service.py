"""The README's "A service for colleagues", as a reader types it: only the port and the key are the test's own."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from support.command_line import CommandLine

README = Path(__file__).parents[2] / "README.md"
SECTION = re.compile(r"^## A service for colleagues\n(.*?)^## ", re.M | re.S)
SHELL = re.compile(r"^```sh\n(.*?)^```$", re.M | re.S)


def blocks() -> list[str]:
    section = SECTION.search(README.read_text(encoding="utf-8"))
    assert section is not None
    return SHELL.findall(section[1])


def typed(text: str, variables: dict[str, str]) -> list[dict[str, Any]]:
    """What a block of commands answers, without its line that sets the address and key of the page."""
    commands = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("export "))
    ended = subprocess.run(
        ["bash", "-ec", commands], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.returncode == 0, ended.stderr
    decoder, found, place = json.JSONDecoder(), [], 0
    while place < len(ended.stdout.rstrip()):
        value, place = decoder.raw_decode(ended.stdout, place)
        found.append(value)
    return found


@pytest.mark.skipif(shutil.which("curl") is None, reason="the README's commands are curl's")
def test_its_commands_work_as_they_are_printed(command: CommandLine) -> None:
    serve, submit, read = blocks()
    words = serve.partition("#")[0].split()[1:]
    process = command.start(*words, "--port", "0")
    try:
        process.wait_for("The first key")
        address, key = re.search(r"http://\S+?(?=;)", process.said), re.search(r"bw_[0-9a-f]{64}", process.said)
        assert address is not None, process.said
        assert key is not None, process.said
        variables = command.environment | {"INFRAI_BASE_URL": address[0], "INFRAI_API_KEY": key[0]}
        submitted, listed = typed(submit, variables)
        assert submitted["ok"], submitted
        batch_id = submitted["data"]["batch_id"]
        assert [batch["batch_id"] for batch in listed["data"]["items"]] == [batch_id]
        variables["ID"] = batch_id
        while not (answers := typed(read, variables))[0]["data"]["terminal"]:
            pass  # the first command of the block holds its answer until something moves
        status, results, line = answers
        assert status["data"]["state"] == "completed"
        assert [item["ok"] for item in results["data"]["items"]] == [True]
        assert line["result"] == results["data"]["items"][0]["result"]
        process.process.send_signal(signal.SIGTERM)
        assert process.end().code == 0
    finally:
        process.kill()
