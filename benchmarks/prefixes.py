"""What the order of sending is worth on the local model: rows of several prompts, mixed in the file.

    python benchmarks/prefixes.py              six prompts of 16 rows each, two rounds, about two minutes
    python benchmarks/prefixes.py --prompts N --rows N --rounds N

Each run is the whole command with its own server, as `batchwright run` starts it; cached tokens are those that the
server's answers state. The extra `local` has to be installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

THINGS = ("parcels", "invoices", "logins", "refunds", "printers", "holidays", "courses", "recipes", "tickets", "meters")
WORDS = 120
"""About so many tokens of each prompt are its own beginning."""


def write_rows(path: Path, prompts: int, rows: int) -> None:
    """Row by row another prompt, as in a file that was joined from several sources."""
    lines = []
    for row in range(rows):
        for prompt in range(prompts):
            thing = THINGS[prompt % len(THINGS)]
            rules = " ".join(f"rule {number} of {thing} is to say yes" for number in range(WORDS // 9))
            messages = [
                {"role": "system", "content": f"You answer about {thing}: {rules}."},
                {"role": "user", "content": f"Question {row}: is {thing} number {row * 7 % 31} late?"},
            ]
            body = {"model": "local/smollm2", "messages": messages, "temperature": 0, "max_tokens": 4}
            lines.append(json.dumps({"custom_id": f"p{prompt}r{row}", "body": body}))
    path.write_text("".join(f"{line}\n" for line in lines))


def run(folder: Path, file: Path, option: str) -> tuple[float, float, int]:
    """(rows a second, share of the prompt's tokens that came from the cache, prompt tokens)."""
    with tempfile.TemporaryDirectory(dir=folder) as home:
        command = [sys.executable, "-m", "batchwright", "run", str(file), "-o", f"{home}/out.jsonl", option, "--json"]
        environ = {**os.environ, "BATCHWRIGHT_HOME": home}
        ended = subprocess.run(
            [*command, "--progress", "none"], env=environ, capture_output=True, text=True, check=False
        )
        if ended.returncode:
            raise SystemExit(ended.stderr)
        report = json.loads(ended.stdout)
    tokens = report["tokens"]
    return report["rows_per_s"], tokens["cached"] / tokens["prompt"], tokens["prompt"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--prompts", type=int, default=6)
    parser.add_argument("--rows", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=2)
    options = parser.parse_args()
    found: dict[str, list[tuple[float, float, int]]] = {"--no-group-prefix": [], "--group-prefix": []}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.jsonl"
        write_rows(file, options.prompts, options.rows)
        for _ in range(options.rounds):
            for option, runs in found.items():
                runs.append(run(Path(folder), file, option))
    for option, runs in found.items():
        pace = statistics.median(each[0] for each in runs)
        cached = statistics.median(each[1] for each in runs)
        print(f"{option}: {pace:.1f} rows/s, {cached:.0%} of {runs[0][2]:,} prompt tokens from the cache")


if __name__ == "__main__":
    main()
