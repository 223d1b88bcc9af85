"""Rows for the benchmarks: OpenAI batch lines of about 1 KB each, the same ones for the same number every time.

python benchmarks/rows.py 50000 rows.jsonl
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path

LINE_BYTES = 1000
TOPICS = ("parcel", "invoice", "router", "password", "refund", "café bill", "Größe", "配送", "screen", "warranty")
OPENINGS = (
    "I ordered the {topic} on the {day}th and",
    "Could somebody look at my {topic}, because",
    "Third message about the {topic}:",
    "Thank you for the {topic}; still,",
    "My colleague says the {topic} was fine, but",
    "For {day} days now the {topic} has been a riddle:",
)
CLAUSES = (
    "nobody picks up the phone after {hour} o'clock",
    "the page goes blank as soon as I press continue",
    "it came a day early and was packed with care",
    "the amount on my card is {euros} euros higher than agreed",
    "your colleague explained everything in two minutes",
    "the tracking number {code} is unknown to the carrier",
    "I was asked for the same document {day} times",
    "the new version is quicker than the old one ever was",
    "the lid was cracked and one screw was missing",
    "I would buy it again without thinking twice",
    "the confirmation says {code}, the letter says something else",
    "it restarts by itself every {hour} minutes",
    "the discount of {euros} percent was not applied",
    "after the update my settings were gone",
    "the courier left it with a neighbour I do not know",
    "I got an answer within the hour, which was a nice surprise",
)
SYSTEM = "Read the customer's message and answer with one word: positive, negative or neutral."


def row_lines(count: int, *, seed: int = 20) -> list[bytes]:
    """The lines, each ending in a newline. For a million of them, use `write_rows`."""
    return [_line(number, random.Random(f"{seed}:{number}")) for number in range(count)]


def write_rows(path: Path, count: int, *, seed: int = 20) -> None:
    """Writes the file unless one of this many rows is there already."""
    marker = path.with_suffix(f".{count}-{seed}.done")
    if marker.exists() and path.exists():
        return
    chance = random.Random(seed)
    with path.open("wb") as file:
        for number in range(count):
            file.write(_line(number, chance))
    marker.touch()


def _line(number: int, chance: random.Random) -> bytes:
    values = {
        "topic": chance.choice(TOPICS),
        "day": chance.randrange(2, 29),
        "hour": chance.randrange(1, 24),
        "euros": chance.randrange(2, 900),
        "code": f"{chance.getrandbits(40):010X}",
    }
    pieces = [f"[{number}]", chance.choice(OPENINGS).format(**values)]
    length = 400  # what stands around the text in a line
    while length < LINE_BYTES:
        clause = chance.choice(CLAUSES).format(**values)
        pieces.append(clause + (";" if chance.random() < 0.5 else ", and"))
        length += len(clause) + 4
    body = {
        "model": "gpt-4o-mini",
        "messages": [{"role": "system", "content": SYSTEM}, {"role": "user", "content": " ".join(pieces) + " end."}],
        "temperature": 0,
        "max_tokens": 64,
    }
    line = {"custom_id": f"ticket-{number:07}", "method": "POST", "url": "/v1/chat/completions", "body": body}
    return json.dumps(line, ensure_ascii=False).encode() + b"\n"


def main() -> None:
    parser = argparse.ArgumentParser(description="write benchmark rows")
    parser.add_argument("count", type=int)
    parser.add_argument("file", type=Path)
    arguments = parser.parse_args()
    write_rows(arguments.file, arguments.count)


if __name__ == "__main__":
    main()
