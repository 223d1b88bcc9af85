"""Checks the main job's answers: python tools/check_tickets.py answers.jsonl

Every ticket has one answered line, in the order of the rows; at least 26 of 40 are labelled as a person did. 38 were
seen with one to six slots, 36 with eight; chance is 14. The model's wording may differ between machines, so the bar is
low. Standard library only.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
LEAST_RIGHT = 26


def main() -> int:
    answers = [json.loads(line) for line in Path(sys.argv[1]).read_text(encoding="utf-8").split("\n") if line]
    rows = [json.loads(line) for line in (EXAMPLES / "tickets.jsonl").read_text(encoding="utf-8").split("\n") if line]
    labels = (EXAMPLES / "tickets.labels").read_text(encoding="utf-8").split()
    asked, answered = ([line["custom_id"] for line in lines] for lines in (rows, answers))
    if answered != asked:
        raise SystemExit(f"expected the answers to {len(asked)} tickets in order, found {len(answered)}: {answered}")
    if failed := [line for line in answers if not line["ok"]]:
        raise SystemExit(f"{len(failed)} rows failed; the first: {json.dumps(failed[0])}")
    given = [sentiment(line["result"]["content"]) for line in answers]
    right = sum(one == label for one, label in zip(given, labels, strict=True))
    print(f"{len(answers)} answers in order, {right} labelled as a person did (at least {LEAST_RIGHT} are expected)")
    return 0 if right >= LEAST_RIGHT else 1


def sentiment(content: str) -> str:
    """What the answer says; one that is not of the asked form counts as wrong."""
    try:
        return str(json.loads(content)["sentiment"])
    except (ValueError, TypeError, KeyError):
        return ""


if __name__ == "__main__":
    sys.exit(main())
