"""Which code this process runs, told apart from every other: two versions must not share one fleet of workers."""

from __future__ import annotations

import hashlib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

DIGITS = 12


def code_version() -> str:
    """ "0.1.0 (source 1f3a…)": the package's version, and a digest of its files, which says more in a checkout."""
    root = Path(__file__).parents[1]
    digest = hashlib.sha256()
    for path in sorted(root.rglob("*.py")):
        digest.update(path.relative_to(root).as_posix().encode() + b"\x00")
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    try:
        known = version("batchwright")
    except PackageNotFoundError:
        known = "unpacked"  # run from a source tree that was never installed
    return f"{known} (source {digest.hexdigest()[:DIGITS]})"
