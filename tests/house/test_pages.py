"""The pages say what is true: tables from the code, commands that work, files and names that are there."""

from __future__ import annotations

import ast
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest

from batchwright.cli.group import batchwright

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "batchwright"
README = ROOT / "README.md"
PAGES = sorted([README, ROOT / "ARCHITECTURE.md", *(ROOT / "docs").rglob("*.md")])
PICTURES = sorted((ROOT / "docs").glob("*.svg"))

BLOCK = re.compile(r"(?:^<!-- (?P<mark>run(?:: \d+)?) -->\n)?^```(?P<kind>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
SPAN = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
PLACE = re.compile(r"(?P<file>[\w.-]+(?:/[\w.-]+)*\.py):(?P<name>\w+)")
FILE = re.compile(r"[\w.-]+(?:/[\w.-]+)+/?|[\w-]+/")
HOSTS = {"llm.example.com", "localhost", "127.0.0.1", "www.w3.org", "www.textualize.io"}
NOT_OURS = (".venv/", ".uv/", "local/")
"""What installing makes, and a vendor's prefix of model names."""
ANSWERS_WITHIN_S = 120
"""Of one block of commands; they take seconds."""

pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def blocks(page: Path) -> Iterator[re.Match[str]]:
    return BLOCK.finditer(page.read_text(encoding="utf-8"))


def spans(page: Path) -> list[str]:
    return SPAN.findall(BLOCK.sub("", page.read_text(encoding="utf-8")))


# ------------------------------------------------------------------------------------------------------------ tables


def test_tables_are_those_of_the_code() -> None:
    checked = subprocess.run(
        [sys.executable, ROOT / "tools" / "tables.py", "--check"], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr


# ---------------------------------------------------------------------------------------------------------- commands


def commands() -> list[str]:
    """Every command of ours in the pages: lines of shell blocks, and texts between back-ticks."""
    found = [line for page in PAGES for block in blocks(page) if block["kind"] == "sh" for line in lines(block["text"])]
    found += [text for page in PAGES for text in spans(page)]
    return sorted({command for text in found if (command := our_part(text))})


def lines(text: str) -> list[str]:
    return text.replace("\\\n", " ").splitlines()


def our_part(text: str) -> str:
    """From `batchwright COMMAND` on, whatever starts it; empty for another command."""
    found = re.search(r"(?:^|[ /])(batchwright [a-z].*)$", text)
    return found[1] if found is not None else ""


@pytest.mark.parametrize("command", commands())
def test_command_is_understood(command: str) -> None:
    """Each option and value is one that the command knows; nothing is run."""
    words = shlex.split(command, comments=True)[1:]
    group: click.Command = batchwright
    parent: click.Context | None = None
    while isinstance(group, click.Group):
        if group.invoke_without_command and (not words or words[0].startswith("-")):
            break  # it does something by itself: `batchwright workers --json`
        parent = click.Context(group, parent=parent, info_name=group.name)
        name, words = words[0], words[1:]
        known = group.get_command(parent, name)
        assert known is not None, f"{command}: there is no command {name!r}"
        group = known
    if words:  # a bare `batchwright run` in a sentence names the command
        group.make_context(group.name, words, parent=parent)


def test_blocks_that_are_marked_to_run_do(tmp_path: Path) -> None:
    """In one folder, one after the other, as a reader would; each ends with the code that its mark says (else 0)."""
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    home = tmp_path / "home"
    home.mkdir()
    keep = {
        name: value for name, value in os.environ.items() if not name.startswith(("OPENAI_", "BATCHWRIGHT_", "XDG_"))
    }
    environment = keep | {
        "HOME": str(home),
        "BATCHWRIGHT_HOME": str(home / "state"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    runs = [block for block in blocks(README) if block["mark"]]
    assert len(runs) >= 6
    for block in runs:
        assert block["kind"] in ("sh", "python"), block[0]
        shell = [sys.executable, "-c"] if block["kind"] == "python" else ["bash", "-ec"]
        ended = subprocess.run(
            [*shell, block["text"]],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=ANSWERS_WITHIN_S,
            check=False,
        )
        expected = int(block["mark"].partition(": ")[2] or 0)
        assert ended.returncode == expected, f"{block['text']}\n{ended.stdout}\n{ended.stderr}"


def test_two_commands_are_those_of_the_checks() -> None:
    """`.ci/run` runs what stands in the README, in a fresh clone."""
    checks = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    for name in ("main_job", "tests"):
        line = re.search(rf"^{name}='(.*)'$", checks, re.M)
        assert line is not None
        assert f"```sh\n{line[1]}\n```" in README.read_text(encoding="utf-8")


# ------------------------------------------------------------------------------------------------- files and names


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"https?:", target):
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), f"{page.name} links to {target}"
        if anchor:
            assert anchor in anchors(path), f"{page.name} links to {target}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", BLOCK.sub("", page.read_text(encoding="utf-8")), re.M)
    return {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pages
def test_files_and_names_are_there(page: Path) -> None:
    """A text between back-ticks that looks like a file is one of the repository; with a colon, a name in it."""
    for text in spans(page):
        if place := PLACE.fullmatch(text):
            assert place["name"] in names_in(SOURCE / place["file"]), f"{page.name}: `{text}`"
        elif FILE.fullmatch(text) and not text.startswith(NOT_OURS):
            assert any((base / text).exists() for base in (ROOT, SOURCE)), f"{page.name}: `{text}` is not there"


@cache
def names_in(file: Path) -> frozenset[str]:
    assert file.is_file(), f"{file.relative_to(ROOT)} is not there"
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
    return frozenset(found)


@pytest.mark.parametrize("page", [*PAGES, *PICTURES], ids=lambda page: str(page.relative_to(ROOT)))
def test_pages_name_no_machine(page: Path) -> None:
    """A page is read elsewhere: no path of the machine it was written on, no host but the examples'."""
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"(?<![\w.~/-])/(?:root|home|work|tmp|Users|opt|mnt)/\S*", text):
        raise AssertionError(f"{page.name} names the path {path}")
    hosts = set(re.findall(r"https?://([^/:\s\"'`)]+)", text))
    assert hosts <= HOSTS, f"{page.name} names {hosts - HOSTS}"
