"""The example script, as it stands, against a real `batchwright serve`: only its base URL and key are ours."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

from support.command_line import CommandLine, Ended
from support.scripted_vendor import ScriptedVendor

SCRIPT = Path(__file__).parents[2] / "examples" / "infrai_batch.py"


@contextmanager
def served(command: CommandLine, *options: str) -> Iterator[dict[str, str]]:
    """The variables that the script wants."""
    process = command.start("serve", "--port", "0", *options)
    try:
        process.wait_for("The first key")
        said = process.said
        address, key = re.search(r"http://\S+?(?=;)", said), re.search(r"bw_[0-9a-f]{64}", said)
        assert address is not None, said
        assert key is not None, said
        yield {"INFRAI_BASE_URL": address[0], "INFRAI_API_KEY": key[0]}
        process.process.send_signal(signal.SIGTERM)
        assert process.end().code == 0
    finally:
        process.kill()


def run_script(command: CommandLine, variables: dict[str, str], prompts: list[str], *model: str) -> Ended:
    (command.folder / "prompts.txt").write_text("".join(f"{prompt}\n" for prompt in prompts))
    ended = subprocess.run(
        [sys.executable, str(SCRIPT), "prompts.txt", "answers.jsonl", *model],
        cwd=command.folder,
        env=command.environment | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return Ended(code=ended.returncode, out=ended.stdout, err=ended.stderr)


def answers(command: CommandLine) -> list[dict[str, Any]]:
    return command.lines("answers.jsonl")


def test_it_runs_as_it_stands_against_the_simulator(command: CommandLine) -> None:
    prompts = [f"prompt {number}" for number in range(230)]
    with served(command, "--simulate") as variables:
        ended = run_script(command, variables, prompts)
        assert ended.code == 0, ended.err
    assert [line["prompt"] for line in answers(command)] == prompts
    spent = re.fullmatch(r"230 of 230 ok, \$(\S+)\n", ended.out)
    assert spent is not None, ended.out
    exported = (command.folder / "answers.1.jsonl").read_text().splitlines()
    costs = [json.loads(line, parse_float=Decimal)["cost_usd"] for line in exported]
    assert (len(costs), sum(costs)) == (230, Decimal(spent[1])), "the export adds up to what the pages did"


def test_it_submits_failed_rows_again_under_their_own_places(command: CommandLine, vendor: ScriptedVendor) -> None:
    prompts = ["a", "[[status=400 times=1]] b", "c", "[[status=400]] d", "[[status=400 times=2]] e"]
    with served(command, "--base-url", vendor.base_url) as variables:
        ended = run_script(command, variables, prompts, "m")
    assert ended.code == 1
    assert "prompt 4: INVALID_REQUEST: scripted failure" in ended.err
    lines = answers(command)
    assert [line["answer"] for line in lines] == ["a", "b", "c", None, "e"]
    assert [bool(line["error"]) for line in lines] == [False, False, False, True, False]
    assert ended.out.startswith("4 of 5 ok, ")
    exports = [len((command.folder / f"answers.{attempt}.jsonl").read_text().splitlines()) for attempt in (1, 2, 3)]
    assert exports == [5, 3, 2]


def test_it_says_what_was_refused(command: CommandLine) -> None:
    with served(command, "--simulate") as variables:
        ended = run_script(command, variables | {"INFRAI_API_KEY": "bw_nothing"}, ["a"])
    assert ended.code == 1
    assert ended.err.startswith("UNAUTHORIZED: ")
