"""Was the work done? Every measured run is looked at; the figure of a run that lost a row is worth nothing."""

from __future__ import annotations

import json
from pathlib import Path

from measure import CommandFailed


def check_answers(output: Path, rows: int) -> None:
    """Ours: one line a row, in the order of the rows, each `ok`. Raises CommandFailed."""
    index = -1
    with output.open("rb") as lines:
        for index, line in enumerate(lines):
            if not line.startswith(b'{"ok":true,"request_index":%d,"custom_id":"ticket-%07d",' % (index, index)):
                raise CommandFailed(f"{output}: line {index + 1} is not row {index}'s answer: {line[:120]!r}")
            if index % 1000 == 0 and json.loads(line)["response"]["object"] != "chat.completion":
                raise CommandFailed(f"{output}: line {index + 1} holds no chat completion")
    if index + 1 != rows:
        raise CommandFailed(f"{output}: {index + 1} lines for {rows} rows")


def check_competitor(output: Path, rows: int) -> None:
    """Theirs: [index, _, answer] a line, in any order, each row once. Raises CommandFailed."""
    seen = bytearray(rows)
    with output.open("rb") as lines:
        for line in lines:
            index, _, answer = json.loads(line)
            if seen[index] or not answer["choices"][0]["message"]["content"]:
                raise CommandFailed(f"{output}: row {index} is there twice or has no answer")
            seen[index] = 1
    if sum(seen) != rows:
        raise CommandFailed(f"{output}: {sum(seen)} answers for {rows} rows")
