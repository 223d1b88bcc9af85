"""Pins every dependency, in one go: the constraints in pyproject.toml and the hash files in requirements/.

    python tools/pin.py              keeps the pins there are, adds what a new dependency brings, drops what is unused
    python tools/pin.py --upgrade    the newest of everything that pyproject.toml allows
    python tools/pin.py --check      changes nothing; ends with 1 if the three do not agree with what uv would install

uv.lock is not committed (it names the registry that it was made with, on every line), so these files are what makes
two checkouts install the same. The hash files are for those who install without uv:

    pip install --require-hashes --no-deps -r requirements/local.txt && pip install --no-deps -e .

Works on a copy in a temporary folder and needs the registry. Standard library only.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"^constraint-dependencies = \[\n(.*?)^\]\n", re.DOTALL | re.MULTILINE)
EXPORTS = {
    "requirements/all.txt": ("--all-extras", "--all-groups"),
    "requirements/local.txt": ("--no-dev", "--extra", "local"),
    "requirements/deploy.txt": ("--no-dev", "--extra", "postgres", "--extra", "objects", "--extra", "otel"),
}
PLAIN = ("--no-emit-project", "--no-annotate", "--no-header")
ADDRESS = re.compile(r"[a-z]+://")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--upgrade", action="store_true")
    options = parser.parse_args()
    committed = {name: _read(ROOT / name) for name in ("pyproject.toml", *EXPORTS)}
    made = _pin(committed["pyproject.toml"], upgrade=options.upgrade)
    if options.check:
        return _report(committed, made)
    for name, text in made.items():
        (ROOT / name).parent.mkdir(exist_ok=True)
        (ROOT / name).write_text(text)
        print(f"{name}: {'unchanged' if text == committed[name] else 'written'}")
    return 0


def _pin(pyproject: str, *, upgrade: bool) -> dict[str, str]:
    """The text of each file, by name, as it should be."""
    with tempfile.TemporaryDirectory(prefix="pin-") as folder:
        copy = Path(folder)
        shutil.copy(ROOT / "README.md", copy)
        (copy / "pyproject.toml").write_text(_with_constraints(pyproject, []) if upgrade else pyproject)
        _uv(copy, "lock")
        lines = _uv(copy, "export", "--no-hashes", *EXPORTS["requirements/all.txt"], *PLAIN).splitlines()
        made = {"pyproject.toml": _with_constraints(pyproject, constraints(lines))}
        # Locked anew from the pins alone: what follows is what a fresh checkout gets.
        (copy / "pyproject.toml").write_text(made["pyproject.toml"])
        (copy / "uv.lock").unlink()
        _uv(copy, "lock")
        for name, selection in EXPORTS.items():
            made[name] = _uv(copy, "export", *selection, *PLAIN)
    for name in EXPORTS:
        if ADDRESS.search(made[name]):
            raise SystemExit(f"{name} would name an address; look at the index settings that uv runs with")
    return made


def constraints(exported: list[str]) -> list[str]:
    """`name==version` for each exported line; its marker only where one package has several versions."""
    pins = [tuple(part.strip() for part in line.partition(" ; ")) for line in exported if line.strip()]
    names = [pin.split("==")[0] for pin, _, _ in pins]
    return [
        f"{pin} ; {marker}" if names.count(name) > 1 else pin
        for name, (pin, _, marker) in zip(names, pins, strict=True)
    ]


def _with_constraints(pyproject: str, pins: list[str]) -> str:
    lines = "".join(f'  "{pin}",\n' for pin in pins)
    text, found = BLOCK.subn(lambda _: f"constraint-dependencies = [\n{lines}]\n", pyproject)
    if found != 1:
        raise SystemExit("pyproject.toml: expected one `constraint-dependencies = [` block, each end on its own line")
    return text


def _report(committed: dict[str, str], made: dict[str, str]) -> int:
    """Prints every difference; 1 if one of them matters.

    A file that was added to a version already pinned (a wheel for a new Python, say) brings hashes that nobody has
    looked at yet: said, but no failure, or every such upload somewhere would break the checks here.
    """
    wrong = 0
    for name, text in made.items():
        had, wanted = _lines(committed[name]), _lines(text)
        for line in (line for line in had if line not in wanted):
            print(f"{name}: has, but uv would not install: {line}")
            wrong += 1
        new = [line for line in wanted if line not in had]
        new_hashes = sum(line.startswith("--hash=") for line in new)
        for line in (line for line in new if not line.startswith("--hash=")):
            print(f"{name}: lacks: {line}")
            wrong += 1
        if new_hashes:
            print(f"{name}: {new_hashes} files more than were pinned; review them with tools/pin.py")
    print("pins: in agreement" if not wrong else f"pins: {wrong} differences; run tools/pin.py")
    return 1 if wrong else 0


def _lines(text: str) -> dict[str, None]:
    """A set in order; without the backslash that says only whether another line follows."""
    return dict.fromkeys(line.removesuffix("\\").strip() for line in text.splitlines())


def _uv(folder: Path, command: str, *arguments: str) -> str:
    environ = {name: value for name, value in os.environ.items() if name != "VIRTUAL_ENV"}
    ended = subprocess.run(
        [_uv_program(), command, "--quiet", *arguments],
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    if ended.returncode:
        raise SystemExit(f"uv {command} failed:\n{ended.stderr}")
    return ended.stdout


def _uv_program() -> str:
    """`uv run` names itself in UV; then the one that README's command puts beside the sources; then any."""
    beside = ROOT / ".uv" / "bin" / "uv"
    program = os.environ.get("UV") or (str(beside) if beside.exists() else shutil.which("uv"))
    if not program:
        raise SystemExit("uv was not found: python3 -m venv .uv && .uv/bin/pip install uv")
    return program


def _read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


if __name__ == "__main__":
    sys.exit(main())
